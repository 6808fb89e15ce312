"""Exercises of notebook 05: the one-step surprise, and the generalised advantage that sums it up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from ppo_lab.core import returns
from ppo_lab.core.masking import standardize
from ppo_lab.core.returns import gae, td_errors
from ppo_lab.course.exercises.exercise import Case, Exercise, Wrong
from ppo_lab.course.exercises.toys import Toys

# Row 0: one episode terminates at step 1, the next is cut at step 3, the last goes on beyond the rollout. Row 1: cut at
# step 2, terminated at the end.
TERMINATED = torch.tensor([[0, 1, 0, 0, 0, 0], [0, 0, 0, 0, 0, 1]], dtype=torch.bool)
ENDED = torch.tensor([[0, 1, 0, 1, 0, 1], [0, 0, 1, 0, 0, 1]], dtype=torch.bool)

wrong = Wrong()


@wrong("You bootstrap after a terminal step. Nothing comes after it: its future is worth 0.")
def terminal_bootstrapped(
    reward: Tensor, value: Tensor, next_value: Tensor, terminated: Tensor, *, gamma: float
) -> Tensor:
    """terminated ignored."""
    return reward + gamma * next_value - value


@wrong("You multiply by (1 − terminated). Behind a terminal step stands nonsense, and 0 × NaN is NaN: use torch.where.")
def multiplied(reward: Tensor, value: Tensor, next_value: Tensor, terminated: Tensor, *, gamma: float) -> Tensor:
    """Right wherever the future is a number."""
    return reward + gamma * next_value * (~terminated) - value


@wrong("γ is missing: the future is worth less than now.")
def gamma_missing(reward: Tensor, value: Tensor, next_value: Tensor, terminated: Tensor, *, gamma: float) -> Tensor:
    """γ = 1."""
    return td_errors(reward, value, next_value, terminated=terminated, gamma=1.0)


@wrong("The value of the present state is not taken off: that is a target, not a surprise.")
def target(reward: Tensor, value: Tensor, next_value: Tensor, terminated: Tensor, *, gamma: float) -> Tensor:
    """r + γ V'."""
    return td_errors(reward, torch.zeros_like(value), next_value, terminated=terminated, gamma=gamma)


@wrong("The sign: positive means better than expected.")
def sign(reward: Tensor, value: Tensor, next_value: Tensor, terminated: Tensor, *, gamma: float) -> Tensor:
    """−δ."""
    return -td_errors(reward, value, next_value, terminated=terminated, gamma=gamma)


@wrong("The two values are swapped: V of now is taken off, V of next is added.")
def swapped(reward: Tensor, value: Tensor, next_value: Tensor, terminated: Tensor, *, gamma: float) -> Tensor:
    """r + γ V − V'."""
    return reward + gamma * value - torch.where(terminated, 0.0, next_value)


@wrong("You take the next column of value for the next state. After an end that is another episode, and a cut one has "
       "its own last state: use next_value.")  # fmt: skip
def next_column(reward: Tensor, value: Tensor, next_value: Tensor, terminated: Tensor, *, gamma: float) -> Tensor:
    """value[t + 1]."""
    ahead = torch.cat([value[..., 1:], next_value[..., -1:]], dim=-1)
    return td_errors(reward, value, ahead, terminated=terminated, gamma=gamma)


@wrong("γ multiplies the reward as well. The reward of this step comes now.")
def reward_discounted(reward: Tensor, value: Tensor, next_value: Tensor, terminated: Tensor, *, gamma: float) -> Tensor:
    """γ (r + V') − V."""
    return td_errors(gamma * reward, value, next_value, terminated=terminated, gamma=gamma)


def td_reference(reward: Tensor, value: Tensor, next_value: Tensor, terminated: Tensor, *, gamma: float) -> Tensor:
    """`ppo_lab.core.returns.td_errors`, with ``terminated`` in the exercise's place."""
    return td_errors(reward, value, next_value, terminated=terminated, gamma=gamma)


def _episodes(name: str, seed: int) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Rewards, values and next values; then the same with NaN behind terminal steps."""
    toys = Toys(name, seed)
    reward, value = toys.away(2, 6), toys.away(2, 6)
    inner = torch.cat([value[:, 1:], toys.away(2, 1)], dim=-1)
    next_value = torch.where(ENDED, toys.away(2, 6), inner)
    plain = {"reward": reward, "value": value, "next_value": next_value}
    return plain, {**plain, "next_value": next_value.masked_fill(TERMINATED, torch.nan)}


def td_cases(seed: int) -> Sequence[Case]:
    """An end and a cut in the middle; then NaN as the value behind terminal steps."""
    plain, nonsense = _episodes("td_errors", seed)
    more = {"terminated": TERMINATED}
    return Case("two rollouts", plain | more, {"gamma": 0.9}), Case(
        "NaN behind the end", nonsense | more, {"gamma": 0.5})  # fmt: skip


TD_ERRORS = Exercise(
    name="td_errors",
    notebook="05_gae",
    minutes=6,
    lines=2,
    task="Return δ = r + γ V(next) − V for every step, shape (B, T). A terminated step has no future, whatever "
    "next_value holds there, even NaN.",
    answer="""\
def td_errors(reward, value, next_value, terminated, *, gamma):
    future = torch.where(terminated, 0.0, next_value)
    return reward + gamma * future - value
""",
    reference=td_reference,
    parts=(td_errors,),
    cases=td_cases,
    places=lambda case: {"the terminal step": TERMINATED, "the step before a cut": ENDED & ~TERMINATED},
    hints=(
        "What did you get, what do you hold now, and what did you think you had?",
        "After a terminal step there is nothing: what is nothing worth?",
        "torch.where(terminated, 0.0, next_value) is safe even where next_value is NaN.",
    ),
    mutants=tuple(wrong),
)

# --- generalised advantages ------------------------------------------------------------------------------------------

sums = Wrong()


def gae_reference(delta: Tensor, ended: Tensor, *, gamma: float, lam: float) -> Tensor:
    """`ppo_lab.core.returns.gae` from the TD errors: rewards δ, values 0."""
    zero = torch.zeros_like(delta)
    return gae(delta, zero, zero, terminated=torch.zeros_like(ended), ended=ended, gamma=gamma, lam=lam)


@sums("You sum across the end of an episode: the next column belongs to another one.")
def across_the_end(delta: Tensor, ended: Tensor, *, gamma: float, lam: float) -> Tensor:
    """ended ignored."""
    return gae_reference(delta, torch.zeros_like(ended), gamma=gamma, lam=lam)


@sums("The step at the end lost its own δ. Only what lies beyond it is cut off.")
def end_zeroed(delta: Tensor, ended: Tensor, *, gamma: float, lam: float) -> Tensor:
    """Zero at ends."""
    return gae_reference(delta.masked_fill(ended, 0.0), ended, gamma=gamma, lam=lam)


@sums("λ is missing: with γ alone this is return minus value.")
def lam_missing(delta: Tensor, ended: Tensor, *, gamma: float, lam: float) -> Tensor:
    """λ = 1."""
    return gae_reference(delta, ended, gamma=gamma, lam=1.0)


@sums("γ is missing: a surprise l steps ahead counts (γλ)^l.")
def gamma_forgotten(delta: Tensor, ended: Tensor, *, gamma: float, lam: float) -> Tensor:
    """γ = 1."""
    return gae_reference(delta, ended, gamma=1.0, lam=lam)


@sums("You sum forwards, so each step is credited with what came before it. Start at the last step.")
def forwards(delta: Tensor, ended: Tensor, *, gamma: float, lam: float) -> Tensor:
    """From the left."""
    starts = torch.cat([torch.ones_like(ended[..., :1]), ended[..., :-1]], dim=-1)
    return gae_reference(delta.flip(-1), starts.flip(-1), gamma=gamma, lam=lam).flip(-1)


@sums("You look one step ahead only; what comes after counts as well, less and less.")
def one_step_only(delta: Tensor, ended: Tensor, *, gamma: float, lam: float) -> Tensor:
    """δ_t + γλ δ_{t+1}."""
    ahead = torch.cat([delta[..., 1:], torch.zeros_like(delta[..., :1])], dim=-1)
    return delta + gamma * lam * torch.where(ended, 0.0, ahead)


@sums("The end is one step off: ended marks the last step of an episode, not the first of the next.")
def end_one_early(delta: Tensor, ended: Tensor, *, gamma: float, lam: float) -> Tensor:
    """ended shifted."""
    shifted = torch.cat([ended[..., 1:], torch.ones_like(ended[..., :1])], dim=-1)
    return gae_reference(delta, shifted, gamma=gamma, lam=lam)


@sums("You multiply δ by γλ as well. The surprise of this step counts whole.")
def own_step_discounted(delta: Tensor, ended: Tensor, *, gamma: float, lam: float) -> Tensor:
    """γλ too often."""
    return gamma * lam * gae_reference(delta, ended, gamma=gamma, lam=lam)


@sums("You weight by 1 − λ: that is the average of n-step estimates, which the sum of δ already is.")
def weighted_average(delta: Tensor, ended: Tensor, *, gamma: float, lam: float) -> Tensor:
    """(1 − λ) too often."""
    return (1 - lam) * gae_reference(delta, ended, gamma=gamma, lam=lam)


@sums("You standardise. That comes later, over the whole batch, or the critic's target is spoiled.")
def standardised(delta: Tensor, ended: Tensor, *, gamma: float, lam: float) -> Tensor:
    """Mean 0, deviation 1."""
    return standardize(gae_reference(delta, ended, gamma=gamma, lam=lam))


def gae_cases(seed: int) -> Sequence[Case]:
    """The same two rollouts, as TD errors."""
    plain, _ = _episodes("gae", seed)
    delta = td_errors(**plain, terminated=TERMINATED, gamma=0.9)
    options = {"gamma": 0.9, "lam": 0.8}
    return (Case("two rollouts", {"delta": delta, "ended": ENDED}, options),)


def gae_places(case: Case) -> Mapping[str, Tensor]:
    """Steps that one mistake may share."""
    return {"the last step of an episode": case.arguments["ended"]}


GAE = Exercise(
    name="gae",
    notebook="05_gae",
    minutes=12,
    lines=6,
    task="Return Â_t = δ_t + γλ Â_{t+1} for every step, shape (B, T), from the right. At the end of an episode nothing "
    "is carried over.",
    answer="""\
def gae(delta, ended, *, gamma, lam):
    ahead, found = torch.zeros_like(delta[:, 0]), []
    for t in reversed(range(delta.shape[1])):
        ahead = torch.where(ended[:, t], 0.0, ahead)
        ahead = delta[:, t] + gamma * lam * ahead
        found.append(ahead)
    return torch.stack(found[::-1], dim=1)
""",
    reference=gae_reference,
    parts=(gae, returns._sum_backwards),
    cases=gae_cases,
    places=gae_places,
    hints=(
        "Start with the last column: what is its advantage?",
        "Before you use what lies ahead, ask whether this step ended an episode.",
        "Collect columns in a list and stack them; torch.where(ended[:, t], 0.0, ahead) forgets.",
    ),
    mutants=tuple(sums),
)
