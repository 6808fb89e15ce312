"""Several objectives: what each rule can reach, orders that may not be broken, weights that follow."""

from __future__ import annotations

import math

import pytest
import torch

from ppo_lab.core.several import (
    adapt_weights,
    chebyshev,
    lagrangian,
    lexicographic,
    next_multiplier,
    pareto_front,
    weighted_sum,
)

F64 = torch.float64
BENT = torch.tensor([[1.0, 0.0], [0.8, 0.1], [0.4, 0.4], [0.1, 0.8], [0.0, 1.0], [0.3, 0.3]], dtype=F64)


def weights(n: int = 201) -> list[list[float]]:
    return [[w, 1 - w] for w in torch.linspace(0.0, 1.0, n, dtype=F64)[1:-1].tolist()]


def test_no_linear_weights_reach_the_middle_of_a_bent_front_and_chebyshev_reaches_all_of_it():
    linear = {int(weighted_sum(BENT, w).argmax()) for w in weights()}
    bent = {int(chebyshev(BENT, w, reference=[-0.01, -0.01]).argmax()) for w in weights()}
    assert linear == {0, 4} and bent == {0, 1, 2, 3, 4} == set(pareto_front(BENT).nonzero().flatten().tolist())


def test_chebyshev_by_hand_and_its_limits():
    scores = torch.tensor([[2.0, 3.0], [0.0, 9.0]], dtype=F64)
    found = chebyshev(scores, [1.0, 2.0], reference=[1.0, 1.0], sum_weight=0.1)
    assert found.tolist() == pytest.approx([1.0 + 0.1 * 5.0, -1.0 + 0.1 * 15.0], abs=1e-12)
    even = torch.tensor([[1.0, 1.0], [1.0, 5.0]], dtype=F64)
    assert chebyshev(even, [1.0, 1.0], reference=[0.0, 0.0]).argmax() == 1  # equal at the worst, better elsewhere
    flat = {int(chebyshev(BENT, w, reference=[0.0, 0.0], sum_weight=1e6).argmax()) for w in weights()}
    assert flat == {0, 4}  # a weighted sum again


def test_no_violation_outranks_an_answer_that_keeps_the_constraint():
    scores = torch.randn(200, 3, dtype=F64, generator=torch.Generator().manual_seed(0)) * 5
    found = lexicographic(scores, [0.5, 2.0, 7.0], first=2, least=0.3, floor=-99.0)
    keeps = scores[:, 2] >= 0.3
    torch.testing.assert_close(found[keeps], 0.5 * scores[keeps, 0] + 2 * scores[keeps, 1], rtol=0, atol=1e-12)
    assert found[~keeps].max() < found[keeps].min()
    order = scores[~keeps, 2].argsort()
    assert torch.equal(found[~keeps].argsort(), order)  # among violations only their size counts
    low = lexicographic(scores, [0.5, 2.0, 7.0], first=2, least=0.3, floor=1.0)
    assert low[keeps].min() == 1.0 > low[~keeps].max()


def test_the_price_settles_where_the_constraint_is_met():
    """Two answers, softmax choice: dual ascent finds the share of the safe one that is asked for."""
    scores, price = torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=F64), 0.0
    for _ in range(2000):
        probs = lagrangian(scores, [1.0, 0.0], first=1, least=0.7, price=price).softmax(-1)
        price = next_multiplier(price, float(probs @ scores[:, 1]), least=0.7, rate=0.5)
    assert float(probs[1]) == pytest.approx(0.7, abs=1e-6) and price == pytest.approx(1 + math.log(7 / 3), abs=1e-5)
    assert next_multiplier(0.0, 1.0, least=0.5, rate=1.0) == 0.0


def test_weights_follow_and_sum_to_one():
    moved = adapt_weights((0.6, 0.3, 0.1), (0.5, 0.45, 0.7), (0.7, 0.5, 0.5))
    total = 0.6 * 1.2 + 0.3 + 0.1 * 0.8
    assert moved == pytest.approx([0.72 / total, 0.3 / total, 0.08 / total], abs=1e-12)
    smooth = adapt_weights((0.5, 0.5), (0.0, 1.0), (0.5, 0.5), rule="exponential", alpha=2.0)
    assert smooth == pytest.approx([math.e / (math.e + 1 / math.e), 1 / math.e / (math.e + 1 / math.e)], abs=1e-12)
    assert adapt_weights((0.5, 0.5), (0.45, 0.55), (0.5, 0.5)) == pytest.approx([0.5, 0.5], abs=1e-12)


def test_the_front_by_brute_force():
    points = torch.randint(0, 6, (60, 3), generator=torch.Generator().manual_seed(1))
    slow = [not any(all(q >= p) and any(q > p) for q in points) for p in points]
    assert pareto_front(points).tolist() == slow and 1 < sum(slow) < 60


def test_what_is_refused():
    for wrong in (
        lambda: weighted_sum(BENT, [1.0]),
        lambda: weighted_sum(BENT[0], [1.0, 1.0]),
        lambda: chebyshev(BENT, [1.0, 0.0], reference=[0.0, 0.0]),
        lambda: chebyshev(BENT, [1.0, 1.0], reference=[0.0]),
        lambda: chebyshev(BENT, [1.0, 1.0], reference=[0.0, 0.0], sum_weight=-1.0),
        lambda: lexicographic(BENT, [1.0, 1.0], first=2, least=0.0, floor=0.0),
        lambda: lagrangian(BENT, [1.0, 1.0], first=0, least=0.0, price=-1.0),
        lambda: adapt_weights((0.5, 0.5), (0.0,), (0.0, 0.0)),
        lambda: adapt_weights((1.0, 0.0), (0.0, 0.0), (0.0, 0.0)),
        lambda: adapt_weights((0.5, 0.5), (0.0, 0.0), (0.0, 0.0), rule="linear"),
    ):
        with pytest.raises(ValueError, match="must be"):
            wrong()
