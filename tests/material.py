"""Numbers for the tests: reproducible, float64 unless asked otherwise."""

from __future__ import annotations

import torch
from torch import Tensor

# left padding, a hole, right padding, a full row, an empty row, a single step
MASK = torch.tensor(
    [[0, 0, 1, 1, 1], [1, 0, 1, 1, 0], [1, 1, 1, 0, 0], [1, 1, 1, 1, 1], [0, 0, 0, 0, 0], [0, 1, 0, 0, 0]]
).bool()


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def coin(*shape: int, p: float, seed: int = 0) -> Tensor:
    """True with probability p."""
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < p


def same(a: Tensor | float, b: Tensor | float, *, atol: float = 1e-12) -> bool:
    """Equal shapes and numbers to rounding in float64; NaN equals NaN."""
    a, b = (torch.as_tensor(x, dtype=torch.float64) for x in (a, b))
    return a.shape == b.shape and torch.allclose(a, b, atol=atol, rtol=1e-12, equal_nan=True)


def gradient(total: Tensor, *leaves: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(total, leaves, allow_unused=True, materialize_grads=True)
