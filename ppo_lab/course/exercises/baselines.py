"""Exercises of notebook 02: the best constant baseline, the mean of the others, and what may not carry a gradient."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ppo_lab.core.groups import centered_advantages, grpo_advantages, rloo_advantages
from ppo_lab.core.objectives import reinforce
from ppo_lab.core.values import value_error
from ppo_lab.course.exercises.exercise import Case, Exercise, Wrong
from ppo_lab.course.exercises.toys import Toys
from ppo_lab.exact.mdp import gradient_moments

# --- the best constant -----------------------------------------------------------------------------------------------

best = Wrong()


def size(probs: Tensor) -> Tensor:
    """Squared length of each arm's score, |e_a - p|²."""
    return (torch.eye(len(probs), dtype=probs.dtype) - probs).square().sum(-1)


@best("That is the expected reward. Arms with a long score make more noise, and count more.")
def expected_reward(probs: Tensor, reward: Tensor) -> Tensor:
    """E[R]."""
    return probs @ reward


@best("That is the plain mean of the rewards. How often an arm is pulled counts as well.")
def plain_mean(probs: Tensor, reward: Tensor) -> Tensor:
    """No probabilities at all."""
    return reward.mean()


@best("The probabilities are missing: both sums are expectations under the policy.")
def not_weighted(probs: Tensor, reward: Tensor) -> Tensor:
    """Weights without p."""
    return (size(probs) * reward).sum() / size(probs).sum()


@best("You weight by the length of the score. Variance is squared: weight by the squared length.")
def not_squared(probs: Tensor, reward: Tensor) -> Tensor:
    """|score|."""
    weight = probs * size(probs).sqrt()
    return weight @ reward / weight.sum()


@best("The weights are the wrong way up: a long score makes more noise, so that arm counts more, not less.")
def upside_down(probs: Tensor, reward: Tensor) -> Tensor:
    """1 / |score|²."""
    weight = probs / size(probs)
    return weight @ reward / weight.sum()


@best("You do not divide by E[|score|²], so it is no average of rewards.")
def not_divided(probs: Tensor, reward: Tensor) -> Tensor:
    """Numerator alone."""
    return (probs * size(probs)) @ reward


@best("You take |e_a|² − |p|² for the squared length of e_a − p. Expand the square: there is a −2 p_a.")
def cross_term_lost(probs: Tensor, reward: Tensor) -> Tensor:
    """1 + |p|²."""
    weight = probs * (1 - probs.square().sum() + probs)
    return weight @ reward / weight.sum()


def baseline_reference(probs: Tensor, reward: Tensor) -> Tensor:
    """`ppo_lab.exact.mdp.gradient_moments`, its ``optimal_baseline``."""
    return gradient_moments(probs, reward, baseline=0.0).optimal_baseline


def baseline_cases(seed: int) -> Sequence[Case]:
    """A policy that is far from even, and rewards far from 0."""
    toys = Toys("optimal_baseline", seed)
    probs = (1.5 * toys.away(5)).softmax(-1)
    return (Case("five arms", {"probs": probs, "reward": 3.0 + 2 * toys.away(5)}),)


OPTIMAL_BASELINE = Exercise(
    name="optimal_baseline",
    notebook="02_baselines",
    minutes=10,
    lines=3,
    task="probs (K,) and reward (K,) of a bandit. Return the constant b of least variance, a number: the mean of the "
    "rewards, weighted with p_a |e_a − p|².",
    answer="""\
def optimal_baseline(probs, reward):
    score = torch.eye(len(probs)) - probs
    weight = probs * score.square().sum(-1)
    return weight @ reward / weight.sum()
""",
    reference=baseline_reference,
    parts=(gradient_moments,),
    cases=baseline_cases,
    hints=(
        "How is the variance of (R − b) times the score, as a function of b, least?",
        "Row a of torch.eye(K) − probs is the score of arm a.",
        "Both sums of the fraction are expectations: the weights sum to 1 after the division.",
    ),
    mutants=tuple(best),
)

# --- leave one out ---------------------------------------------------------------------------------------------------

others = Wrong()


@others("Your mean contains the sample itself: a part of its own reward goes, and the gradient is too short by 1/N.")
def itself_included(score: Tensor) -> Tensor:
    """Batch mean."""
    return centered_advantages(score)


@others("You compare with other prompts. The others of the same row are meant.")
def other_prompts(score: Tensor) -> Tensor:
    """Along the wrong axis."""
    return rloo_advantages(score.T).T


@others("You divide by the spread. That is GRPO; here rewards keep their unit.")
def standardised(score: Tensor) -> Tensor:
    """GRPO."""
    return grpo_advantages(score, eps=1e-8)


@others("That is the baseline. What is asked for is the reward less the baseline.")
def baseline_alone(score: Tensor) -> Tensor:
    """Mean of the others."""
    return score - rloo_advantages(score)


@others("You take off the sum of the others, not their mean.")
def sum_of_others(score: Tensor) -> Tensor:
    """No division."""
    return score - (score.sum(-1, keepdim=True) - score)


@others("You divide by N. There are N − 1 others.")
def divided_by_all(score: Tensor) -> Tensor:
    """N instead of N - 1."""
    return score - (score.sum(-1, keepdim=True) - score) / score.shape[-1]


@others("The sign: above the others is positive.")
def turned_round(score: Tensor) -> Tensor:
    """Sign."""
    return -rloo_advantages(score)


@others("You compare with the next sample only. All others count alike.")
def next_one(score: Tensor) -> Tensor:
    """A single other."""
    return score - score.roll(1, dims=-1)


def leave_one_out_reference(score: Tensor) -> Tensor:
    """`ppo_lab.core.groups.rloo_advantages`."""
    return rloo_advantages(score)


def leave_one_out_cases(seed: int) -> Sequence[Case]:
    """Four prompts with four answers each: square, so that the wrong axis has the right shape."""
    return (Case("four prompts", {"score": 1.0 + Toys("leave_one_out", seed).away(4, 4)}),)


LEAVE_ONE_OUT = Exercise(
    name="leave_one_out",
    notebook="02_baselines",
    minutes=6,
    lines=2,
    task="score (P, N) holds rewards (not ∇log π), N samples for each of P prompts. Return for each sample its "
    "reward less the mean of the others in its row, (P, N).",
    answer="""\
def leave_one_out(score):
    others = (score.sum(-1, keepdim=True) - score) / (score.shape[-1] - 1)
    return score - others
""",
    reference=leave_one_out_reference,
    parts=(rloo_advantages,),
    cases=leave_one_out_cases,
    hints=(
        "What is the sum of the others, if you know the sum of all?",
        "keepdim=True keeps the row's sum beside its samples.",
        "There are N − 1 others.",
    ),
    mutants=tuple(others),
)

# --- detach ----------------------------------------------------------------------------------------------------------

losses = Wrong()


def loss_reference(logp: Tensor, return_: Tensor, value: Tensor, *, c1: float) -> Tensor:
    """`reinforce` with a detached baseline, and `value_error`, as `ppo_lab.update` adds them up."""
    policy = reinforce(logp, (return_ - value).detach())
    return -policy.mean() + c1 * value_error(value, return_).mean()


@losses("The baseline is not detached: the policy's loss pulls on the critic, and values settle off the returns.")
def attached(logp: Tensor, return_: Tensor, value: Tensor, *, c1: float) -> Tensor:
    """No detach."""
    return -(logp * (return_ - value)).mean() + c1 * value_error(value, return_).mean()


@losses("The value is detached in its own loss as well, so the critic learns nothing.")
def critic_asleep(logp: Tensor, return_: Tensor, value: Tensor, *, c1: float) -> Tensor:
    """Detached everywhere."""
    return loss_reference(logp, return_, value.detach(), c1=c1)


@losses("log π is detached: that is the one thing the policy learns through.")
def policy_asleep(logp: Tensor, return_: Tensor, value: Tensor, *, c1: float) -> Tensor:
    """Detached log-probs."""
    return loss_reference(logp.detach(), return_, value, c1=c1)


@losses("The policy's sign: its objective is to be maximised, so it enters a loss with a minus.")
def descending(logp: Tensor, return_: Tensor, value: Tensor, *, c1: float) -> Tensor:
    """Sign."""
    return (logp * (return_ - value).detach()).mean() + c1 * value_error(value, return_).mean()


@losses("You add the value to the return. A baseline is taken off: G − V.")
def baseline_added(logp: Tensor, return_: Tensor, value: Tensor, *, c1: float) -> Tensor:
    """G + V."""
    return -(logp * (return_ + value).detach()).mean() + c1 * value_error(value, return_).mean()


@losses("The baseline is missing: the policy is weighted with the bare return.")
def no_baseline(logp: Tensor, return_: Tensor, value: Tensor, *, c1: float) -> Tensor:
    """G."""
    return -(logp * return_).mean() + c1 * value_error(value, return_).mean()


@losses("The half of ½ (V − G)² is missing. It belongs to the loss, not to c1.")
def half_missing(logp: Tensor, return_: Tensor, value: Tensor, *, c1: float) -> Tensor:
    """(V - G)²."""
    return loss_reference(logp, return_, value, c1=2 * c1)


@losses("c1 is missing: it weighs the critic's loss against the policy's.")
def coefficient_missing(logp: Tensor, return_: Tensor, value: Tensor, *, c1: float) -> Tensor:
    """c1 = 1."""
    return loss_reference(logp, return_, value, c1=1.0)


@losses("You sum over the steps. A mean keeps the learning rate's meaning for any batch.")
def summed(logp: Tensor, return_: Tensor, value: Tensor, *, c1: float) -> Tensor:
    """Sum."""
    return logp.numel() * loss_reference(logp, return_, value, c1=c1)


def loss_cases(seed: int) -> Sequence[Case]:
    """A batch of steps."""
    toys = Toys("actor_critic_loss", seed)
    given = {"logp": toys.logp(2, 6), "return_": 1 + toys.away(2, 6), "value": toys.away(2, 6)}
    return (Case("twelve steps", given, {"c1": 0.3}),)


ACTOR_CRITIC_LOSS = Exercise(
    name="actor_critic_loss",
    notebook="02_baselines",
    minutes=8,
    lines=4,
    task="Return the loss of policy and critic, a number: minus the mean of log π times the advantage G − V, plus c1 "
    "times the mean of ½ (V − G)². The value that serves as baseline must not learn from the policy's part.",
    answer="""\
def actor_critic_loss(logp, return_, value, *, c1):
    advantage = (return_ - value).detach()
    policy = -(logp * advantage).mean()
    critic = (value - return_).square().mean() / 2
    return policy + c1 * critic
""",
    reference=loss_reference,
    parts=(reinforce, value_error),
    cases=loss_cases,
    gradient_of=("logp", "value"),
    hints=(
        "Which of the two terms should move the policy, which the critic?",
        "x.detach() is the number of x without its gradient.",
        "Detach the advantage; leave the value in its own loss as it is.",
    ),
    mutants=tuple(losses),
)
