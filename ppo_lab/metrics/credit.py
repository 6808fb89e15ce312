"""What a log says of credit and critic, of language and of control alike."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ppo_lab.core.masking import masked_mean, masked_var
from ppo_lab.core.values import explained_variance


def of_credit(value: Tensor, target: Tensor, advantage: Tensor, mask: Tensor) -> dict[str, Any]:
    """Explained variance, mean and deviation of the advantages (before standardising), mean value and target.

    Args:
        value, target, advantage: ``(B, T)``, in units of the reward.
        mask: ``(B, T)`` bool, True counts.
    """
    return {
        "explained_variance": float(explained_variance(value, target, mask)),
        "advantage_mean": float(masked_mean(advantage, mask)),
        "advantage_std": float(masked_var(advantage, mask) ** 0.5),
        "value_mean": float(masked_mean(value, mask)),
        "return_mean": float(masked_mean(target, mask)),
    }
