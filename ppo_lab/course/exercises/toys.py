"""Toy data of the exercises: a few steps, float64, with what wrong answers trip over.

Two rows; row 0 has an episode that ends in the middle, one that is cut (so its future is bootstrapped), and padding;
row 1 has a hole in its mask, as tool tokens make. Steps that do not count hold NaN or absurd numbers.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ppo_lab import seeding

MASK = torch.tensor([[1, 1, 1, 1, 0, 0], [1, 1, 0, 1, 1, 1]], dtype=torch.bool)


class Toys:
    """Random numbers of one exercise and seed, always drawn in the same order."""

    def __init__(self, name: str, seed: int) -> None:
        self._generator = seeding.generator("course", name, seed)

    def normal(self, *shape: int, scale: float = 1.0) -> Tensor:
        """Numbers around 0."""
        return scale * torch.randn(shape, generator=self._generator, dtype=torch.float64)

    def away(self, *shape: int, least: float = 0.3, most: float = 1.5) -> Tensor:
        """Numbers of either sign, never near 0: nothing is right by luck."""
        size = least + (most - least) * torch.rand(shape, generator=self._generator, dtype=torch.float64)
        sign = torch.rand(shape, generator=self._generator, dtype=torch.float64) < 0.5
        return torch.where(sign, -size, size)

    def logp(self, *shape: int) -> Tensor:
        """Log-probabilities, between −3 and −0.5."""
        return -0.5 - 2.5 * torch.rand(shape, generator=self._generator, dtype=torch.float64)


def spoiled(x: Tensor, mask: Tensor, *, by: float = float("nan")) -> Tensor:
    """``x`` with nonsense at the steps that do not count."""
    return x.masked_fill(~mask, by)
