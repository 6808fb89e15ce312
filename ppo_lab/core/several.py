r"""Several objectives at once: from scores (N, K), one column an objective and all to be maximised, to one number.

===================  =================================================================================================
`weighted_sum`       a straight trade: reaches only points on the convex hull of what can be had
`chebyshev`          the worst objective counts, from a reference point: reaches every point that is not dominated
`lexicographic`      one objective first: no amount of the others buys a violation
`lagrangian`         the same as a price, which `next_multiplier` raises while the constraint is violated on average
`adapt_weights`      weights that follow what was reached
`pareto_front`       what no other point beats
===================  =================================================================================================

Scores of different units must be brought to one scale first, as ``reward.normalize`` does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ppo_lab.core._checks import check_choice, check_range

RULES = ("step", "exponential")


def weighted_sum(scores: Tensor, weights: Sequence[float] | Tensor) -> Tensor:
    r""":math:`\sum_k w_k f_k`, (N, K) -> (N,). Rising :math:`w_k`: f_k counts more against the others.

    >>> weighted_sum(torch.tensor([[1.0, 0.0, 0.5]]), [0.6, 0.3, 0.1])
    tensor([0.6500])
    """
    scores, w = _pair(scores, weights, "weights")
    return (scores * w).sum(-1)


def chebyshev(
    scores: Tensor, weights: Sequence[float] | Tensor, *, reference: Sequence[float] | Tensor, sum_weight: float = 1e-3
) -> Tensor:
    r"""The least of the weighted distances above a reference point, (N, K) -> (N,):

    .. math:: \min_k w_k (f_k - z_k) + \rho \sum_k w_k (f_k - z_k)

    To be maximised. Every point of the Pareto front is the maximum for some positive weights, convex or not; the small
    ρ keeps it from resting on a point that is equalled in its worst objective and beaten in another.

    Args:
        scores: (N, K).
        weights: K positive numbers. Higher :math:`w_k`: a gain in f_k is worth sooner what it costs.
        reference: z, K numbers: a point that every wanted point exceeds, such as the least acceptable values.
        sum_weight: ρ ≥ 0. Higher: nearer to a weighted sum, and the middle of a non-convex front is lost again.

    Source: Wierzbicki 1980, The use of reference objectives in multiobjective optimization; Steuer & Choo 1983.

    >>> points = torch.tensor([[1.0, 0.0], [0.4, 0.4], [0.0, 1.0]])
    >>> chebyshev(points, [1.0, 1.0], reference=[0.0, 0.0]).argmax().item()
    1
    """
    scores, w = _pair(scores, weights, "weights")
    if not bool((w > 0).all()):
        raise ValueError(f"weights must be positive, got {w.tolist()}; leave out an objective that is not to count")
    check_range("sum_weight", sum_weight, 0, math.inf, fix="1e-3 is usual")
    above = w * (scores - _pair(scores, reference, "reference")[1])
    return above.amin(-1) + sum_weight * above.sum(-1)


def lexicographic(
    scores: Tensor, weights: Sequence[float] | Tensor, *, first: int, least: float, floor: float
) -> Tensor:
    r"""One objective comes first, (N, K) -> (N,): below ``least`` only how far below counts.

    Where :math:`f_{first} \ge least` the weighted sum of the others, at least ``floor``; elsewhere ``floor`` less the
    violation. So no violation outranks an answer that keeps the constraint, whatever else it brings.

    Args:
        scores: (N, K).
        weights: K numbers; that of ``first`` is not used.
        first: which column is the constraint, as safety.
        least: what it must reach. Higher: stricter.
        floor: a sum that the others hardly ever fall below. Higher: a smaller step at the border, and what lies under
            it is no longer told apart.

    >>> lexicographic(torch.tensor([[9.0, 0.2], [1.0, 0.8], [2.0, 0.9]]), [1.0, 1.0], first=1, least=0.5, floor=0.0)
    tensor([-0.3000,  1.0000,  2.0000])
    """
    scores, w = _pair(scores, weights, "weights")
    check_range("first", first, 0, scores.shape[-1] - 1, fix="name a column")
    others = w.clone()
    others[first] = 0
    short = (least - scores[..., first]).clamp(min=0)
    return torch.where(short > 0, floor - short, (scores * others).sum(-1).clamp(min=floor))


def lagrangian(scores: Tensor, weights: Sequence[float] | Tensor, *, first: int, least: float, price: float) -> Tensor:
    r"""The constraint has a price: :math:`\sum_{k \ne first} w_k f_k + \lambda (f_{first} - least)`, (N, K) -> (N,).

    Args:
        price: λ ≥ 0, from `next_multiplier`. Higher: safer, and less of the rest. Others as in `lexicographic`.

    Source: Altman 1999, Constrained Markov Decision Processes; Tessler et al. 2019, Reward constrained policy
    optimization, eq. 5.

    >>> lagrangian(torch.tensor([[9.0, 0.25]]), [1.0, 1.0], first=1, least=0.5, price=4.0)
    tensor([8.])
    """
    scores, w = _pair(scores, weights, "weights")
    check_range("first", first, 0, scores.shape[-1] - 1, fix="name a column")
    check_range("price", price, 0, math.inf, fix="start at 0")
    others = w.clone()
    others[first] = price
    return (scores * others).sum(-1) - price * least


def next_multiplier(price: float, reached: float, *, least: float, rate: float) -> float:
    r"""Dual ascent, :math:`\lambda \leftarrow \max(0, \lambda + \eta\,(least - \bar f_{first}))`.

    Args:
        price: λ now.
        reached: mean of the constraint's objective in the last batch.
        least: what it must reach.
        rate: η. Higher: faster, and it swings.

    Source: Tessler et al. 2019, eq. 9.

    >>> next_multiplier(1.0, 0.25, least=0.5, rate=2.0), next_multiplier(0.1, 0.9, least=0.5, rate=2.0)
    (1.5, 0.0)
    """
    return max(0.0, price + rate * (least - reached))


def adapt_weights(
    weights: Sequence[float], reached: Sequence[float], target: Sequence[float], *, rule: str = "step",
    band: float = 0.1, up: float = 1.2, down: float = 0.8, alpha: float = 1.0,
) -> list[float]:  # fmt: skip
    r"""Weights that follow what was reached, then brought back to a sum of 1.

    ``step``: ×``up`` where an objective is more than ``band`` below its target, ×``down`` where more than that above.
    ``exponential``: :math:`w_k e^{\alpha (target_k - f_k)}`, smooth, and mirror descent on the targets' shortfalls.

    Args:
        weights: K positive numbers, as (0.6, 0.3, 0.1).
        reached, target: K numbers in the units of the scores.
        rule: "step" or "exponential".
        band: of ``step``. Higher: moves less often.
        up, down: factors of ``step``.
        alpha: of ``exponential``, per unit of score. Higher: faster.

    Source: rules of thumb from write-ups; the exponential one is Kivinen & Warmuth 1997's update.

    >>> [round(w, 3) for w in adapt_weights((0.6, 0.3, 0.1), (0.9, 0.5, 0.0), (0.5, 0.5, 0.5))]
    [0.533, 0.333, 0.133]
    """
    check_choice("rule", rule, RULES)
    if not len(weights) == len(reached) == len(target) or min(weights) <= 0:
        raise ValueError(f"weights, reached and target must be equally many and weights positive, got {list(weights)}, "
                         f"{list(reached)} and {list(target)}; give one of each an objective")  # fmt: skip
    gaps = [t - f for t, f in zip(target, reached, strict=True)]
    if rule == "step":
        moved = [w * (up if g > band else down if g < -band else 1.0) for w, g in zip(weights, gaps, strict=True)]
    else:
        moved = [w * math.exp(alpha * g) for w, g in zip(weights, gaps, strict=True)]
    return [w / sum(moved) for w in moved]


def pareto_front(points: Tensor) -> Tensor:
    """Which points no other beats, (N, K) -> (N,) bool: none is as good in all objectives and better in one.

    >>> pareto_front(torch.tensor([[1.0, 0.0], [0.4, 0.4], [0.0, 1.0], [0.3, 0.4]])).tolist()
    [True, True, True, False]
    """
    no_worse = (points[None] >= points[:, None]).all(-1)  # [i, j]: j is at least as good as i everywhere
    better = (points[None] > points[:, None]).any(-1)
    return ~(no_worse & better).any(-1)


def _pair(scores: Tensor, numbers: Sequence[float] | Tensor, name: str) -> tuple[Tensor, Tensor]:
    other = torch.as_tensor(numbers, dtype=scores.dtype, device=scores.device)
    if scores.ndim != 2 or other.shape != scores.shape[-1:]:
        raise ValueError(f"scores must be (N, K) and {name} K numbers, got {tuple(scores.shape)} and "
                         f"{tuple(other.shape)}; give one number an objective")  # fmt: skip
    return scores, other
