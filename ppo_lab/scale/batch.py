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
