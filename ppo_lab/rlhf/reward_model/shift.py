"""Is a reward model worse on answers of another policy, or are their pairs only closer? Compare at equal gaps."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

BINS = 40  # of the gold gap, from 0 to 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Matched:
    """Accuracy on the pairs of two policies: as they come, and at equal gold gaps."""

    before: float
    after: float
    matched_before: float
    matched_after: float
    pairs: int  # that could be matched

    @property
    def loss(self) -> float:
        """Share of the accuracy that is lost on the pairs as they come."""
        return 1 - self.after / self.before

    @property
    def matched_loss(self) -> float:
        """Share that is lost at equal gaps: what is left to blame on the shift itself."""
        return 1 - self.matched_after / self.matched_before


def compared(score: Tensor, gold: Tensor) -> tuple[Tensor, Tensor]:
    """Every pair of answers to one prompt that gold tells apart: its gap and whether the score orders it as gold does.

    Args:
        score, gold: (prompts, answers).

    Returns:
        gap (N,) above 0, right (N,) bool.

    >>> compared(torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[0.0, 0.5, 0.5]]))
    (tensor([0.5000, 0.5000]), tensor([True, True]))
    """
    if score.shape != gold.shape or score.dim() != 2:
        raise ValueError(f"score and gold must be (prompts, answers) alike, got {score.shape} and {gold.shape}")
    first, second = torch.triu_indices(score.shape[1], score.shape[1], 1)
    gap = (gold[:, first] - gold[:, second]).reshape(-1)
    difference = (score[:, first] - score[:, second]).reshape(-1)
    told = gap.abs() > 1e-9
    return gap[told].abs(), (gap * difference > 0)[told]


def matched(
    gap: Tensor, right: Tensor, other_gap: Tensor, other_right: Tensor, *, bins: int = BINS, widest: float = 2.0
) -> Matched:
    r"""Accuracies of two sets of pairs, plain and weighted to the same gaps.

    Within a bin of the gap both sets count as much as the smaller one has pairs there,
    :math:`w_k = \min(n_k, n'_k)`: accuracy is :math:`\sum w_k a_k / \sum w_k` for each. Nothing is drawn.

    Args:
        gap, right: (N,) of the first policy, from `compared`. other_gap, other_right: (M,) of the second.
        bins, widest: bins of equal width up to ``widest``; what is wider falls into the last.

    Raises:
        ValueError: no bin holds pairs of both.
    """

    def counts(x: Tensor, good: Tensor) -> tuple[Tensor, Tensor]:
        place = (x.double() / widest * bins).long().clamp(0, bins - 1)
        zero = torch.zeros(bins, dtype=torch.float64)
        return zero.index_add(0, place, torch.ones_like(x).double()), zero.index_add(0, place, good.double())

    n, good = counts(gap, right)
    m, other_good = counts(other_gap, other_right)
    weight = torch.minimum(n, m)
    total = float(weight.sum())
    if not total:
        raise ValueError("no gap occurs on both sides, so nothing can be matched; use fewer bins or more pairs")
    return Matched(
        before=float(right.double().mean()), after=float(other_right.double().mean()),
        matched_before=float((weight * good / n.clamp(min=1)).sum()) / total,
        matched_after=float((weight * other_good / m.clamp(min=1)).sum()) / total,
        pairs=int(total),
    )  # fmt: skip
