"""Exercises of notebook 06: minibatches, and the clipped value loss."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ppo_lab.core.values import clipped_value_error, value_error
from ppo_lab.course.exercises.exercise import Case, Exercise, Wrong
from ppo_lab.course.exercises.toys import Toys

# --- minibatches -----------------------------------------------------------------------------------------------------

cuts = Wrong()


def minibatches(noise: Tensor, count: int) -> Tensor:
    """Which steps each minibatch holds, (epochs, count, N / count): every epoch is a permutation, cut into ``count``.

    Sorting noise shuffles; ``noise`` is (epochs, N).
    """
    return noise.argsort(-1).reshape(len(noise), count, -1)


@cuts("All epochs have the same minibatches. Shuffle anew in each.")
def shuffled_once(noise: Tensor, count: int) -> Tensor:
    """First epoch for all."""
    return minibatches(noise[:1].expand_as(noise), count)


@cuts("Nothing is shuffled: neighbours in time share a minibatch, and their errors are alike.")
def in_order(noise: Tensor, count: int) -> Tensor:
    """0, 1, 2, …"""
    return torch.arange(noise.shape[-1]).expand_as(noise).reshape(len(noise), count, -1)


@cuts("That sorts the noise itself. You want to know where each number stood: argsort.")
def sorted_noise(noise: Tensor, count: int) -> Tensor:
    """Values."""
    return noise.sort(-1).values.reshape(len(noise), count, -1)


@cuts("Steps are drawn with replacement: some come twice in an epoch, some never.")
def with_replacement(noise: Tensor, count: int) -> Tensor:
    """floor(noise · N)."""
    return (noise * noise.shape[-1]).long().reshape(len(noise), count, -1)


@cuts("You give each step's rank, not the step: argsort once, not twice.")
def ranks(noise: Tensor, count: int) -> Tensor:
    """The inverse permutation."""
    return minibatches(noise.argsort(-1).double(), count)


@cuts("The two sizes are swapped: count says how many minibatches there are, not how long one is.")
def sizes_swapped(noise: Tensor, count: int) -> Tensor:
    """(epochs, N / count, count)."""
    return noise.argsort(-1).reshape(len(noise), -1, count)


@cuts("One minibatch of each epoch is missing: some steps are never learned from.")
def last_one_dropped(noise: Tensor, count: int) -> Tensor:
    """count − 1."""
    return minibatches(noise, count)[:, :-1]


@cuts("Epochs are mixed: one permutation of all, so a step comes up more often in one epoch than in another.")
def epochs_mixed(noise: Tensor, count: int) -> Tensor:
    """Flat argsort, modulo N."""
    return (noise.flatten().argsort() % noise.shape[-1]).reshape(len(noise), count, -1)


@cuts("You cut into three whatever count says: use the argument.")
def typed_in(noise: Tensor, count: int) -> Tensor:
    """3."""
    return minibatches(noise, 3)


def cut_cases(seed: int) -> Sequence[Case]:
    """Twelve steps in three minibatches, then in four, three epochs."""
    toys = Toys("minibatches", seed)
    return tuple(
        Case(f"{count} minibatches", {"noise": (toys.normal(3, 12).tanh() + 1) / 2, "count": count}) for count in (3, 4)
    )


MINIBATCHES = Exercise(
    name="minibatches",
    notebook="06_ppo",
    minutes=8,
    lines=2,
    task="noise is (epochs, N). Return whole numbers (epochs, count, N / count): which steps each minibatch holds. In "
    "every epoch every step comes once, in the order that sorting its noise gives.",
    answer="""\
def minibatches(noise, count):
    order = noise.argsort(dim=1)
    return order.reshape(len(noise), count, -1)
""",
    reference=minibatches,
    cases=cut_cases,
    hints=(
        "A random order: give every step a random number and sort.",
        "argsort tells where the smallest stood, then the next.",
        "Each row of argsort is one epoch; cut it with reshape(epochs, count, -1).",
    ),
    mutants=tuple(cuts),
)

# --- clipped value loss ----------------------------------------------------------------------------------------------

held = Wrong()


def clipped_value_loss(value: Tensor, old_value: Tensor, target: Tensor, *, clip: float) -> Tensor:
    """Mean of `ppo_lab.core.values.clipped_value_error`."""
    return clipped_value_error(value, old_value, target, clip=clip).mean()


def _bound(value: Tensor, old_value: Tensor, clip: float) -> Tensor:
    return old_value + (value - old_value).clamp(-clip, clip)


@held("Nothing is clipped: this is the plain squared error.")
def unclipped(value: Tensor, old_value: Tensor, target: Tensor, *, clip: float) -> Tensor:
    """½ (V − G)²."""
    return value_error(value, target).mean()


@held("You take the clipped error alone. A value that moved away from its target has no gradient back.")
def no_maximum(value: Tensor, old_value: Tensor, target: Tensor, *, clip: float) -> Tensor:
    """Bound only."""
    return value_error(_bound(value, old_value, clip), target).mean()


@held("You take the smaller of the two errors. An error is bad, so the pessimistic one is the larger.")
def smaller(value: Tensor, old_value: Tensor, target: Tensor, *, clip: float) -> Tensor:
    """min for max."""
    return torch.minimum(value_error(value, target), value_error(_bound(value, old_value, clip), target)).mean()


@held("The band is V_old ± clip. Values have units; 1 ± clip times the old value is for ratios.")
def like_a_ratio(value: Tensor, old_value: Tensor, target: Tensor, *, clip: float) -> Tensor:
    """(1 ± ε) V_old."""
    low, high = (1 - clip) * old_value, (1 + clip) * old_value
    bound = torch.maximum(torch.minimum(value, torch.maximum(low, high)), torch.minimum(low, high))
    return torch.maximum(value_error(value, target), value_error(bound, target)).mean()


@held("The ½ is missing, so c1 would mean twice as much.")
def without_half(value: Tensor, old_value: Tensor, target: Tensor, *, clip: float) -> Tensor:
    """(V − G)²."""
    return 2 * clipped_value_loss(value, old_value, target, clip=clip)


@held("The difference to the target is clipped, which is a Huber-like loss. Clip how far V has moved.")
def error_clipped(value: Tensor, old_value: Tensor, target: Tensor, *, clip: float) -> Tensor:
    """clip(V − G)."""
    return ((value - target).clamp(-clip, clip).square() / 2).mean()


@held("You sum. The loss is a mean, or its size would hang on the minibatch.")
def added_up(value: Tensor, old_value: Tensor, target: Tensor, *, clip: float) -> Tensor:
    """Sum."""
    return len(value) * clipped_value_loss(value, old_value, target, clip=clip)


@held("The value is right, but no gradient reaches the critic: something was detached on the way.")
def detached(value: Tensor, old_value: Tensor, target: Tensor, *, clip: float) -> Tensor:
    """No graph."""
    return clipped_value_loss(value.detach(), old_value, target, clip=clip)


@held("You clip at 0.2 whatever clip says: use the argument.")
def always_the_same(value: Tensor, old_value: Tensor, target: Tensor, *, clip: float) -> Tensor:
    """ε = 0.2."""
    return clipped_value_loss(value, old_value, target, clip=0.2)


def value_cases(seed: int) -> Sequence[Case]:
    """Values that moved towards the target and away from it, little and far."""
    toys = Toys("clipped_value_loss", seed)
    old = toys.away(8)
    moved = torch.tensor([0.1, 0.5, -0.5, -0.1, 0.9, -0.9, 0.6, -0.6], dtype=torch.float64) + toys.normal(8, scale=0.01)
    ahead = torch.tensor([1, 1, 1, -1, -1, -1, 1, -1], dtype=torch.float64) * toys.away(8, least=0.35).abs()
    given = {"value": old + moved, "old_value": old, "target": old + ahead}
    return Case("clip 0.2", given, {"clip": 0.2}), Case("clip 0.7", given, {"clip": 0.7})


CLIPPED_VALUE_LOSS = Exercise(
    name="clipped_value_loss",
    notebook="06_ppo",
    minutes=8,
    lines=3,
    task="Return one number: the mean of ½ max((V − G)², (V_c − G)²), where V_c is V held within clip of V_old.",
    answer="""\
def clipped_value_loss(value, old_value, target, *, clip):
    near = old_value + (value - old_value).clamp(-clip, clip)
    worse = torch.maximum((value - target) ** 2, (near - target) ** 2)
    return worse.mean() / 2
""",
    reference=clipped_value_loss,
    parts=(clipped_value_error,),
    cases=value_cases,
    gradient_of=("value",),
    hints=(
        "How far has V moved since the rollout? Clip that, and add it back to V_old.",
        "Two errors a step: of V, and of the held V. Which is the pessimistic one?",
        "torch.maximum step by step, then the mean, then the ½.",
    ),
    mutants=tuple(held),
)
