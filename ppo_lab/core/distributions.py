"""Action distributions: categorical from logits (tokens, discrete actions) and diagonal Gaussian (continuous actions).

Log-probabilities and entropies are in nats. A logit of -inf is an action that cannot be taken: it has probability 0
and adds nothing to an entropy.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ppo_lab.core._checks import check_spreads
from ppo_lab.core.masking import select, upcast


def categorical_logp(logits: Tensor, action: Tensor) -> Tensor:
    r"""Log-probability of the action taken, :math:`z_a - \log \sum_k e^{z_k}`. (..., K), (...) int -> (...).

    >>> categorical_logp(torch.tensor([0.0, 0.0]), torch.tensor(1))
    tensor(-0.6931)
    """
    if action.is_floating_point() or action.shape != logits.shape[:-1]:
        raise ValueError(
            f"action must hold one integer for each row of logits, {tuple(logits.shape[:-1])}, got "
            f"{action.dtype} {tuple(action.shape)}; pass the indices that were sampled"
        )
    return upcast(logits).log_softmax(-1).gather(-1, action.long()[..., None]).squeeze(-1)


def entropy(logits: Tensor) -> Tensor:
    r"""Entropy :math:`-\sum_k p_k \log p_k` in nats, from 0 (certain) to log K (uniform). (..., K) -> (...).

    >>> entropy(torch.tensor([[0.0, 0.0], [0.0, -math.inf]]))
    tensor([0.6931, -0.0000])
    """
    logp = upcast(logits).log_softmax(-1)
    return -(logp.exp() * select(logp, logp > -math.inf)).sum(-1)


def gaussian_logp(mean: Tensor, log_std: Tensor, action: Tensor) -> Tensor:
    r"""Log-density :math:`-\sum_i [\frac12 z_i^2 + \log\sigma_i + \frac12\log 2\pi]`, z = (a-μ)/σ. (..., A) -> (...)

    The action is the raw sample, before any clipping to the environment's bounds. A density may exceed 1. ``log_std``
    may be (A,), the same in every state.

    >>> gaussian_logp(torch.zeros(1), torch.zeros(1), torch.zeros(1))
    tensor(-0.9189)
    """
    check_spreads(mean=mean, action=action)
    z = (upcast(action) - upcast(mean)) * torch.exp(-upcast(log_std))
    return -(z.square() / 2 + upcast(log_std) + math.log(2 * math.pi) / 2).sum(-1)


def gaussian_entropy(log_std: Tensor) -> Tensor:
    r"""Differential entropy :math:`\sum_i \log\sigma_i + \frac12\log 2\pi e`, nats, may be negative. (..., A) -> (...).

    >>> gaussian_entropy(torch.zeros(1))
    tensor(1.4189)
    """
    return (upcast(log_std) + math.log(2 * math.pi * math.e) / 2).sum(-1)
