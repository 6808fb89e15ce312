"""Best-of-n: the estimator against all subsets, the formula of its KL against enumeration; the fit of Gao et al."""

from __future__ import annotations

import math
from itertools import combinations

import pytest
import torch
from torch import Tensor

from ppo_lab.core.kl import categorical_kl
from ppo_lab.evaluate.best_of_n import best_of_n, best_of_n_kl, best_of_n_weights
from ppo_lab.evaluate.overoptimisation import gao_curve, gao_fit
from ppo_lab.exact.best_of_n import best_of_n_logp
from ppo_lab.exact.language import make_language


def by_subsets(score: Tensor, value: Tensor, n: int) -> float:
    """Mean over all n-subsets; tied winners are equally likely."""
    found = []
    for chosen in combinations(range(len(score)), n):
        best = max(float(score[i]) for i in chosen)
        winners = [float(value[i]) for i in chosen if float(score[i]) == best]
        found.append(sum(winners) / len(winners))
    return sum(found) / len(found)


@pytest.mark.parametrize("n", [1, 2, 3, 6, 7])
@pytest.mark.parametrize("score", [
    [0.3, -1.0, 2.0, 0.1, 5.0, -0.2, 0.7],
    [1.0, 1.0, 0.0, 2.0, 2.0, 2.0, -1.0],
    [4.0] * 7,
])  # fmt: skip
def test_the_estimator_is_the_mean_over_all_subsets(score: list[float], n: int) -> None:
    value = torch.tensor([3.0, -2.0, 0.5, 8.0, -1.0, 4.0, 0.25], dtype=torch.float64)
    given = torch.tensor(score, dtype=torch.float64)
    assert float(best_of_n(given, value, n=n)) == pytest.approx(by_subsets(given, value, n), abs=1e-12)


def test_prompts_are_rows_of_their_own() -> None:
    generator = torch.Generator().manual_seed(3)
    score = torch.randn(2, 3, 5, generator=generator).double().round(decimals=0)
    value = torch.randn(2, 3, 5, generator=generator).double()
    both = best_of_n(score, value, n=3)
    assert both.shape == (2, 3)
    rows = zip(score.flatten(0, 1), value.flatten(0, 1), strict=True)
    each = [float(best_of_n(s, v, n=3)) for s, v in rows]
    assert both.flatten().tolist() == pytest.approx(each, abs=1e-12)


def test_weights_are_a_distribution_that_leans_on_the_best() -> None:
    for size, n in ((1, 1), (5, 1), (128, 64), (128, 128)):
        weights = best_of_n_weights(size, n)
        assert float(weights.sum()) == pytest.approx(1.0, abs=1e-12) and bool((weights.diff() >= 0).all())
    assert best_of_n_weights(9, 9).tolist() == [0.0] * 8 + [1.0]


@pytest.mark.parametrize(("size", "n"), [(4, 5), (4, 0), (4, -1)])
def test_n_must_fit_the_pool(size: int, n: int) -> None:
    with pytest.raises(ValueError, match="n must lie between 1 and the 4"):
        best_of_n_weights(size, n)


def test_one_number_an_answer() -> None:
    with pytest.raises(ValueError, match="one number an answer"):
        best_of_n(torch.zeros(3), torch.zeros(4), n=1)


def drawn(logp: Tensor, score: Tensor, n: int) -> Tensor:
    """The distribution of the kept one, by going through all n-tuples of draws."""
    kept, p = torch.zeros_like(logp), logp.exp()
    for chosen in torch.cartesian_prod(*[torch.arange(len(logp))] * n).reshape(-1, n):
        best = score[chosen].max()
        winners = chosen[score[chosen] == best]
        kept.index_add_(0, winners, p[chosen].prod().expand(len(winners)) / len(winners))
    return kept


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_the_exact_distribution_counts_all_draws(n: int) -> None:
    logp = torch.tensor([0.1, 0.4, 0.2, 0.25, 0.05], dtype=torch.float64).log()
    score = torch.tensor([1.0, 0.0, 1.0, 3.0, -2.0], dtype=torch.float64)
    assert best_of_n_logp(logp, score, n=n).exp().tolist() == pytest.approx(drawn(logp, score, n).tolist(), abs=1e-12)


@pytest.mark.parametrize("n", [1, 2, 8, 64, 1024])
def test_the_formula_bounds_the_kl_on_an_exact_language(n: int) -> None:
    language = make_language(7)
    for score in (language.reward, language.reward.round(decimals=0)):  # all different, and three values only
        logp = best_of_n_logp(language.ref_logp, score, n=n)
        assert float(logp.exp().sum()) == pytest.approx(1.0, abs=1e-9)
        kl = float(categorical_kl(logp, language.ref_logp))
        assert -1e-12 <= kl <= best_of_n_kl(n) + 1e-12


def test_the_formula_is_met_where_nothing_repeats() -> None:
    """Many equally likely sequences with scores of their own: the gap closes as their number grows."""
    gaps = []
    for size in (10, 100, 1000, 10_000):
        logp = torch.full((size,), -math.log(size), dtype=torch.float64)
        found = categorical_kl(best_of_n_logp(logp, torch.arange(size).double(), n=8), logp)
        gaps.append(best_of_n_kl(8) - float(found))
    assert all(a > b > 0 for a, b in zip(gaps, gaps[1:], strict=False)) and gaps[-1] < 0.01


def test_the_pool_agrees_with_the_exact_expectation() -> None:
    """Unbiased: over 4,000 pools of 6 draws the mean is the exact one; four standard errors."""
    language = make_language(2)
    p = language.ref_logp.exp()
    generator = torch.Generator().manual_seed(0)
    draws = torch.multinomial(p, 4000 * 6, replacement=True, generator=generator).reshape(4000, 6)
    found = best_of_n(language.reward[draws], language.reward[draws], n=4)
    exact = float(best_of_n_logp(language.ref_logp, language.reward, n=4).exp() @ language.reward)
    assert abs(float(found.mean()) - exact) < 4 * float(found.std()) / math.sqrt(4000)


@pytest.mark.parametrize("form", ["best-of-n", "rl"])
def test_a_curve_of_the_form_is_found_again(form: str) -> None:
    d = [0.3, 0.8, 1.5, 2.0, 3.5]
    found = gao_fit(d, gao_curve(d, alpha=1.7, beta=0.6, form=form), form=form)  # type: ignore[arg-type]
    assert (found.alpha, found.beta, found.explained) == pytest.approx((1.7, 0.6, 1.0), abs=1e-9)
    at = [found.peak - 0.01, found.peak, found.peak + 0.01]
    low, top, high = gao_curve(at, alpha=1.7, beta=0.6, form=form)  # type: ignore[arg-type]
    assert top > low and top > high


def test_the_fit_can_fail() -> None:
    """Gold that falls at once and then rises is not of the form; one that only rises has no peak."""
    assert gao_fit([1.0, 2.0, 3.0, 4.0], [-1.0, 1.0, -1.0, 1.0], form="rl").explained < 0.2
    assert math.isinf(gao_fit([1.0, 2.0, 3.0], [1.0, 4.0, 9.0], form="best-of-n").peak)


@pytest.mark.parametrize(("d", "gain"), [([1.0, 1.0, 2.0], [1.0, 1.0, 2.0]), ([1.0, 2.0, 3.0], [1.0])])
def test_too_little_to_fit(d: list[float], gain: list[float]) -> None:
    with pytest.raises(ValueError, match="at least three"):
        gao_fit(d, gain, form="rl")


def test_a_distance_of_zero_is_left_out() -> None:
    with pytest.raises(ValueError, match="positive"):
        gao_fit([0.0, 1.0, 2.0], [0.0, 1.0, 2.0], form="rl")
