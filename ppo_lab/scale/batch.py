"""The effective batch: sequences of one optimizer step, and what each token weighs in it when lengths differ."""

from __future__ import annotations

import torch
from torch import Tensor

from ppo_lab.core._checks import check_bool


def effective_batch(per_device: int, accumulation: int, devices: int) -> int:
    """Sequences of one optimizer step: per device × accumulation × data-parallel devices.

    >>> effective_batch(8, 4, 8)
    256
    """
    for name, value in (("per_device", per_device), ("accumulation", accumulation), ("devices", devices)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    return per_device * accumulation * devices


def averaged_weights(mask: Tensor, *, micro_batch: int) -> Tensor:
    r"""What each token weighs when micro-batch means are averaged, as trainers did that divide a loss by accumulation.

    Token t of micro-batch m weighs :math:`1 / (M n_m)` instead of :math:`1 / \sum_m n_m`: a token among short answers
    counts more. The right weights are `core.masking.step_weights` of the whole minibatch, however it is cut.

    Args:
        mask: ``(B, T)`` bool of the whole minibatch, in order; rows of one micro-batch, or rank, are neighbours.

    >>> averaged_weights(torch.tensor([[True, True, True, True], [True, False, False, False]]), micro_batch=1)[:, 0]
    tensor([0.1250, 0.5000])
    """
    check_bool(mask=mask)
    parts = mask.split(micro_batch)
    return torch.cat([part / (part.sum().clamp_min(1) * len(parts)) for part in parts])


def pooled_moments(count: Tensor, total: Tensor, square: Tensor) -> Tensor:
    r"""Mean and deviation over all ranks, :math:`\mu = \sum_r s_r / \sum_r n_r`, :math:`\sigma^2 = \sum_r q_r /
    \sum_r n_r - \mu^2`, from three sums a rank.

    Sums can be added over ranks; means and deviations cannot. A rank without values adds nothing.

    Args:
        count, total, square: ``(W,)``, each rank's number of values, their sum and the sum of their squares.

    Returns:
        ``(2,)``: mean and deviation (over N, not N - 1).

    >>> pooled_moments(torch.tensor([2.0, 1.0]), torch.tensor([2.0, 4.0]), torch.tensor([2.0, 16.0]))
    tensor([2.0000, 1.4142])
    """
    n = count.sum()
    mean = total.sum() / n
    return torch.stack([mean, (square.sum() / n - mean.square()).clamp_min(0).sqrt()])
