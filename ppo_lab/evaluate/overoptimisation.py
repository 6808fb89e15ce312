r"""The form of Gao et al. 2023 for gold under pressure on a proxy, fitted by least squares.

With :math:`d = \sqrt{KL(\pi\|\pi_{ref})}` in √nats, gold less the untouched policy's is supposed to be

.. math:: d\,(\alpha - \beta d) \quad\text{(best-of-n)} \qquad d\,(\alpha - \beta \log d) \quad\text{(RL)}.

Both are linear in α and β, so the fit is exact and needs no start. α: what the first step buys; β: how soon the proxy
is used up. (This β is not the price of the KL.) It is a hypothesis about large models: ``explained`` says how far it
holds here. Source: Gao, Schulman & Hilton 2023, eq. 1 and 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

Form = Literal["best-of-n", "rl"]


def gao_curve(d: Sequence[float], *, alpha: float, beta: float, form: Form) -> list[float]:
    """Gain at each distance d > 0 (√nats), in the unit of α times √nats.

    >>> gao_curve([1.0, 2.0], alpha=3.0, beta=1.0, form="best-of-n")
    [2.0, 2.0]
    """
    x, bend = _terms(d, form)
    return [float(y) for y in alpha * x - beta * bend]


class GaoFit(NamedTuple):
    """α, β, the share of the gains' variation about zero that the form explains, and where gold peaks (√nats)."""

    alpha: float
    beta: float
    explained: float  # 1 - Σ residual² / Σ gain²: no worse than 0, since α = β = 0 is allowed
    peak: float  # inf where gold never turns down


def gao_fit(d: Sequence[float], gain: Sequence[float], *, form: Form) -> GaoFit:
    """Least squares for α and β; at least three different distances.

    Args:
        d: √KL of each point, > 0.
        gain: gold less the untouched policy's, at each.
        form: ``best-of-n`` or ``rl``.

    Raises:
        ValueError: unequal lengths, too few points, a distance of 0.

    >>> found = gao_fit([1.0, 2.0, 3.0], [2.0, 2.0, 0.0], form="best-of-n")
    >>> round(found.alpha, 6), round(found.beta, 6), round(found.peak, 6)
    (3.0, 1.0, 1.5)
    """
    x, bend = _terms(d, form)
    y = np.asarray(gain, dtype=np.float64)
    if y.shape != x.shape or len({*x.tolist()}) < 3:
        raise ValueError(f"gao_fit needs a gain for each of at least three distances, got {len(x)} and {len(y)}")
    (alpha, minus), *_ = np.linalg.lstsq(np.stack([x, bend], axis=-1), y, rcond=None)
    beta, left = -float(minus), y - alpha * x - minus * bend
    total = float((y**2).sum())
    peak = np.inf
    if beta > 0:
        with np.errstate(over="ignore"):  # beyond all numbers is beyond all runs
            peak = alpha / (2 * beta) if form == "best-of-n" else float(np.exp(alpha / beta - 1))
    return GaoFit(float(alpha), beta, 1 - float((left**2).sum()) / total if total else 1.0, max(0.0, float(peak)))


def _terms(d: Sequence[float], form: Form) -> tuple[np.ndarray, np.ndarray]:
    """What α and β multiply."""
    x = np.asarray(d, dtype=np.float64)
    if x.ndim != 1 or not (x > 0).all() or not np.isfinite(x).all():
        raise ValueError(f"distances must be positive numbers, in √nats, got {list(d)}; leave out the untouched policy")
    if form not in ("best-of-n", "rl"):
        raise ValueError(f"form must be best-of-n or rl, got {form!r}")
    return x, x**2 if form == "best-of-n" else x * np.log(x)
