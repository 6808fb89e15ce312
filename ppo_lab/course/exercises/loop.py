"""Exercises of notebook 06: minibatches, the clipped value loss, and the whole loss of one minibatch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ppo_lab.core.masking import standardize
from ppo_lab.core.objectives import clipped_surrogate
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

# --- the whole loss --------------------------------------------------------------------------------------------------

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
