"""The policy gradient of a bandit as a random number: its mean and its variance, arm by arm."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ppo_lab.core._checks import check_shapes
from ppo_lab.core.masking import upcast


class GradientMoments(NamedTuple):
    """Moments of the one-sample policy gradient, and the two baselines it is told about.

    Attributes:
        mean: its expectation, (K,), the exact gradient of the expected reward.
        trace_variance: summed variance of its components, a number: the noise of one sample.
        value_baseline: the expected reward.
        optimal_baseline: the constant baseline of least variance.
    """

    mean: Tensor
    trace_variance: Tensor
    value_baseline: Tensor
    optimal_baseline: Tensor


def gradient_moments(probs: Tensor, reward: Tensor, *, baseline: float | Tensor) -> GradientMoments:
    r"""Exact moments of REINFORCE on a bandit, :math:`g_a = (R_a - b)(e_a - p)` with respect to the logits.

    The mean does not depend on the baseline, as :math:`E[e_a - p] = 0`; the variance does, and is least not at the
    value E[R] but at :math:`E[|e_a - p|^2 R] / E[|e_a - p|^2]`. Where the policy is certain every baseline is as good,
    and that is E[R].

    Args:
        probs: a softmax policy over K arms, (K,).
        reward: what each arm pays, (K,).
        baseline: b, in units of the reward.

    Source: Williams 1992; Greensmith et al. 2004, Variance reduction techniques for gradient estimates.

    >>> m = gradient_moments(torch.tensor([0.5, 0.5]), torch.tensor([0.0, 1.0]), baseline=0.5)
    >>> m.mean, m.trace_variance
    (tensor([-0.2500,  0.2500]), tensor(0.))
    """
    check_shapes(probs=probs, reward=reward)
    p, reward = upcast(probs), upcast(reward)
    score = torch.eye(len(p), dtype=p.dtype, device=p.device) - p  # row a: gradient of log p_a
    estimate = (reward - baseline)[:, None] * score
    mean = p @ estimate
    size = score.square().sum(-1)
    value, certain = p @ reward, p @ size == 0
    optimal = torch.where(certain, value, (p * size) @ reward / torch.where(certain, 1, p @ size))
    return GradientMoments(mean, p @ (estimate - mean).square().sum(-1), value, optimal)
