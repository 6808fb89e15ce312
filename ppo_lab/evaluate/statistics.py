"""Statistics for a handful of runs: is the difference real, how large is it, and how sure is the number.

Plain arrays in, plain floats out, in float64. With five seeds use these, not a normal interval: z = 1.96 in place of
t(4) = 2.78 and a variance divided by n make the interval a third too narrow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


class WelchT(NamedTuple):
    """Statistic, degrees of freedom, two-sided p-value."""

    t: float
    df: float
    p: float


def welch_t_test(a: ArrayLike, b: ArrayLike) -> WelchT:
    r"""Welch's test of equal means, :math:`t = (\bar a - \bar b) / \sqrt{s_a^2/n_a + s_b^2/n_b}`, two-sided.

    The variances may differ; the degrees of freedom are Welch–Satterthwaite's. Positive t: a is larger. Two samples
    that do not vary at all differ certainly (p = 0) or not at all (p = 1). Source: Welch 1947.

    >>> welch_t_test([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])
    WelchT(t=0.0, df=4.0, p=1.0)
    """
    from scipy.special import stdtr

    x, y = _sample("a", a, 2), _sample("b", b, 2)
    va, vb = _variance(x) / len(x), _variance(y) / len(y)
    gap = _mean(x) - _mean(y)
    if va + vb == 0:
        return WelchT(math.copysign(math.inf, gap) if gap else 0.0, len(x) + len(y) - 2.0, 0.0 if gap else 1.0)
    t = gap / math.sqrt(va + vb)
    share = va / (va + vb)
    df = 1 / (share**2 / (len(x) - 1) + (1 - share) ** 2 / (len(y) - 1))
    return WelchT(t, df, float(2 * stdtr(df, -abs(t))))


def cohens_d(a: ArrayLike, b: ArrayLike) -> float:
    r"""Effect size :math:`d = (\bar a - \bar b) / s`, s the pooled standard deviation with weights n - 1.

    How many standard deviations of single runs lie between the means: 0.2 is called small, 0.8 large. Unlike p it does
    not grow with the number of runs. Source: Cohen 1988.

    >>> round(cohens_d([1.0, 2.0, 3.0], [2.0, 3.0, 4.0]), 3)
    -1.0
    """
    x, y = _sample("a", a, 2), _sample("b", b, 2)
    pooled = ((len(x) - 1) * _variance(x) + (len(y) - 1) * _variance(y)) / (len(x) + len(y) - 2)
    gap = _mean(x) - _mean(y)
    if pooled == 0:
        return math.copysign(math.inf, gap) if gap else 0.0
    return gap / math.sqrt(pooled)


def hedges_g(a: ArrayLike, b: ArrayLike) -> float:
    r"""Cohen's d made nearly unbiased for few runs, :math:`d\,(1 - 3 / (4 (n_a + n_b) - 9))`. Source: Hedges 1981.

    >>> round(hedges_g([1.0, 2.0, 3.0], [2.0, 3.0, 4.0]), 3)
    -0.8
    """
    return cohens_d(a, b) * (1 - 3 / (4 * (np.asarray(a).size + np.asarray(b).size) - 9))


def bootstrap_statistics(x: ArrayLike, indices: ArrayLike) -> Floats:
    """Mean of each resample: ``x`` (n,) and ``indices`` (resamples, n) of int -> (resamples,).

    >>> bootstrap_statistics([1.0, 2.0, 4.0], [[0, 0, 0], [0, 1, 2]]).round(3).tolist()
    [1.0, 2.333]
    """
    return _sample("x", x, 1)[np.asarray(indices)].mean(axis=-1)


def percentile_interval(samples: ArrayLike, *, alpha: float) -> tuple[float, float]:
    """Interval from the alpha/2 to the 1 - alpha/2 quantile, interpolated linearly. Raising ``alpha`` narrows it.

    >>> percentile_interval([0.0, 1.0, 2.0, 3.0, 4.0], alpha=0.5)
    (1.0, 3.0)
    """
    if not 0 < alpha < 1:
        raise ValueError(f"alpha must be in (0, 1), got {alpha}; 0.05 gives a 95 % interval")
    low, high = np.quantile(_sample("samples", samples, 1), [alpha / 2, 1 - alpha / 2])
    return float(low), float(high)


def bootstrap_ci(x: ArrayLike, *, alpha: float = 0.05, resamples: int = 10_000, seed: int) -> tuple[float, float]:
    """Percentile bootstrap interval of the mean of ``x`` (n,); the same seed gives the same interval.

    With n below about ten it is too narrow, as resamples cannot leave the sample. Source: Efron & Tibshirani 1993, ch.
    13.

    >>> bootstrap_ci([3.0, 3.0, 3.0], alpha=0.05, resamples=100, seed=0)
    (3.0, 3.0)
    """
    sample = _sample("x", x, 1)
    if resamples < 1:
        raise ValueError(f"resamples must be ≥ 1, got {resamples}; 10000 is usual")
    indices = np.random.default_rng(seed).integers(len(sample), size=(resamples, len(sample)))
    return percentile_interval(bootstrap_statistics(sample, indices), alpha=alpha)


def _mean(x: Floats) -> float:
    """Mean; of equal values it is exactly that value, which their sum divided by n need not be."""
    return float(x[0] + (x - x[0]).mean())


def _variance(x: Floats) -> float:
    """Sample variance, divisor n - 1; of equal values it is exactly 0."""
    return float(np.square(x - _mean(x)).sum() / (len(x) - 1))


def _sample(name: str, x: ArrayLike | Sequence[float], least: int) -> Floats:
    """``x`` as float64 (n,) with at least ``least`` entries."""
    sample = np.asarray(x, dtype=np.float64)
    if sample.ndim != 1 or len(sample) < least:
        raise ValueError(f"{name} must be a list of at least {least} numbers, got shape {sample.shape}; add runs")
    return sample
