"""What counts: masks, and statistics over the steps that count.

A mask is bool, True = counts, shaped like the data (or 1 on an axis it is constant along). It is built from lengths,
never from ``token == pad``. Masking *selects the inputs* before the arithmetic: where a NaN is multiplied by 0, or
masked only in the final sum, it still reaches the gradient. Of nothing, the sum, the mean and the variance are 0.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ppo_lab.core._checks import check_bool, check_choice, check_mask, check_range

REDUCTIONS = ("token_mean", "sequence_mean", "sequence_sum", "fixed_length")


def upcast(x: Tensor) -> Tensor:
    """Half precision is computed in float32, and so are integers and bools.

    >>> upcast(torch.tensor([True, False]))
    tensor([1., 0.])
    """
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


def select(x: Tensor, mask: Tensor | None) -> Tensor:
    """``x`` where the mask is True and 0 elsewhere; a NaN left out reaches neither value nor gradient.

    >>> select(torch.tensor([1.0, float("nan")]), torch.tensor([True, False]))
    tensor([1., 0.])
    """
    if mask is None:
        return x
    check_mask(mask, x)
    return x.masked_fill(~mask, 0)


def masked_sum(x: Tensor, mask: Tensor | None = None, *, dim: int | None = None, keepdim: bool = False) -> Tensor:
    r"""Sum of what counts, :math:`\sum_i m_i x_i`, over one axis or (``dim=None``) over everything.

    >>> masked_sum(torch.tensor([1.0, 2.0, 9.0]), torch.tensor([True, True, False]))
    tensor(3.)
    """
    return select(upcast(x), mask).sum(dim=dim, keepdim=keepdim)


def masked_count(x: Tensor, mask: Tensor | None = None, *, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """How many entries of ``x`` count, in the precision of ``x``.

    >>> masked_count(torch.zeros(2, 3), torch.tensor([[True], [False]]), dim=-1)
    tensor([3., 0.])
    """
    ones = torch.ones_like(upcast(x), requires_grad=False)
    return masked_sum(ones, mask, dim=dim, keepdim=keepdim)


def masked_mean(x: Tensor, mask: Tensor | None = None, *, dim: int | None = None, keepdim: bool = False) -> Tensor:
    r"""Mean of what counts, :math:`\sum_i m_i x_i / \sum_i m_i`; an empty row gives 0.

    >>> masked_mean(torch.tensor([[1.0, 3.0], [5.0, 7.0]]), torch.tensor([[True, True], [False, False]]), dim=-1)
    tensor([2., 0.])
    """
    count = masked_count(x, mask, dim=dim, keepdim=keepdim)
    return masked_sum(x, mask, dim=dim, keepdim=keepdim) / count.clamp(min=1)


def centered(x: Tensor, mask: Tensor | None = None, *, dim: int | None = None) -> Tensor:
    """``x`` minus its mean, 0 where the mask is False. Equal values give exactly 0.

    >>> centered(torch.tensor([1.0, 3.0]))
    tensor([-1.,  1.])
    """
    x = upcast(x)
    x = x - masked_mean(x, mask, dim=dim, keepdim=True)
    x = x - masked_mean(x, mask, dim=dim, keepdim=True)  # the first mean of equal values is off by a rounding
    return select(x, mask)


def masked_var(
    x: Tensor, mask: Tensor | None = None, *, dim: int | None = None, ddof: int = 0, keepdim: bool = False
) -> Tensor:
    r"""Variance of what counts, :math:`\sum_i m_i (x_i - \bar x)^2 / (N - \mathrm{ddof})`; 0 where N ≤ ddof.

    ``ddof=0`` describes these values; ``ddof=1`` estimates, without bias, the variance they were drawn from.

    >>> masked_var(torch.tensor([1.0, 3.0, 99.0]), torch.tensor([True, True, False]), ddof=1)
    tensor(2.)
    """
    check_range("ddof", ddof, 0, float("inf"), fix="use 0 (population) or 1 (sample)")
    freedom = masked_count(x, mask, dim=dim, keepdim=keepdim) - ddof
    square = masked_sum(centered(x, mask, dim=dim).square(), mask, dim=dim, keepdim=keepdim)
    return torch.where(freedom > 0, square / freedom.clamp(min=1), 0)


def length_mask(lengths: Tensor, *, steps: int) -> Tensor:
    """True on the first ``lengths`` of ``steps``: (B,) -> (B, T). The stop token belongs to the length.

    >>> length_mask(torch.tensor([2, 0]), steps=3)
    tensor([[ True,  True, False],
            [False, False, False]])
    """
    return torch.arange(steps, device=lengths.device) < lengths[..., None]


def last_step(mask: Tensor) -> Tensor:
    """True on the last valid step of each row, wherever the padding is; an empty row has none. (..., T) -> (..., T).

    >>> last_step(torch.tensor([[True, True, False], [False, False, False]]))
    tensor([[False,  True, False],
            [False, False, False]])
    """
    check_bool(mask=mask)
    still_to_come = mask.flip(-1).cumsum(-1).flip(-1)
    return mask & (still_to_come == 1)


def standardize(x: Tensor, mask: Tensor | None = None, *, eps: float = 1e-8, ddof: int = 0) -> Tensor:
    r"""Mean 0 and variance 1 over what counts, :math:`(x - \bar x) / \sqrt{\mathrm{var} + \epsilon}`; 0 elsewhere.

    The statistics are those of *all* of ``x``: pass the whole batch, not a rank's share. All 0 where N ≤ ddof or all
    values are equal. Raising ``eps`` shrinks small signals towards 0. Source: Schulman's baselines; Huang et al. 2022,
    37 Implementation Details of PPO, no. 7.

    >>> standardize(torch.tensor([1.0, 2.0, 3.0, 0.0]), torch.tensor([True, True, True, False]))
    tensor([-1.2247,  0.0000,  1.2247,  0.0000])
    """
    check_range("eps", eps, 0, float("inf"), fix="use a small positive number such as 1e-8")
    spread = masked_var(x, mask, ddof=ddof) + eps
    spread = torch.where(spread > 0, spread, 1)  # equal values: the numerator is 0 already
    enough = masked_count(x, mask) > ddof
    return torch.where(enough, centered(x, mask) / spread.sqrt(), 0)


def rescale(x: Tensor, mask: Tensor | None = None, *, eps: float = 1e-8, ddof: int = 0) -> Tensor:
    r"""Variance 1 and the mean kept, :math:`(x - \bar x) / \sqrt{\mathrm{var} + \epsilon} + \bar x`; 0 elsewhere.

    Meant for rewards, whose zero point matters; advantages want `standardize`. All 0 where N ≤ ddof.

    >>> rescale(torch.tensor([1.0, 2.0, 3.0]))
    tensor([0.7753, 2.0000, 3.2247])
    """
    enough = masked_count(x, mask) > ddof
    mean = torch.where(enough, masked_mean(x, mask), 0)
    return select(standardize(x, mask, eps=eps, ddof=ddof) + mean, mask)


def step_weights(
    mask: Tensor, reduction: str = "token_mean", *, length: float | None = None, dtype: torch.dtype | None = None
) -> Tensor:
    r"""Weight of each step in the loss, so that every reduction is one visible line, ``-(terms * weight).sum()``.

    Make it once from the *whole* minibatch (all micro-batches, all ranks) and slice it: then the sum over
    micro-batches and ranks is exact whatever the reduction, which a mean of means is not.

    ================  ==============================  =======================================================
    reduction         weight of a valid step          a long answer
    ================  ==============================  =======================================================
    token_mean        1 / N                           counts for more, its tokens like all others
    sequence_mean     1 / (rows · tokens of the row)  counts as much as a short one, its tokens for less
    sequence_sum      1 / rows                        counts for more, the loss grows with length
    fixed_length      1 / (B · ``length``)            counts for more, the loss does not depend on other rows
    ================  ==============================  =======================================================

    ``rows`` are the rows that have a valid step; B is all rows. Sources: token_mean, PPO in TRL and DAPO (Yu et al.
    2025); sequence_mean, GRPO (Shao et al. 2024, eq. 3); fixed_length, Dr. GRPO (Liu et al. 2025).

    Args:
        mask: (B, T) bool.
        reduction: one of the four above.
        length: the constant of ``fixed_length``, such as the response cap; for that reduction only.
        dtype: of the weights; torch's default if left out.

    >>> step_weights(torch.tensor([[True, False], [True, True]]), "sequence_mean")
    tensor([[0.5000, 0.0000],
            [0.2500, 0.2500]])
    """
    check_bool(mask=mask)
    check_choice("reduction", reduction, REDUCTIONS)
    fixed = reduction == "fixed_length"
    if fixed != (length is not None) or (length is not None and not length > 0):
        raise ValueError(
            f"length must be > 0 for reduction fixed_length and None for the others, got {length} for {reduction}; "
            "pass the response cap, or choose another reduction"
        )
    one = mask.to(dtype or torch.get_default_dtype())
    tokens = one.sum(-1, keepdim=True).clamp(min=1)
    rows = mask.any(-1).sum().clamp(min=1)
    if reduction == "token_mean":
        return one / one.sum().clamp(min=1)
    if reduction == "sequence_mean":
        return one / tokens / rows
    if length is not None:
        return one / (length * mask.shape[:-1].numel())
    return one / rows
