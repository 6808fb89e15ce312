"""Masked statistics against plain ones on what is left, and weights that survive any split of the batch."""

from __future__ import annotations

import math

import torch
from material import MASK, gradient, normal, same
from torch import Tensor

from ppo_lab.core import masking
from ppo_lab.core.masking import masked_mean, masked_sum, masked_var, standardize, step_weights

X = normal(6, 5)
REDUCTIONS = (("token_mean", None), ("sequence_mean", None), ("sequence_sum", None), ("fixed_length", 7))


def test_statistics_are_those_of_what_is_left() -> None:
    left = X[MASK]
    assert same(masked_sum(X, MASK), left.sum()) and same(masked_mean(X, MASK), left.mean())
    for ddof in (0, 1, 2):
        assert same(masked_var(X, MASK, ddof=ddof), left.var(correction=ddof))
    for row in (0, 1, 2, 3):
        left = X[row, MASK[row]]
        assert same(masked_sum(X, MASK, dim=-1)[row], left.sum())
        assert same(masked_mean(X, MASK, dim=1)[row], left.mean())
        assert same(masked_var(X, MASK, dim=-1, ddof=1)[row], left.var())
    assert masking.masked_count(X, MASK, dim=-1).tolist() == [3, 3, 3, 5, 0, 1]
    assert masked_mean(X, MASK, dim=-1)[4] == 0 and masked_var(X, MASK, dim=-1, ddof=1)[5] == 0
    assert masked_sum(X, MASK, dim=-1, keepdim=True).shape == (6, 1)


def test_the_mean_of_flags_is_a_share() -> None:
    flags, mask = torch.tensor([True, False, True, False]), torch.tensor([True, True, True, False])
    assert masked_mean(flags, mask) == 2 / torch.tensor(3.0)


def test_equal_values_vary_by_exactly_nothing() -> None:
    """Although the rounded mean of three 0.1s is not 0.1."""
    for dtype in (torch.float64, torch.float32):
        for value in (0.1, 1 / 3, 1e5 + 0.1):
            x = torch.full((7,), value, dtype=dtype)
            assert masked_var(x, ddof=1) == 0 and not masking.centered(x).any()
            assert not standardize(x, eps=0.0).any()
            assert torch.allclose(masking.rescale(x, eps=0.0), x, rtol=2 * torch.finfo(dtype).eps, atol=0)


def test_variance_keeps_its_digits_far_from_0() -> None:
    assert same(masked_var(X[MASK] + 1e6), X[MASK].var(correction=0), atol=1e-9)  # 1e6 leaves ten digits of x


def test_standardize_gives_mean_0_and_variance_1() -> None:
    for ddof in (0, 1):
        z = standardize(3 + 2 * X, MASK, ddof=ddof, eps=0.0)
        assert same(masked_mean(z, MASK), 0) and same(masked_var(z, MASK, ddof=ddof), 1)
        assert same(z, standardize(X, MASK, ddof=ddof, eps=0.0))
    kept = masking.rescale(3 + 2 * X, MASK, eps=0.0)
    assert same(masked_mean(kept, MASK), masked_mean(3 + 2 * X, MASK)) and same(masked_var(kept, MASK), 1)


def test_eps_is_inside_the_root() -> None:
    x = torch.tensor([-1.0, 1.0], dtype=torch.float64)
    assert same(standardize(x, eps=3.0), x / 2) and same(masking.rescale(x + 5, eps=3.0), x / 2 + 5)


def test_too_few_to_vary_give_0() -> None:
    one = torch.tensor([True, False])
    x = torch.tensor([5.0, 9.0], dtype=torch.float64)
    assert standardize(x, one).tolist() == [0, 0] == standardize(x, one, ddof=1).tolist()
    assert masking.rescale(x, one).tolist() == [5, 0] and masking.rescale(x, one, ddof=1).tolist() == [0, 0]
    assert masked_var(x, ddof=2) == 0 == masked_var(x, one, ddof=1)
    assert standardize(x, ddof=2).tolist() == [0, 0] == masking.rescale(x, ddof=2).tolist()


def test_lengths_become_masks_and_last_steps() -> None:
    mask = masking.length_mask(torch.tensor([2, 0, 4]), steps=4)
    assert mask.tolist() == [[True, True, False, False], [False] * 4, [True] * 4]
    assert masking.last_step(mask).nonzero().tolist() == [[0, 1], [2, 3]]
    assert masking.last_step(MASK).nonzero().tolist() == [[0, 4], [1, 3], [2, 2], [3, 4], [5, 1]]


def test_weights_of_each_reduction() -> None:
    terms = masking.select(X, MASK)
    rows = [terms[r, MASK[r]] for r in (0, 1, 2, 3, 5)]  # row 4 is empty
    wanted = {
        "token_mean": sum(r.sum() for r in rows) / 15,
        "sequence_mean": sum(r.mean() for r in rows) / 5,
        "sequence_sum": sum(r.sum() for r in rows) / 5,
        "fixed_length": sum(r.sum() for r in rows) / (6 * 7),
    }
    for name, length in REDUCTIONS:
        weight = step_weights(MASK, name, length=length, dtype=torch.float64)
        assert same((X * weight).sum(), wanted[name]) and not weight[~MASK].any(), name
    assert step_weights(MASK).dtype == torch.float32
    assert same(step_weights(MASK[0], dtype=torch.float64), MASK[0] / torch.tensor(3.0, dtype=torch.float64))


def test_empty_rows_weigh_nothing() -> None:
    for name in ("token_mean", "sequence_mean", "sequence_sum"):
        full = MASK[MASK.any(-1)]
        assert torch.equal(step_weights(MASK, name)[MASK.any(-1)], step_weights(full, name)), name


def test_micro_batches_and_ranks_add_up() -> None:
    """Weights of the whole, sliced: any split gives the same loss and the same gradient."""
    for name, length in REDUCTIONS:
        weight = step_weights(MASK, name, length=length, dtype=torch.float64)
        whole = X.clone().requires_grad_()
        (wanted,) = gradient((whole.exp() * weight).sum(), whole)
        for cuts in ([2, 4], [1, 5], [1, 1, 1, 1, 1, 1]):
            split = X.clone().requires_grad_()
            parts = [(x.exp() * w).sum() for x, w in zip(split.split(cuts), weight.split(cuts), strict=True)]
            for part in parts:
                part.backward()
            assert same(sum(parts), (whole.exp() * weight).sum()) and same(split.grad, wanted), (name, cuts)


def test_b10_padding_does_not_enter_the_whitening() -> None:
    """B10: [1, 2, 3] and three pads: ±1.2247 (population) or ±1 (sample), whatever the pads hold."""
    for pad in (0.0, 1e6, math.nan):
        x = torch.tensor([1.0, 2, 3, pad, pad, pad], dtype=torch.float64)
        mask = masking.length_mask(torch.tensor(3), steps=6)
        root = math.sqrt(1.5)
        assert same(standardize(x, mask, eps=0.0), torch.tensor([-root, 0, root, 0, 0, 0], dtype=torch.float64))
        assert same(standardize(x, mask, eps=0.0, ddof=1), torch.tensor([-1.0, 0, 1, 0, 0, 0], dtype=torch.float64))


def test_b10_changing_only_pads_changes_no_loss() -> None:
    """B10, second thread: advantages [1, 1, 0, 0] and [1, 1, 10, 10], the first two valid: loss -1 for both."""
    mask = torch.tensor([[True, True, False, False]])
    for pads in (0.0, 10.0):
        advantage = torch.tensor([[1.0, 1.0, pads, pads]])
        assert masked_mean(advantage, mask) == 1 and -(advantage * step_weights(mask)).sum() == -1


def test_b21_accumulation_is_not_a_mean_of_means() -> None:
    """B21: 2 tokens of loss 4 and 8 of loss 1 are 1.6, not 2.5, in one batch or ten."""
    error = torch.tensor([4.0] * 2 + [1.0] * 8, dtype=torch.float64)[None]
    weight = step_weights(torch.ones(1, 10, dtype=torch.bool), dtype=torch.float64)
    for cuts in ([10], [2, 8], [1] * 10):
        x = torch.ones(1, 10, dtype=torch.float64, requires_grad=True)
        shares: list[Tensor] = [(w * e * y).sum() for w, e, y in
                                zip(weight.split(cuts, -1), error.split(cuts, -1), x.split(cuts, -1), strict=True)]
        sum(shares).backward()
        assert same(sum(shares), 1.6) and same(x.grad, error / 10), cuts
