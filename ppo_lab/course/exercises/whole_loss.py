"""Exercise of notebook 06: the whole loss of one minibatch, policy, critic and entropy."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ppo_lab.core.masking import standardize
from ppo_lab.core.objectives import clipped_surrogate
from ppo_lab.core.values import value_error
from ppo_lab.course.exercises.exercise import Case, Exercise, Wrong
from ppo_lab.course.exercises.toys import Toys

whole = Wrong()


def ppo_total_loss(
    log_ratio: Tensor, advantage: Tensor, value: Tensor, target: Tensor, entropy: Tensor, *, clip: float, c1: float,
    c2: float,
) -> Tensor:  # fmt: skip
    """Loss of one minibatch of steps: −L_clip + c1 · ½(V − G)² − c2 · H, advantages standardised inside it."""
    policy = -clipped_surrogate(log_ratio, standardize(advantage), clip=clip).mean()
    return policy + c1 * value_error(value, target).mean() - c2 * entropy.mean()


def _loss(given: tuple[Tensor, ...], clip: float, c1: float, c2: float, *, policy: float = 1.0) -> Tensor:
    """The same with a factor on the policy's part, from advantages as they are."""
    log_ratio, advantage, value, target, entropy = given
    term = -policy * clipped_surrogate(log_ratio, advantage, clip=clip).mean()
    return term + c1 * value_error(value, target).mean() - c2 * entropy.mean()


def _standard(given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return (given[0], standardize(given[1]), *given[2:])


@whole("The policy's sign: the surrogate is to be maximised, the loss to be minimised.")
def policy_sign(*given: Tensor, clip: float, c1: float, c2: float) -> Tensor:
    """+L_clip."""
    return _loss(_standard(given), clip, c1, c2, policy=-1.0)


@whole("The entropy's sign: a bonus is taken off a loss. This one punishes exploring.")
def entropy_sign(*given: Tensor, clip: float, c1: float, c2: float) -> Tensor:
    """+c2 H."""
    return _loss(_standard(given), clip, c1, -c2)


@whole("The critic's sign: its error is to become small.")
def critic_sign(*given: Tensor, clip: float, c1: float, c2: float) -> Tensor:
    """−c1."""
    return _loss(_standard(given), clip, -c1, c2)


@whole("c1 and c2 are swapped.")
def swapped(*given: Tensor, clip: float, c1: float, c2: float) -> Tensor:
    """c2 on the critic."""
    return _loss(_standard(given), clip, c2, c1)


@whole("The advantages are used as they came. Standardise them over the minibatch: mean 0, deviation 1.")
def as_they_came(*given: Tensor, clip: float, c1: float, c2: float) -> Tensor:
    """Raw Â."""
    return _loss(given, clip, c1, c2)


@whole("The mean is taken off, but nothing is divided by the deviation.")
def only_centred(*given: Tensor, clip: float, c1: float, c2: float) -> Tensor:
    """Â − mean."""
    return _loss((given[0], given[1] - given[1].mean(), *given[2:]), clip, c1, c2)


@whole("You divide by the deviation without taking the mean off first.")
def only_divided(*given: Tensor, clip: float, c1: float, c2: float) -> Tensor:
    """Â / std."""
    return _loss((given[0], given[1] / given[1].std(correction=0), *given[2:]), clip, c1, c2)


@whole("The critic's target is standardised as well. Only the policy's advantages are: the critic has units.")
def target_standardised(*given: Tensor, clip: float, c1: float, c2: float) -> Tensor:
    """Scaled target."""
    fixed = _standard(given)
    return _loss((*fixed[:3], standardize(given[3]), given[4]), clip, c1, c2)


@whole("Nothing is clipped.")
def no_clip(*given: Tensor, clip: float, c1: float, c2: float) -> Tensor:
    """r A."""
    log_ratio, advantage, value, target, entropy = _standard(given)
    return -(log_ratio.exp() * advantage).mean() + c1 * value_error(value, target).mean() - c2 * entropy.mean()


@whole("The ½ of the squared error is missing, so c1 means twice as much.")
def without_the_half(*given: Tensor, clip: float, c1: float, c2: float) -> Tensor:
    """2 c1."""
    return _loss(_standard(given), clip, 2 * c1, c2)


@whole("You sum over the minibatch: steps would grow with its size.")
def summed(*given: Tensor, clip: float, c1: float, c2: float) -> Tensor:
    """Sum."""
    return len(given[0]) * _loss(_standard(given), clip, c1, c2)


def whole_cases(seed: int) -> Sequence[Case]:
    """Eight steps, ratios on both sides of the band with advantages of both signs."""
    toys = Toys("ppo_total_loss", seed)
    x = torch.tensor([0.5, -0.5, 0.5, -0.5, 0.05, -0.05, 0.4, -0.4], dtype=torch.float64) + toys.normal(8, scale=0.01)
    signs = torch.tensor([1, 1, -1, -1, 1, -1, 1, -1], dtype=torch.float64)
    given = {"log_ratio": x, "advantage": 0.7 + 2 * signs * toys.away(8).abs(), "value": toys.away(8),
             "target": 1 + 3 * toys.away(8), "entropy": toys.away(8).abs()}  # fmt: skip
    return (Case("one minibatch", given, {"clip": 0.2, "c1": 0.5, "c2": 0.01}),)


PPO_TOTAL_LOSS = Exercise(
    name="ppo_total_loss",
    notebook="06_ppo",
    minutes=12,
    lines=5,
    task="Return the loss of one minibatch: −mean of the clipped surrogate (advantages standardised over the "
    "minibatch, deviation of the whole, no n − 1) + c1 · mean of ½(V − G)² − c2 · mean entropy. All inputs are (N,).",
    answer="""\
def ppo_total_loss(log_ratio, advantage, value, target, entropy, *, clip, c1, c2):
    A = (advantage - advantage.mean()) / advantage.std(correction=0)
    r = log_ratio.exp()
    actor = torch.minimum(r * A, r.clamp(1 - clip, 1 + clip) * A).mean()
    critic = ((value - target) ** 2).mean() / 2
    return -actor + c1 * critic - c2 * entropy.mean()
""",
    reference=ppo_total_loss,
    parts=(clipped_surrogate, standardize),
    cases=whole_cases,
    gradient_of=("log_ratio", "value", "entropy"),
    hints=(
        "Three parts: which of them should grow, which shrink? A loss shrinks.",
        "advantage.std(correction=0) divides by N.",
        "torch.minimum of r A and clip(r) A is the surrogate, as in notebook 04.",
    ),
    mutants=tuple(whole),
)
