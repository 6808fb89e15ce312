"""The critic: how wrong its values are, how much of the returns they explain. One term a step, to be *minimised*."""

from __future__ import annotations

import torch
from torch import Tensor

from ppo_lab.core._checks import check_range, check_shapes
from ppo_lab.core.masking import masked_mean, masked_var, select, upcast


def value_error(value: Tensor, target: Tensor) -> Tensor:
    r"""Squared error :math:`\frac12 (V(s_t) - G_t)^2`, in reward² units; the ½ is inside. Shapes (..., T).

    >>> value_error(torch.tensor([1.0, 3.0]), torch.tensor([2.0, 1.0]))
    tensor([0.5000, 2.0000])
    """
    check_shapes(value=value, target=target)
    return (upcast(value) - upcast(target)).square() / 2


def clipped_value_error(value: Tensor, old_value: Tensor, target: Tensor, *, clip: float) -> Tensor:
    r"""Pessimistic error :math:`\frac12 \max((V - G)^2, (V_{clip} - G)^2)`, V_clip held within ± clip of the old value.

    A value that already moved further than ``clip`` towards its target gets a gradient of exactly 0 until the next
    rollout; one that moved away keeps its gradient. Raising ``clip`` frees the critic, 0 lets it only correct wrong
    moves. The band is in units of the return, so it must fit the reward's scale.

    Args:
        value, old_value, target: (..., T); ``old_value`` is the critic's at rollout.
        clip: half width of the band, ≥ 0.

    Source: Schulman's baselines ``ppo2``; Huang et al. 2022, 37 Implementation Details of PPO, no. 9.

    >>> old, target = torch.zeros(2), torch.tensor([2.0, -2.0])
    >>> clipped_value_error(torch.tensor([0.5, 0.5]), old, target, clip=0.2)
    tensor([1.6200, 3.1250])
    """
    free, bound = _errors(value, old_value, target, clip)
    return torch.where(bound > free, bound, free)


def value_clip_fraction(
    value: Tensor, old_value: Tensor, target: Tensor, mask: Tensor | None = None, *, clip: float
) -> Tensor:
    """Share of valid steps whose clipped error is strictly the larger one: they teach the critic nothing in this step.

    >>> old, target = torch.zeros(2), torch.tensor([2.0, -2.0])
    >>> value_clip_fraction(torch.tensor([0.5, 0.5]), old, target, clip=0.2)
    tensor(0.5000)
    """
    free, bound = _errors(value, old_value, target, clip)
    return masked_mean((bound > free).to(free.dtype), mask)


def explained_variance(value: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
    r"""Share of the returns' variance that the critic explains, :math:`1 - \mathrm{Var}(G - V) / \mathrm{Var}(G)`.

    1: perfect up to a constant. 0: no better than a constant. Negative: worse than a constant. NaN where the target
    does not vary, as there is nothing to explain.

    >>> explained_variance(torch.tensor([1.0, 2.0, 2.5, 4.5]), torch.tensor([1.0, 2.0, 3.0, 4.0]))
    tensor(0.9000)
    """
    check_shapes(value=value, target=target)
    value, target = select(upcast(value), mask), select(upcast(target), mask)
    total = masked_var(target, mask)
    return torch.where(total > 0, 1 - masked_var(target - value, mask) / total, torch.nan)


def _errors(value: Tensor, old_value: Tensor, target: Tensor, clip: float) -> tuple[Tensor, Tensor]:
    """Error of the value as it is, and of the value held within ± clip of the old one."""
    check_shapes(value=value, old_value=old_value, target=target)
    check_range("clip", clip, 0, float("inf"), fix="0.2 is usual; use value_error for no clipping")
    value, old_value = upcast(value), upcast(old_value)
    held = value.clamp(old_value - clip, old_value + clip)  # old + clamp(value - old) would round values in the band
    return value_error(value, target), value_error(held, target)
