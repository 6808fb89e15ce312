"""Advantages without a critic: several answers to one prompt are each other's baseline.

``score`` is (prompts, samples); ``mask`` marks the samples there are where groups have different sizes. Left-out
samples get 0, and so does a group of one: it has nothing to be compared with.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ppo_lab.core._checks import check_range
from ppo_lab.core.masking import (
    centered,
    last_step,
    masked_count,
    masked_sum,
    masked_var,
    select,
    standardize,
    upcast,
)
from ppo_lab.core.returns import discounted_returns


def rloo_advantages(score: Tensor, mask: Tensor | None = None) -> Tensor:
    r"""Leave one out: :math:`R_i - \frac{1}{n-1} \sum_{j \ne i} R_j`. Unbiased: the baseline leaves out the sample.

    Equal to :math:`\frac{n}{n-1} (R_i - \bar R)`. Sources: Kool et al. 2019; Ahmadian et al. 2024.

    >>> rloo_advantages(torch.tensor([[1.0, 0.0, 0.5]]))
    tensor([[ 0.7500, -0.7500,  0.0000]])
    """
    score = select(upcast(score), mask)
    others = masked_count(score, mask, dim=-1, keepdim=True) - 1
    baseline = (masked_sum(score, mask, dim=-1, keepdim=True) - score) / others.clamp(min=1)
    return select(torch.where(others > 0, score - baseline, 0), mask)


def centered_advantages(score: Tensor, mask: Tensor | None = None) -> Tensor:
    r"""Score minus its group's mean, :math:`R_i - \bar R`. Too small by :math:`1 - 1/n`: the mean contains the sample.

    Source: Liu et al. 2025, Understanding R1-Zero-like training (Dr. GRPO).

    >>> centered_advantages(torch.tensor([[1.0, 0.0, 0.5]]))
    tensor([[ 0.5000, -0.5000,  0.0000]])
    """
    return centered(score, mask, dim=-1)


def grpo_advantages(score: Tensor, mask: Tensor | None = None, *, eps: float, ddof: int = 1) -> Tensor:
    r"""Group-standardised score :math:`(R_i - \bar R) / (\mathrm{std} + \epsilon)`.

    Dividing by the group's own spread gives a prompt that is nearly solved, or nearly hopeless, as much weight as one
    in between. Equal scores give exactly 0. Raising ``eps`` damps groups whose scores hardly differ.

    Args:
        score: (prompts, samples).
        mask: (prompts, samples) bool; all samples count if left out.
        eps: in units of the score, outside the root; 1e-4 in TRL, 1e-6 in verl.
        ddof: 1 for the sample's standard deviation.

    Source: Shao et al. 2024, DeepSeekMath, sec. 4.1.2.

    >>> grpo_advantages(torch.tensor([[1.0, 3.0], [2.0, 2.0]]), eps=0.0)
    tensor([[-0.7071,  0.7071],
            [ 0.0000,  0.0000]])
    """
    check_range("eps", eps, 0, float("inf"), fix="use a small positive number such as 1e-4")
    var = masked_var(score, mask, dim=-1, ddof=ddof, keepdim=True)
    std = torch.where(var > 0, var, 1).sqrt()  # equal scores: the numerator is 0 already
    return torch.where(var > 0, centered(score, mask, dim=-1) / (std + eps), 0)


def reinforce_pp_advantages(
    reward: Tensor, mask: Tensor, *, gamma: float, eps: float = 1e-8, ddof: int = 0
) -> Tensor:
    """REINFORCE++: each token's reward to go, standardised over all valid tokens of the batch. (B, T) -> (B, T).

    Source: Hu 2025, REINFORCE++.

    >>> mask = torch.tensor([[True, True], [True, False]])
    >>> reinforce_pp_advantages(torch.tensor([[1.0, 1.0], [3.0, 9.0]]), mask, gamma=1.0)
    tensor([[ 0.0000, -1.2247],
            [ 1.2247,  0.0000]])
    """
    last = last_step(mask)
    to_go = discounted_returns(
        reward, torch.zeros_like(reward), terminated=last, ended=last, gamma=gamma, mask=mask
    )
    return standardize(to_go, mask, eps=eps, ddof=ddof)
