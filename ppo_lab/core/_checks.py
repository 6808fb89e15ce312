"""Cheap checks of arguments: a message names argument, rule, value and fix; none reads a tensor's data."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor


def check_bool(**flags: Tensor) -> None:
    """Masks and flags are bool: with 0/1 numbers ``~mask`` and indexing silently mean something else."""
    for name, flag in flags.items():
        if flag.dtype != torch.bool:
            raise ValueError(f"{name} must be bool (True counts), got {flag.dtype}; use {name}.bool()")


def check_shapes(**tensors: Tensor | None) -> None:
    """All tensors given have the shape of the first one."""
    given = {name: tuple(x.shape) for name, x in tensors.items() if x is not None}
    first, shape = next(iter(given.items()))
    for name, other in given.items():
        if other != shape:
            raise ValueError(f"{name} must have the shape of {first}, {shape}, got {other}; time is the last axis")


def check_spreads(**tensors: Tensor) -> None:
    """Every tensor broadcasts to the first without gaining axes: (B,) never silently meets (B, T)."""
    (first, x), *others = tensors.items()
    for name, y in others:
        fits = y.ndim == 0 or (y.ndim == x.ndim and all(b in (a, 1) for a, b in zip(x.shape, y.shape, strict=True)))
        if not fits:
            raise ValueError(
                f"{name} must have the shape of {first}, {tuple(x.shape)}, or 1 on an axis it is constant along, "
                f"got {tuple(y.shape)}; use {name}[:, None] for one value a row"
            )


def check_mask(mask: Tensor, x: Tensor) -> None:
    """``mask`` is bool and covers ``x``."""
    check_bool(mask=mask)
    if mask.shape != x.shape:
        check_spreads(x=x, mask=mask)


def check_choice(name: str, value: object, choices: Collection[str]) -> None:
    """``value`` is one of ``choices``."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(sorted(choices))}, got {value!r}; pick one of these")


def check_range(name: str, value: float, low: float, high: float, *, fix: str) -> None:
    """``low <= value <= high``; NaN is in no range."""
    if not low <= value <= high:
        raise ValueError(f"{name} must be in [{low:g}, {high:g}], got {value}; {fix}")
