"""Labels before a model has seen them: how often a rater errs, whether two agree, how lopsided and how hard pairs are.

A pair compares a first and a second answer. ``gap`` is by how much the labeller's own score of the first is higher, a
label is True where the first was preferred. All shapes (N,).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ppo_lab import seeding

from .pairs import Pair, prefers_first

EASY = (0.2, 0.6)  # gaps, in units of the labeller's score, below which a pair is hard, and above which it is easy
KAPPA = 0.7  # agreement that is asked for


def chance_right(gap: Tensor, *, noise: float) -> Tensor:
    r"""Probability :math:`\sigma(|gap| / noise)` that a noisy rater prefers the better answer; 1 without noise.

    >>> chance_right(torch.tensor([0.0, 0.3]), noise=0.3)
    tensor([0.5000, 0.7311])
    """
    return torch.sigmoid(gap.abs() / noise) if noise else torch.ones_like(gap)


def cohens_kappa(a: Tensor, b: Tensor) -> float:
    r"""Agreement of two raters beyond chance, :math:`\kappa = (p_o - p_e) / (1 - p_e)`.

    p_o is the share of equal labels, p_e what two raters with these shares of True would reach by chance. 1: always, 0:
    as by chance. NaN where both always say the same: then chance alone agrees.

    Source: Cohen 1960, A Coefficient of Agreement for Nominal Scales, eq. 1.

    >>> a = torch.tensor([True, True, False, False])
    >>> cohens_kappa(a, torch.tensor([True, False, False, False]))
    0.5
    """
    if a.shape != b.shape or a.dtype != torch.bool or b.dtype != torch.bool or not len(a):
        raise ValueError(
            f"kappa needs two bool labels a pair, got {tuple(a.shape)} {a.dtype} and {tuple(b.shape)} {b.dtype}; "
            "True where the first answer was preferred"
        )
    p, q = float(a.double().mean()), float(b.double().mean())
    observed, chance = float((a == b).double().mean()), p * q + (1 - p) * (1 - q)
    return (observed - chance) / (1 - chance) if chance < 1 else math.nan


def expected_kappa(gap: Tensor, *, noise: float) -> float:
    r"""κ of two raters of this noise on pairs in random order: :math:`2 E[p^2 + (1-p)^2] - 1`, p from `chance_right`.

    >>> round(expected_kappa(torch.tensor([0.3, 0.3]), noise=0.3), 4)
    0.2136
    """
    p = chance_right(gap.double(), noise=noise)
    return float(2 * (p.square() + (1 - p).square()).mean() - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelCheck:
    """What to know of labels before training on them.

    ``kappa``: of two raters. ``first``: share of pairs whose first answer was preferred. ``longer``: share whose longer
    answer was, of those that differ in length; far from ½, length predicts the label. ``hard``, ``middling``, ``easy``:
    shares of pairs by gap.
    """

    kappa: float
    first: float
    longer: float
    hard: float
    middling: float
    easy: float

    def faults(self) -> list[str]:
        """What is wrong with them, a sentence each; empty: nothing that shows here."""
        found = []
        if not self.kappa > KAPPA:
            found.append(f"raters agree too little: κ {self.kappa:.2f}, not above {KAPPA}")
        for name, share in (("first", self.first), ("longer", self.longer)):
            if not 0.4 <= share <= 0.6:
                found.append(f"the {name} answer wins {share:.0%} of the pairs, not about half")
        for name in ("hard", "middling", "easy"):
            if getattr(self, name) < 0.1:
                found.append(f"only {getattr(self, name):.0%} of the pairs are {name}")
        return found


def check_labels(gap: Tensor, a: Tensor, b: Tensor, lengths: Tensor, *, easy: tuple[float, float] = EASY) -> LabelCheck:
    """Judge the labels ``a`` beside those of a second rater.

    Args:
        gap: (N,), signed. a, b: (N,) bool. lengths: (N, 2) of the first and second answer, in any unit.
        easy: gaps below which a pair is hard and from which it is easy.
    """
    other = lengths[:, 0] != lengths[:, 1]
    longer = (a == (lengths[:, 0] > lengths[:, 1]))[other].double()
    size = gap.abs().double()
    return LabelCheck(
        kappa=cohens_kappa(a, b), first=float(a.double().mean()),
        longer=float(longer.mean()) if len(longer) else 0.5,
        hard=float((size < easy[0]).double().mean()),
        middling=float(((size >= easy[0]) & (size < easy[1])).double().mean()),
        easy=float((size >= easy[1]).double().mean()),
    )  # fmt: skip


def relabelled(pairs: Sequence[Pair], *, noise: float, seed: int) -> list[Pair]:
    """The same pairs under another rater, who is wrong with probability σ(−|gap| / noise).

    The draw of a pair hangs on ``seed`` and its place alone, so labels that are wrong at a little noise stay wrong at
    more of it, and the first pairs of a longer list are those of a shorter one.
    """
    gap = torch.tensor([abs(pair.gap) for pair in pairs], dtype=torch.float64)
    uniform = seeding.uniforms(seed, "relabelled", range(len(pairs)), 1)[:, 0]
    right = prefers_first(gap, noise=noise, uniform=uniform).tolist()
    return [pair if (pair.gap > 0) == keep else turned(pair) for pair, keep in zip(pairs, right, strict=True)]


def turned(pair: Pair) -> Pair:
    """The pair with its label turned round."""
    return replace(pair, chosen=pair.rejected, rejected=pair.chosen, gap=-pair.gap)


def in_random_order(pairs: Sequence[Pair], *, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """(gap, label, lengths in words) with either answer first by a coin: what a rater saw before choosing.

    Returns:
        gap (N,) float64; label (N,) bool, True where the first was preferred; lengths (N, 2).
    """
    coin = seeding.uniforms(seed, "order", range(len(pairs)), 1)[:, 0] < 0.5  # the chosen one is first
    gap = torch.tensor([pair.gap for pair in pairs], dtype=torch.float64)
    lengths = torch.tensor([[len(text.split()) for text in pair.texts] for pair in pairs])
    return torch.where(coin, gap, -gap), coin, torch.where(coin[:, None], lengths, lengths.flip(-1))
