"""Ratios, objectives and the critic: limits, the table of where the gradient is exactly 0, and what overflows."""

from __future__ import annotations

import math

import torch
from material import MASK, gradient, normal, same
from torch import Tensor

from ppo_lab.core import importance, objectives, values
from ppo_lab.core.masking import masked_mean, masked_sum, select

INF = math.inf


def tensor(*x: float) -> Tensor:
    return torch.tensor(x, dtype=torch.float64)


def slope(terms, log_ratio: Tensor, *rest: Tensor, **knobs) -> tuple[Tensor, Tensor]:
    """Terms, and the derivative of their sum with respect to the log ratio."""
    leaf = log_ratio.clone().requires_grad_()
    out = terms(leaf, *rest, **knobs)
    return out.detach(), gradient(out.sum(), leaf)[0]


def test_at_ratio_1_the_gradient_is_reinforce() -> None:
    zero, advantage = torch.zeros(5, dtype=torch.float64), normal(5)
    for terms, knobs in ((objectives.surrogate, {}), (objectives.clipped_surrogate, {"clip": 0.2})):
        out, found = slope(terms, zero, advantage, **knobs)
        assert same(out, advantage) and same(found, advantage)
    assert same(slope(objectives.reinforce, normal(5, seed=1), advantage)[1], advantage)


def test_the_clip_is_the_minimum_of_the_paper() -> None:
    """Against eq. 7 as printed, on ratios between 0.05 and 20, with an asymmetric band and a dual clip."""
    d, a = 1.5 * normal(400), normal(400, seed=1)
    ratio = d.exp()
    for clip, (low, high) in ((0.2, (0.2, 0.2)), ((0.2, 0.28), (0.2, 0.28)), ((1.0, 5.0), (1.0, 5.0))):
        printed = torch.minimum(ratio * a, ratio.clamp(1 - low, 1 + high) * a)
        assert same(objectives.clipped_surrogate(d, a, clip=clip), printed)
        dual = torch.where(a < 0, torch.maximum(printed, 1.5 * a), printed)
        assert same(objectives.clipped_surrogate(d, a, clip=clip, dual_clip=1.5), dual)


def test_an_infinite_clip_is_the_surrogate() -> None:
    d, a = 3 * normal(50), normal(50, seed=1)
    for terms, rest in ((slope(objectives.clipped_surrogate, d, a, clip=clip), slope(objectives.surrogate, d, a))
                        for clip in (INF, (1.0, INF), (2.0, 1e9))):  # fmt: skip
        assert torch.equal(terms[0], rest[0]) and torch.equal(terms[1], rest[1])


def test_where_the_gradient_is_exactly_0() -> None:
    """Sign of the advantage × region of the ratio: silent above if good, below if bad, whole elsewhere."""
    d, a = tensor(1.5, 1.5, 0.5, 0.5, 1.1, 0.9).log(), tensor(2, -2, 2, -2, 2, -2)
    out, found = slope(objectives.clipped_surrogate, d, a, clip=0.2)
    assert same(out, tensor(2.4, -3, 1, -1.6, 2.2, -1.8)) and same(found, tensor(0, -3, 1, 0, 2.2, -1.8))
    assert found[0] == 0 and found[3] == 0
    assert objectives.clip_fraction(d, clip=0.2) == masked_mean(tensor(1, 1, 1, 1, 0, 0))
    assert objectives.active_clip_fraction(d, a, clip=0.2) == masked_mean(tensor(1, 0, 0, 1, 0, 0))


def test_a_clipped_gradient_is_0_even_where_the_ratio_overflows() -> None:
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        for d in (800.0, 1e6, INF):
            x, a = torch.tensor([d, d, -d, d], dtype=dtype), torch.tensor([1.0, -1.0, -1.0, 0.0], dtype=dtype)
            out, found = slope(objectives.clipped_surrogate, x, a, clip=0.2, dual_clip=3.0)
            assert not found.any()
            assert torch.allclose(out.double(), tensor(1.2, -3, -0.8, 0), atol=1e-6), (dtype, d)  # float32


def test_without_advantage_there_is_no_gradient() -> None:
    d, zero = tensor(800, -800, 0.5), torch.zeros(3, dtype=torch.float64)
    clipped = {"clip": INF}
    for terms, knobs in (
        (objectives.surrogate, {}), (objectives.clipped_surrogate, clipped), (objectives.reinforce, {})
    ):  # fmt: skip
        out, found = slope(terms, d, zero, **knobs)
        assert not out.any() and not found.any()
    assert objectives.reinforce(tensor(-INF), tensor(0)) == 0
    assert objectives.active_clip_fraction(d, zero, clip=0.2) == 0


def test_the_band_is_closed() -> None:
    """A ratio exactly on the edge is inside: not counted, and it still learns."""
    d, one = tensor(math.log1p(0.2), math.log1p(-0.2), 0), torch.ones(3, dtype=torch.float64)
    assert objectives.clip_fraction(d, clip=0.2) == 0
    assert objectives.active_clip_fraction(d, one, clip=0.2) == 0 == objectives.active_clip_fraction(d, -one, clip=0.2)
    assert objectives.clip_fraction(torch.zeros(2), clip=0.0) == 0
    assert slope(objectives.clipped_surrogate, d, one, clip=0.2)[1].all()
    assert objectives.clip_fraction(d, clip=(0.1, 0.3)) == masked_mean(tensor(0, 1, 0))


def test_the_penalty_is_subtracted() -> None:
    d, a, kl = normal(5), normal(5, seed=1), normal(5, seed=2).abs()
    assert same(objectives.kl_penalized(d, a, kl, beta=0.3), d.exp() * a - 0.3 * kl)
    assert same(objectives.kl_penalized(d, a, kl, beta=0.0), objectives.surrogate(d, a))


def test_advantages_of_rows_spread_over_their_steps() -> None:
    d, a = normal(3, 4), normal(3, 1, seed=1)
    assert same(objectives.clipped_surrogate(d, a, clip=0.2), objectives.clipped_surrogate(d, a.expand(3, 4), clip=0.2))
    assert same(objectives.surrogate(d, torch.tensor(2.0)), 2 * d.exp())


def test_ratios() -> None:
    d = importance.log_ratio(normal(6, 5), normal(6, 5, seed=1), MASK)
    assert same(d, select(normal(6, 5) - normal(6, 5, seed=1), MASK))
    assert same(importance.importance_weights(d), d.exp())
    row = importance.importance_weights(masked_sum(d, MASK, dim=-1))
    assert same(row, d.exp().prod(-1)) and row[4] == 1


def test_effective_sample_size() -> None:
    size, d = importance.effective_sample_size, normal(60)
    w = d.exp()
    assert same(size(d), w.sum() ** 2 / (w**2).sum()) and same(size(d + 1000), size(d), atol=1e-9)
    assert size(torch.full((9,), 700.0)) == 9 and size(tensor(2000, 0, -2000)) == 1
    assert same(size(normal(6, 5), MASK), size(normal(6, 5)[MASK]))
    assert same(size(normal(6, 5), MASK[:, :1]), size(normal(6, 5)[MASK[:, 0]].flatten()))


def test_the_clipped_value_error_is_the_maximum() -> None:
    new, old, target = normal(300), normal(300, seed=1), normal(300, seed=2)
    held = old + (new - old).clamp(-0.3, 0.3)
    printed = torch.maximum((new - target) ** 2, (held - target) ** 2) / 2
    assert same(values.clipped_value_error(new, old, target, clip=0.3), printed)
    assert same(values.clipped_value_error(new, old, target, clip=INF), values.value_error(new, target))
    assert same(values.value_error(new, target), (new - target) ** 2 / 2)


def test_values_inside_the_band_are_never_clipped() -> None:
    """Old + (new - old) is not new in floating point: it must not count as clipped."""
    for dtype in (torch.float64, torch.float32):
        old, new, target = (0.1 * normal(5000, seed=s, dtype=dtype).clamp(-1, 1) for s in range(3))
        assert values.value_clip_fraction(new, old, target, clip=0.2) == 0
        out, found = slope(values.clipped_value_error, new, old, target, clip=0.2)
        assert torch.equal(out, values.value_error(new, target)) and torch.equal(found, new - target)


def test_a_value_that_ran_ahead_gets_no_gradient() -> None:
    """Past the band towards the target: exactly 0. Past it the other way: the whole error. Tie: the whole error."""
    new, old, target = tensor(2, 2, -2, -2, 1), tensor(1, 1, -1, -1, 0), tensor(3, 0, -3, 0, 0.625)
    out, found = slope(values.clipped_value_error, new, old, target, clip=0.25)
    assert found.tolist() == [0, 2, 0, -2, 0.375] and out[4] == 0.375**2 / 2
    assert values.value_clip_fraction(new, old, target, clip=0.25) == masked_mean(tensor(1, 0, 1, 0, 0))
    assert slope(values.clipped_value_error, tensor(1), tensor(0), tensor(2), clip=0.0)[1] == 0
    mask = torch.tensor([True, True, False, True, False])
    assert values.value_clip_fraction(new, old, target, mask, clip=0.25) == masked_mean(tensor(1, 0, 0))


def test_explained_variance() -> None:
    ev, target = values.explained_variance, normal(50)
    assert ev(target + 7, target) == 1 and same(ev(torch.zeros(50, dtype=torch.float64), target), 0)
    assert same(ev(-target, target), -3) and same(ev(target / 2, target), 0.75)
    for constant in (0.1, 2.0, 1 / 3):
        assert ev(target, torch.full_like(target, constant)).isnan()
    assert same(ev(normal(6, 5), normal(6, 5, seed=1), MASK), ev(normal(6, 5)[MASK], normal(6, 5, seed=1)[MASK]))


def test_b42_the_mean_over_shards_is_over_tokens() -> None:
    """B42: 3 of 12 tokens clipped on one rank, 3 of 4 on the other: 6/16, not the mean of 0.25 and 0.75."""
    clipped, free = math.log(2.0), 0.0
    rows = torch.tensor([[clipped] * 3 + [free] * 9, [clipped] * 3 + [free] + [1e6] * 8])
    mask = torch.arange(12) < torch.tensor([[12], [4]])
    assert objectives.clip_fraction(rows, mask, clip=0.2) == 6 / 16
    assert objectives.active_clip_fraction(rows, torch.ones_like(rows), mask, clip=0.2) == 6 / 16
    shards = [objectives.clip_fraction(r, m, clip=0.2) * m.sum() for r, m in zip(rows, mask, strict=True)]
    assert sum(shards) / mask.sum() == 6 / 16
