"""Statistics against scipy and by enumeration; pass@k against counting subsets."""

from __future__ import annotations

import itertools
import math

import numpy as np
from scipy import stats

from ppo_lab.evaluate.passk import mean_pass_at_k, pass_at_k
from ppo_lab.evaluate.statistics import (
    bootstrap_ci,
    bootstrap_statistics,
    cohens_d,
    hedges_g,
    percentile_interval,
    welch_t_test,
)

RNG = np.random.default_rng(0)
A, B = RNG.normal(1.0, 2.0, 5), RNG.normal(0.0, 1.0, 9)


def close(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-10)


def test_welch_is_scipys() -> None:
    found, wanted = welch_t_test(A, B), stats.ttest_ind(A, B, equal_var=False)
    assert close(found.t, wanted.statistic) and close(found.df, wanted.df) and close(found.p, wanted.pvalue)
    swapped = welch_t_test(B, A)
    assert close(swapped.t, -found.t) and close(swapped.p, found.p)


def test_samples_that_do_not_vary() -> None:
    assert welch_t_test([2.0, 2.0], [2.0, 2.0, 2.0]) == (0, 3, 1)
    assert welch_t_test([2.0, 2.0], [3.0, 3.0]) == (-math.inf, 2, 0)
    assert cohens_d([2.0, 2.0], [2.0, 2.0]) == 0 and cohens_d([3.0, 3.0], [2.0, 2.0]) == math.inf
    thirds = [0.1] * 3, [0.1] * 10  # their rounded means differ
    assert welch_t_test(*thirds) == (0, 11, 1) and cohens_d(*thirds) == 0


def test_effect_sizes() -> None:
    pooled = math.sqrt((4 * A.var(ddof=1) + 8 * B.var(ddof=1)) / 12)
    assert close(cohens_d(A, B), (A.mean() - B.mean()) / pooled)
    assert close(hedges_g(A, B), cohens_d(A, B) * (1 - 3 / (4 * 14 - 9)))
    equal = RNG.normal(size=(2, 7))
    assert close(cohens_d(*equal), stats.ttest_ind(*equal).statistic * math.sqrt(2 / 7))


def test_the_bootstrap_of_all_resamples() -> None:
    x = np.array([1.0, 2.0, 4.0])
    indices = list(itertools.product(range(3), repeat=3))
    means = bootstrap_statistics(x, indices)
    assert np.allclose(means, [sum(x[list(i)]) / 3 for i in indices]) and close(means.mean(), x.mean())
    low, high = percentile_interval(means, alpha=0.1)
    assert close(low, np.quantile(means, 0.05)) and close(high, np.quantile(means, 0.95))


def test_the_bootstrap_repeats_and_covers() -> None:
    x = RNG.normal(size=200)
    assert bootstrap_ci(x, seed=1) == bootstrap_ci(x, seed=1) != bootstrap_ci(x, seed=2)
    low, high = bootstrap_ci(x, alpha=0.05, seed=0)
    half = 1.96 * x.std() / math.sqrt(200)
    assert abs(low - (x.mean() - half)) < 0.1 * half and abs(high - (x.mean() + half)) < 0.1 * half  # 10000 resamples
    assert bootstrap_ci([0.0, 0.0, 0.0, 1.0], seed=0)[1] >= 0.75  # the last value is drawn as often as the others
    inner = bootstrap_ci(x, alpha=0.5, seed=0)
    assert low < inner[0] < x.mean() < inner[1] < high


def test_pass_at_k_counts_subsets() -> None:
    for n, c, k in itertools.product(range(1, 7), range(7), range(1, 7)):
        if c <= n and k <= n:
            subsets = list(itertools.combinations([1] * c + [0] * (n - c), k))
            assert close(pass_at_k(n, c, k=k), sum(map(any, subsets)) / len(subsets)), (n, c, k)
    assert pass_at_k(10_000, 1, k=1) == 1e-4 and pass_at_k(1000, 999, k=2) == 1
    assert close(mean_pass_at_k([5, 5], [2, 0], k=3), 0.45)
