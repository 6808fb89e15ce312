"""Importance sampling: steps drawn from an old policy speak for a new one, and how many of them still do.

Everything starts from the log ratio, a difference of log-probabilities; a quotient of probabilities would be 0/0 long
before.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ppo_lab.core._checks import check_mask, check_shapes
from ppo_lab.core.masking import select, upcast


def log_ratio(logp: Tensor, old_logp: Tensor, mask: Tensor | None = None) -> Tensor:
    r"""Log importance ratio in nats, :math:`\log \pi(a|s) - \log \pi_{old}(a|s)`; 0 where the mask is False.

    Both are log-probabilities of the same actions, under the same temperature. Before the first update it is 0
    everywhere; anything else is a bug in how one of the two was computed. Shapes (..., T).

    >>> log_ratio(torch.tensor([-1.0, -2.0]), torch.tensor([-1.5, 7.0]), torch.tensor([True, False]))
    tensor([0.5000, 0.0000])
    """
    check_shapes(logp=logp, old_logp=old_logp)
    return select(upcast(logp), mask) - select(upcast(old_logp), mask)


def importance_weights(log_ratio: Tensor) -> Tensor:
    r"""Ratio :math:`\pi(a|s) / \pi_{old}(a|s) = e^{\text{log ratio}}`, not clamped. Any shape.

    A whole sequence has the ratio ``importance_weights(masked_sum(log_ratio, mask, dim=-1))``; GSPO (Zheng et al.
    2025) takes ``masked_mean``, the geometric mean of its tokens' ratios.

    >>> importance_weights(torch.tensor([0.0, math.log(2.0)]))
    tensor([1., 2.])
    """
    return upcast(log_ratio).exp()


def effective_sample_size(log_ratio: Tensor, mask: Tensor | None = None) -> Tensor:
    r"""How many fresh samples the weighted ones are worth, :math:`(\sum_i w_i)^2 / \sum_i w_i^2`, from 1 to N.

    N when all weights are equal, near 1 when one of them dominates: the further the new policy has moved, the fewer
    samples are left. In log space, so it neither overflows nor depends on the weights' scale. 0 if nothing is valid.
    Source: Kong 1992; Owen 2013, Monte Carlo theory, ch. 9.3.

    >>> effective_sample_size(torch.tensor([1000.0, 1000.0, 0.0]))
    tensor(2.)
    """
    x = upcast(log_ratio)
    mask = torch.ones_like(x, dtype=torch.bool) if mask is None else mask
    check_mask(mask, x)
    largest = torch.where(mask, x.detach(), -math.inf).amax()
    weight = select(torch.exp(select(x, mask) - largest), mask)
    return weight.sum().square() / weight.square().sum().clamp(min=1)  # the largest weight is 1 if there is any
