"""Natural steps against dense linear algebra, line search, and learning-rate schedules at their corners."""

from __future__ import annotations

import math

import torch
from material import normal, same
from torch import Tensor

from ppo_lab.core import kl, schedules, trust_region
from ppo_lab.core.trust_region import (
    accept_step,
    categorical_fisher_product,
    conjugate_gradient,
    natural_step,
    next_delta,
)


def positive(d: int, seed: int = 0) -> Tensor:
    a = normal(d, d, seed=seed)
    return a @ a.T + torch.eye(d, dtype=torch.float64)


def test_conjugate_gradient_solves() -> None:
    for d in (1, 2, 5, 8):
        a, b = positive(d), normal(d, seed=1)
        for iters in (d, d + 1, 100):  # going on after convergence must not divide 0 by 0
            assert same(conjugate_gradient(lambda v, a=a: a @ v, b, iters=iters), torch.linalg.solve(a, b), atol=1e-9)


def test_the_kth_iterate_is_best_in_its_krylov_space() -> None:
    """Among b, Ab, … A^(k-1) b it minimises the error in A's norm: solve that small problem directly."""
    a, b = positive(6), normal(6, seed=1)
    basis = [b]
    for k in range(1, 6):
        v = torch.stack(basis, dim=-1)
        best = v @ torch.linalg.solve(v.T @ a @ v, v.T @ b)
        assert same(conjugate_gradient(lambda u: a @ u, b, iters=k), best, atol=1e-8), k
        basis.append(a @ basis[-1])


def test_conjugate_gradient_stops_where_it_must() -> None:
    zero = torch.zeros(3, dtype=torch.float64)
    assert torch.equal(conjugate_gradient(lambda v: 2 * v, zero, iters=5), zero)
    assert torch.equal(conjugate_gradient(lambda v: 2 * v, zero + 1, iters=0), zero)
    for flat in (0.0, -1.0):  # no curvature, or the wrong one: stay
        assert torch.equal(conjugate_gradient(lambda v, flat=flat: flat * v, zero + 1, iters=5), zero)
    calls = []
    conjugate_gradient(lambda v: calls.append(1) or 2 * v, zero + 1, iters=50)
    assert len(calls) <= 2


def test_conjugate_gradient_on_a_singular_matrix() -> None:
    """The Fisher matrix of a softmax has a null direction; rounding must not be blown up along it after convergence."""
    for dtype in (torch.float64, torch.float32):
        p = normal(6, dtype=dtype).softmax(-1)
        f = torch.diag(p) - p[:, None] * p
        g = f @ normal(6, seed=1, dtype=dtype)
        found = conjugate_gradient(lambda v, f=f: f @ v, g, iters=200)
        least = torch.linalg.pinv(f.double(), rtol=1e-5) @ g.double()
        # a rounding of g leaves its own, tiny part along the null direction
        assert same(found - found.mean(), least - least.mean(), atol=1e-9 if dtype == torch.float64 else 1e-4)
        assert found.mean().abs() < 1e-4


def test_the_fisher_product_is_the_hessian_of_the_kl() -> None:
    logits, v = normal(4, 5), normal(5, seed=1)

    def mean_kl(shift: Tensor) -> Tensor:
        return kl.categorical_kl(logits, logits + shift).mean()

    hessian = torch.autograd.functional.hessian(mean_kl, torch.zeros(5, dtype=torch.float64))
    assert same(categorical_fisher_product(logits, v), hessian @ v)
    assert same(categorical_fisher_product(logits, v, damping=0.3), hessian @ v + 0.3 * v)
    assert same(categorical_fisher_product(logits.reshape(2, 2, 5), v), hessian @ v)
    assert same(categorical_fisher_product(logits[0], torch.ones(5)), torch.zeros(5), atol=1e-7)  # v is float32


def test_the_natural_step_fills_the_trust_region() -> None:
    f, g = positive(5), normal(5, seed=1)
    step = natural_step(lambda v: f @ v, g, delta=0.01)
    assert same(step @ f @ step / 2, 0.01, atol=1e-9)
    x = torch.linalg.solve(f, g)
    assert same(step, math.sqrt(0.02 / (x @ g)) * x, atol=1e-9)
    damped = natural_step(lambda v: f @ v, g, delta=0.01, damping=0.5)
    x = torch.linalg.solve(f + 0.5 * torch.eye(5, dtype=torch.float64), g)
    assert same(damped, math.sqrt(0.02 / (x @ g)) * x, atol=1e-9) and damped @ f @ damped / 2 < 0.01
    assert not natural_step(lambda v: f @ v, 0 * g, delta=0.01).any()
    assert same(natural_step(lambda v: f @ v, g, delta=0.04), 2 * step, atol=1e-9)
    short = conjugate_gradient(lambda v: f @ v, g, iters=2)
    assert same(natural_step(lambda v: f @ v, g, delta=0.01, iters=2), math.sqrt(0.02 / (short @ g)) * short)


def test_the_line_search_takes_the_first_that_will_do() -> None:
    nan, inf = math.nan, math.inf
    assert accept_step([0.02, 0.01, 0.001], [1, 1, 1], delta=0.01) == 1
    assert accept_step([nan, -inf, inf, 0.001], [1, 1, 1, 1], delta=0.01) == 3
    assert accept_step([0.001, 0.001, 0.001], [0.0, -1, nan], delta=0.01) is None
    assert accept_step([0.001], [1e-12], delta=0.01) == 0 and accept_step([], [], delta=0.01) is None


def test_the_region_follows_what_was_kept() -> None:
    found = [next_delta(0.01, gained, 4.0) for gained in (3.01, 3.0, 1.0, 0.99, -8.0)]
    assert found == [0.02, 0.01, 0.01, 0.005, 0.005]
    assert next_delta(0.01, 1.0, 0.0) == next_delta(0.01, 1.0, -1.0) == 0.01  # nothing was promised
    assert next_delta(0.08, 1.0, 1.0) == 0.1 and next_delta(1.5e-4, 0.0, 1.0) == 1e-4
    assert next_delta(0.01, 1.0, 1.0, bounds=(0.0, 0.015)) == 0.015


def test_linear_anneal() -> None:
    assert [schedules.linear_anneal(s, total=4) for s in (0, 1, 2, 4, 9)] == [1, 0.75, 0.5, 0, 0]


def test_b22_a_schedule_counts_the_run() -> None:
    """B22: at step 2,500 of 10,000 the rate is 75 %, and 0 only at the end; it knows of no processes."""
    assert schedules.linear_anneal(2500, total=10_000) == 0.75 and schedules.linear_anneal(9999, total=10_000) > 0


def test_warmup_cosine() -> None:
    def rate(step: float, **more) -> float:
        return schedules.warmup_cosine(step, total=110, warmup=10, **more)

    assert [rate(s) for s in (0, 5, 10, 110, 500)] == [0, 0.5, 1, 0, 0] and math.isclose(rate(60), 0.5)
    assert math.isclose(rate(35), (1 + math.cos(math.pi / 4)) / 2)
    one_percent = {"start": 0.01, "floor": 0.01}
    assert [rate(s, **one_percent) for s in (0, 10, 110, 500)] == [0.01, 1, 0.01, 0.01]
    assert math.isclose(rate(5, **one_percent), 0.505) and math.isclose(rate(60, **one_percent), 0.505)
    nano = [rate(s, start=1 / 11) for s in range(10)]
    assert all(math.isclose(x, (s + 1) / 11) for s, x in enumerate(nano))
    assert [schedules.warmup_cosine(s, total=4, warmup=4, floor=0.1) for s in (3, 4, 5)] == [0.75, 0.1, 0.1]
    assert schedules.warmup_cosine(0, total=4, warmup=0) == 1


def test_periodic_restart() -> None:
    found = [schedules.periodic_restart(s, period=4) for s in (0, 1, 2, 3, 4, 6, 8)]
    wanted = [1, (1 + math.cos(math.pi / 4)) / 2, 0.5, (1 - math.cos(math.pi / 4)) / 2, 0.5, 0.25, 0.25]
    assert all(math.isclose(a, b) for a, b in zip(found, wanted, strict=True))
    assert schedules.periodic_restart(8, period=4, decay=1.0) == 1
    assert trust_region.upcast(torch.zeros(1, dtype=torch.bfloat16)).dtype == torch.float32
