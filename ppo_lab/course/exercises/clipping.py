"""Exercises of notebook 04: PPO's clipped term, and the figure that logs call clip fraction."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ppo_lab.core.masking import masked_mean
from ppo_lab.core.objectives import clip_fraction, clipped_surrogate, log_band, surrogate
from ppo_lab.course.exercises.exercise import Case, Exercise, Wrong
from ppo_lab.course.exercises.toys import MASK, Toys

wrong = Wrong()


@wrong("Nothing is clipped: this is r A alone.")
def no_clip(log_ratio: Tensor, advantage: Tensor, *, clip: float) -> Tensor:
    """Unconstrained surrogate."""
    return surrogate(log_ratio, advantage)


@wrong("You clip but never take the minimum, so a bad move is not punished beyond the clip.")
def no_minimum(log_ratio: Tensor, advantage: Tensor, *, clip: float) -> Tensor:
    """clip(r) A."""
    return log_ratio.exp().clamp(1 - clip, 1 + clip) * advantage


@wrong("You take the larger of the two products. The bound is pessimistic: the smaller.")
def maximum(log_ratio: Tensor, advantage: Tensor, *, clip: float) -> Tensor:
    """max for min."""
    r = log_ratio.exp()
    return torch.maximum(r * advantage, r.clamp(1 - clip, 1 + clip) * advantage)


@wrong("The minimum is over the ratios. It must be over the products: for A < 0 the order turns round.")
def minimum_of_ratios(log_ratio: Tensor, advantage: Tensor, *, clip: float) -> Tensor:
    """min(r, clip(r)) A."""
    r = log_ratio.exp()
    return torch.minimum(r, r.clamp(1 - clip, 1 + clip)) * advantage


@wrong("You clip from above only: a bad action below 1 − ε is pushed down for ever.")
def clipped_above(log_ratio: Tensor, advantage: Tensor, *, clip: float) -> Tensor:
    """min(r A, min(r, 1 + ε) A)."""
    r = log_ratio.exp()
    return torch.minimum(r * advantage, r.clamp(max=1 + clip) * advantage)


@wrong("You clip from below only: a good action above 1 + ε is pushed up for ever.")
def clipped_below(log_ratio: Tensor, advantage: Tensor, *, clip: float) -> Tensor:
    """min(r A, max(r, 1 − ε) A)."""
    r = log_ratio.exp()
    return torch.minimum(r * advantage, r.clamp(min=1 - clip) * advantage)


@wrong("You clip the log-ratio to ±ε. The band is on the ratio: 1 − ε to 1 + ε.")
def band_in_logs(log_ratio: Tensor, advantage: Tensor, *, clip: float) -> Tensor:
    """e^{±ε}."""
    clipped = log_ratio.clamp(-clip, clip).exp()
    return torch.minimum(log_ratio.exp() * advantage, clipped * advantage)


@wrong("exp is missing: the difference of log-probabilities is not yet a ratio.")
def no_exponential(log_ratio: Tensor, advantage: Tensor, *, clip: float) -> Tensor:
    """log r for r."""
    return torch.minimum(log_ratio * advantage, log_ratio.clamp(1 - clip, 1 + clip) * advantage)


@wrong("The sign: this is to be maximised; the loss gets its minus later, once.")
def sign(log_ratio: Tensor, advantage: Tensor, *, clip: float) -> Tensor:
    """Loss for objective."""
    return -clipped_surrogate(log_ratio, advantage, clip=clip)


@wrong("You average. One term a step is asked for; the mean comes later, under the mask.")
def averaged(log_ratio: Tensor, advantage: Tensor, *, clip: float) -> Tensor:
    """Mean."""
    return clipped_surrogate(log_ratio, advantage, clip=clip).mean()


@wrong("The values are right, but no gradient reaches the policy: something was detached on the way.")
def detached(log_ratio: Tensor, advantage: Tensor, *, clip: float) -> Tensor:
    """No graph."""
    return clipped_surrogate(log_ratio.detach(), advantage, clip=clip)


@wrong("You clip at 0.2 whatever clip says: use the argument.")
def typed_in(log_ratio: Tensor, advantage: Tensor, *, clip: float) -> Tensor:
    """ε = 0.2."""
    return clipped_surrogate(log_ratio, advantage, clip=0.2)


def surrogate_cases(seed: int) -> Sequence[Case]:
    """Ratios left of, in and right of the band, each with an advantage of either sign; another ε."""
    toys = Toys("clipped_surrogate", seed)
    places = torch.tensor([[-0.6, 0.05, 0.6], [-0.6, 0.05, 0.6]], dtype=torch.float64)
    signs = torch.tensor([[1.0], [-1.0]], dtype=torch.float64)
    first = places + toys.normal(2, 3, scale=0.01), signs * toys.away(2, 3).abs()
    second = 1.5 * places + toys.normal(2, 3, scale=0.01), signs * toys.away(2, 3).abs()
    return tuple(
        Case(f"ε = {clip}", {"log_ratio": x, "advantage": a}, {"clip": clip})
        for (x, a), clip in ((first, 0.2), (second, 0.4))
    )


CLIPPED_SURROGATE = Exercise(
    name="clipped_surrogate",
    notebook="04_clipping",
    minutes=10,
    lines=3,
    task="Return min(r A, clip(r, 1 − ε, 1 + ε) A) for every step, from the log-ratio. Shape (B, T): do not average.",
    answer="""\
def clipped_surrogate(log_ratio, advantage, *, clip):
    r = log_ratio.exp()
    bounded = r.clamp(1 - clip, 1 + clip)
    return torch.minimum(r * advantage, bounded * advantage)
""",
    reference=clipped_surrogate,
    cases=surrogate_cases,
    gradient_of=("log_ratio",),
    hints=(
        "The band is around ratio 1, so first turn the log-ratio into a ratio.",
        "There are two products, r A and clip(r) A. Which one is the pessimistic one?",
        "torch.minimum compares two tensors entry by entry.",
    ),
    mutants=tuple(wrong),
)

# --- clip fraction ---------------------------------------------------------------------------------------------------

share = Wrong()


@share("You count padding as well. A ratio counts only where the mask is True.")
def mask_dropped(log_ratio: Tensor, mask: Tensor, *, clip: float) -> Tensor:
    """Over everything."""
    return clip_fraction(log_ratio, clip=clip)


@share("You count what lies inside the band.")
def inside(log_ratio: Tensor, mask: Tensor, *, clip: float) -> Tensor:
    """One minus it."""
    return 1 - clip_fraction(log_ratio, mask, clip=clip)


@share("You count only above 1 + ε. Below 1 − ε is outside as well.")
def above_only(log_ratio: Tensor, mask: Tensor, *, clip: float) -> Tensor:
    """One side."""
    return masked_mean((log_ratio.exp() > 1 + clip).double(), mask)


@share("You compare the log-ratio with ±ε. The band is on the ratio itself.")
def in_logs(log_ratio: Tensor, mask: Tensor, *, clip: float) -> Tensor:
    """|log r| > ε."""
    return masked_mean((log_ratio.abs() > clip).double(), mask)


@share("You compare the log-ratio with the band around 1: exp is missing.")
def no_exponential_here(log_ratio: Tensor, mask: Tensor, *, clip: float) -> Tensor:
    """|log r − 1| > ε."""
    return masked_mean(((log_ratio - 1).abs() > clip).double(), mask)


@share("That is a count. A fraction is divided by the number of steps that count.")
def counted(log_ratio: Tensor, mask: Tensor, *, clip: float) -> Tensor:
    """Sum."""
    return clip_fraction(log_ratio, mask, clip=clip) * mask.sum()


@share("You divide by all steps, padding included, so short answers seem calmer than they are.")
def divided_by_all(log_ratio: Tensor, mask: Tensor, *, clip: float) -> Tensor:
    """Masked count over all."""
    return clip_fraction(log_ratio, mask, clip=clip) * mask.sum() / mask.numel()


@share("That is how far the ratios lie outside, on average. A fraction counts how many do.")
def distance(log_ratio: Tensor, mask: Tensor, *, clip: float) -> Tensor:
    """Mean excess."""
    return masked_mean(((log_ratio.exp() - 1).abs() - clip).clamp(min=0), mask)


@share("You compare with 0.2 whatever clip says: use the argument.")
def typed_in_here(log_ratio: Tensor, mask: Tensor, *, clip: float) -> Tensor:
    """ε = 0.2."""
    return clip_fraction(log_ratio, mask, clip=0.2)


def fraction_cases(seed: int) -> Sequence[Case]:
    """A few ratios just outside of the band in one sense and inside in the other."""
    toys = Toys("clip_fraction", seed)
    places = torch.tensor([[0.19, -0.21, 0.5, 0.0, 0.9, 0.9], [0.05, -0.5, 0.7, 0.19, 0.3, -0.03]], dtype=torch.float64)
    x = places + toys.normal(2, 6).tanh() * 0.004
    return Case("ε = 0.2", {"log_ratio": x, "mask": MASK}, {"clip": 0.2}), Case(
        "ε = 0.5", {"log_ratio": 2 * x, "mask": MASK}, {"clip": 0.5})  # fmt: skip


CLIP_FRACTION = Exercise(
    name="clip_fraction",
    notebook="04_clipping",
    minutes=6,
    lines=2,
    task="Return the share of the steps that count whose ratio lies outside of 1 − ε to 1 + ε: one number.",
    answer="""\
def clip_fraction(log_ratio, mask, *, clip):
    r = log_ratio[mask].exp()
    return ((r < 1 - clip) | (r > 1 + clip)).double().mean()
""",
    reference=clip_fraction,
    parts=(log_band,),
    cases=fraction_cases,
    hints=(
        "Which steps count? Pick them first.",
        "Outside has two sides.",
        "The mean of a bool, as numbers, is a share.",
    ),
    mutants=tuple(share),
)
