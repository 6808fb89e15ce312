"""Exercises of notebook 01: the log-probability of what was done, and REINFORCE's objective step by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from ppo_lab.core import returns
from ppo_lab.core.distributions import categorical_logp
from ppo_lab.core.objectives import reinforce
from ppo_lab.core.returns import discounted_returns
from ppo_lab.course.exercises.exercise import Case, Exercise, Wrong
from ppo_lab.course.exercises.toys import Toys

# ends: row 0 after steps 1 and 5, row 1 after steps 3 and 5
ENDED = torch.tensor([[0, 1, 0, 0, 0, 1], [0, 0, 0, 1, 0, 1]], dtype=torch.bool)

wrong = Wrong()


@wrong("That is the probability. Its log is asked for.")
def probability(logits: Tensor, action: Tensor) -> Tensor:
    """No log."""
    return categorical_logp(logits, action).exp()


@wrong("You pick the logit itself. Logits are not log-probabilities until log Σ exp is taken off.")
def raw_logit(logits: Tensor, action: Tensor) -> Tensor:
    """No normaliser."""
    return logits.gather(-1, action[..., None])[..., 0]


@wrong("exp overflows or underflows where logits lie far apart. log_softmax takes the largest one off first.")
def through_softmax(logits: Tensor, action: Tensor) -> Tensor:
    """log of a probability that underflows."""
    return logits.softmax(-1).log().gather(-1, action[..., None])[..., 0]


@wrong("You normalise over time. The actions of one step compete with each other: they are the last axis.")
def over_time(logits: Tensor, action: Tensor) -> Tensor:
    """dim=1."""
    return logits.log_softmax(1).gather(-1, action[..., None])[..., 0]


@wrong("You look at the likeliest action. What counts is the action that was taken.")
def likeliest(logits: Tensor, action: Tensor) -> Tensor:
    """max instead of gather."""
    return logits.log_softmax(-1).amax(-1)


@wrong("Each action gets its own yes or no (log σ). Actions exclude each other: softmax.")
def each_alone(logits: Tensor, action: Tensor) -> Tensor:
    """Sigmoid."""
    return torch.nn.functional.logsigmoid(logits).gather(-1, action[..., None])[..., 0]


@wrong("The action is one step late: column t of the logits belongs to column t of the actions.")
def one_late(logits: Tensor, action: Tensor) -> Tensor:
    """Shifted."""
    return categorical_logp(logits, action.roll(1, dims=-1))


@wrong("The sign: a log-probability is never above 0. The minus comes with the loss.")
def negative(logits: Tensor, action: Tensor) -> Tensor:
    """Cross-entropy."""
    return -categorical_logp(logits, action)


def logp_cases(seed: int) -> Sequence[Case]:
    """Moderate logits; then logits so far apart that exp of them is 0 or infinite."""
    toys = Toys("log_prob", seed)
    logits = toys.away(2, 6, 3)
    action = torch.tensor([[0, 1, 2, 0, 2, 1], [2, 2, 0, 1, 0, 1]])
    far = 900 * toys.away(2, 6, 3)
    return Case("moderate logits", {"logits": logits, "action": action}), Case(
        "logits far apart", {"logits": far, "action": action})  # fmt: skip


def log_prob_reference(logits: Tensor, action: Tensor) -> Tensor:
    """`ppo_lab.core.distributions.categorical_logp`."""
    return categorical_logp(logits, action)


LOG_PROB = Exercise(
    name="log_prob",
    notebook="01_reinforce",
    minutes=6,
    lines=2,
    task="logits (B, T, K) score K actions at each step, action (B, T) says which was taken. Return log π of the "
    "actions taken, (B, T).",
    answer="""\
def log_prob(logits, action):
    every = logits.log_softmax(-1)
    return every.gather(-1, action[..., None])[..., 0]
""",
    reference=log_prob_reference,
    parts=(categorical_logp,),
    cases=logp_cases,
    places=lambda case: {},
    hints=(
        "First the log-probability of every action, then pick one of them.",
        "log_softmax(-1) normalises over the last axis without overflow.",
        "gather(-1, action[..., None]) picks along the last axis; [..., 0] drops it again.",
    ),
    mutants=tuple(wrong),
)

# --- REINFORCE -------------------------------------------------------------------------------------------------------

terms = Wrong()


def objective_reference(logp: Tensor, reward: Tensor, ended: Tensor, *, gamma: float) -> Tensor:
    """`ppo_lab.core.objectives.reinforce` with the return of each step as its weight."""
    zero = torch.zeros_like(reward)
    weight = discounted_returns(reward, zero, terminated=ended, ended=ended, gamma=gamma)
    return reinforce(logp, weight)


@terms("You weight every step by the whole return of its episode. What was earned before it is not its credit.")
def past_counts(logp: Tensor, reward: Tensor, ended: Tensor, *, gamma: float) -> Tensor:
    """Past rewards as well."""
    before = discounted_returns(reward.flip(-1), torch.zeros_like(reward), terminated=_starts(ended),
                                ended=_starts(ended), gamma=gamma).flip(-1) - reward  # fmt: skip
    return objective_reference(logp, reward, ended, gamma=gamma) + logp * before


@terms("You sum across the end of an episode. The next one owes nothing to this action.")
def across_the_end(logp: Tensor, reward: Tensor, ended: Tensor, *, gamma: float) -> Tensor:
    """ended ignored."""
    last = torch.zeros_like(ended)
    last[..., -1] = True
    return objective_reference(logp, reward, last, gamma=gamma)


@terms("γ is missing: a reward k steps ahead counts γ^k.")
def gamma_missing(logp: Tensor, reward: Tensor, ended: Tensor, *, gamma: float) -> Tensor:
    """γ = 1."""
    return objective_reference(logp, reward, ended, gamma=1.0)


@terms("Only the reward of this very step is counted. An action is worth what follows from it.")
def at_once_only(logp: Tensor, reward: Tensor, ended: Tensor, *, gamma: float) -> Tensor:
    """r_t."""
    return logp * reward


@terms("The reward of the step itself is left out, or discounted: it comes now and counts whole.")
def own_reward_discounted(logp: Tensor, reward: Tensor, ended: Tensor, *, gamma: float) -> Tensor:
    """γ G."""
    return gamma * objective_reference(logp, reward, ended, gamma=gamma)


@terms("You weight the probability, not its log. E[∇π G] is no policy gradient: rare actions count too little.")
def probability_weighted(logp: Tensor, reward: Tensor, ended: Tensor, *, gamma: float) -> Tensor:
    """π G."""
    return logp.exp() * objective_reference(torch.ones_like(logp), reward, ended, gamma=gamma)


@terms("The sign: these are terms to maximise. The minus comes once, in the loss.")
def descending(logp: Tensor, reward: Tensor, ended: Tensor, *, gamma: float) -> Tensor:
    """A loss."""
    return -objective_reference(logp, reward, ended, gamma=gamma)


@terms("The end is one step off: ended marks the last step of an episode, not the first of the next.")
def end_one_early(logp: Tensor, reward: Tensor, ended: Tensor, *, gamma: float) -> Tensor:
    """Shifted."""
    early = torch.cat([ended[..., 1:], torch.ones_like(ended[..., :1])], dim=-1)
    return objective_reference(logp, reward, early, gamma=gamma)


@terms("You average or sum. One number a step is asked for, so that the mask and the mean stay visible later.")
def summed(logp: Tensor, reward: Tensor, ended: Tensor, *, gamma: float) -> Tensor:
    """Mean, spread over the steps."""
    found = objective_reference(logp, reward, ended, gamma=gamma)
    return found.mean().expand_as(found)


def _starts(ended: Tensor) -> Tensor:
    """Where an episode ends if time runs backwards."""
    starts = torch.cat([torch.ones_like(ended[..., :1]), ended[..., :-1]], dim=-1)
    return starts.flip(-1)


def objective_cases(seed: int) -> Sequence[Case]:
    """Two rows, two episodes each, of unequal length."""
    toys = Toys("reinforce", seed)
    given = {"logp": toys.logp(2, 6), "reward": toys.away(2, 6), "ended": ENDED}
    return (Case("four episodes", given, {"gamma": 0.9}),)


def places(case: Case) -> Mapping[str, Tensor]:
    """Steps that one mistake may share."""
    return {"the last step of an episode": case.arguments["ended"]}


REINFORCE = Exercise(
    name="reinforce",
    notebook="01_reinforce",
    minutes=10,
    lines=6,
    task="Return log π(a_t) · G_t for every step, (B, T): to be maximised. G_t = r_t + γ G_{t+1}. A row holds one "
    "episode after another; ended (bool) is True at the last step of each, whose reward still counts. Nothing comes "
    "after it, nor after the last column.",
    answer="""\
def reinforce(logp, reward, ended, *, gamma):
    ahead, found = torch.zeros_like(reward[:, 0]), []
    for t in reversed(range(reward.shape[1])):
        ahead = torch.where(ended[:, t], 0.0, ahead)
        ahead = reward[:, t] + gamma * ahead
        found.append(ahead)
    return logp * torch.stack(found[::-1], dim=1)
""",
    reference=objective_reference,
    parts=(reinforce, discounted_returns, returns._sum_backwards),
    cases=objective_cases,
    places=places,
    gradient_of=("logp",),
    hints=(
        "What is the return of the very last step? And of the one before?",
        "Walk from the right and keep one number a row; an end sets it to 0 before the reward is added.",
        "Collect the columns in a list, stack them the right way round, multiply by logp.",
    ),
    mutants=tuple(terms),
)
