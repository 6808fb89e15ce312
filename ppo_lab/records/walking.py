"""Records as trees: figures laid flat, tensors taken, moved and joined row by row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

R = TypeVar("R")


def flat(record: Any) -> dict[str, Any]:
    """Fields of a record of figures, those of records inside among them; ``None`` is left out."""
    found: dict[str, Any] = {}
    for field in fields(record):
        value = getattr(record, field.name)
        if is_dataclass(value):
            found.update({inner.name: getattr(value, inner.name) for inner in fields(value)})
        else:
            found[field.name] = value
    return {name: value for name, value in found.items() if value is not None}


def walk(record: R, change: Callable[[Tensor], Tensor]) -> R:
    """The same record with ``change`` applied to every tensor in it."""
    if isinstance(record, Tensor):
        return change(record)  # type: ignore[return-value]
    if is_dataclass(record) and not isinstance(record, type):
        return replace(record, **{f.name: walk(getattr(record, f.name), change) for f in fields(record)})
    return record


def take(record: R, rows: Tensor | slice) -> R:
    """These rows of every tensor in the record."""
    return walk(record, lambda x: x[rows])


def to(record: R, device: torch.device | str) -> R:
    """The record on another device."""
    return walk(record, lambda x: x.to(device))


def concatenate(records: Sequence[R]) -> R:
    """Rows of several like records, one after the other."""
    first = records[0]
    if isinstance(first, Tensor):
        return torch.cat(list(records))  # type: ignore[arg-type, return-value]
    if is_dataclass(first) and not isinstance(first, type):
        parts = {f.name: concatenate([getattr(r, f.name) for r in records]) for f in fields(first)}
        return replace(first, **parts)
    return first
