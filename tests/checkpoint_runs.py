"""Runs with small checkpoints, for the tests."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from ppo_lab.checkpoint import save

STATE = {"beta": 0.31, "best": float("-inf"), "position": 2**60, "normaliser": {"mean": 0.1, "count": 3}, "done": None}


def weights(seed: int = 0, size: int = 4) -> dict[str, Tensor]:
    return {"w": torch.randn(size, 2, generator=torch.Generator().manual_seed(seed)), "t": torch.tensor(seed)}


def write(run: Path, *numbers: int, keep: int = 9, **settings) -> None:
    for step in numbers:
        save(run, step, weights(step), STATE | {"beta": step / 10}, keep=keep, **settings)


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(a[k].dtype == b[k].dtype and torch.equal(a[k], b[k]) for k in a)


def leftovers(run: Path) -> list[str]:
    return sorted(p.name for p in (run / "checkpoints").iterdir() if not p.name.isdigit())
