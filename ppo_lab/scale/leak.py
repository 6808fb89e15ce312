"""The memory-leak check: does what is held grow step after step, once the first steps are over?

A list that keeps losses keeps their graphs: memory grows by the same amount each step, and the run dies after a day.
The check reads any series of bytes: of live tensors (`live_tensor_bytes`), of the process, of the device.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import torch


def live_tensor_bytes() -> int:
    """Bytes of all storages that a Python tensor still holds, each once. Graphs kept by a tensor hold theirs unseen."""
    gc.collect()
    storages = {}
    for thing in gc.get_objects():
        if type(thing) in (torch.Tensor, torch.nn.Parameter):
            storage = thing.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())


def process_bytes() -> int:
    """Resident memory of this process."""
    import psutil

    return int(psutil.Process().memory_info().rss)


@dataclass(frozen=True, slots=True)
class Growth:
    """How a series grows. ``per_step``: median growth, bytes; ``rising``: share of steps that grew; ``leaks``."""

    per_step: float
    rising: float
    leaks: bool

    def __str__(self) -> str:
        if not self.leaks:
            return "no steady growth"
        return f"{self.per_step / 1e6:.3g} MB more in every step ({self.rising:.0%} of the steps grew)"


def growth(readings: Sequence[float], *, warmup: int = 2, least: float = 1024.0, steady: float = 0.8) -> Growth:
    """Does the series leak? It does where the median step grows by ``least`` bytes and ``steady`` of all steps grow.

    Caches that fill up grow at first and then stop; noise grows half of the time. A leak grows always. The median is
    taken over single steps, so that one large allocation is no leak.

    Args:
        readings: bytes after each step, at least ``warmup + 4`` of them.
        warmup: readings left out at the start.
        least: growth a step, in bytes, that is worth a word.
        steady: share of growing steps. Higher: fewer false alarms, slow leaks through noise are missed.

    >>> growth([0, 50, 50, 50, 50, 50, 50]).leaks, growth([0, 0, 4096, 8192, 12288, 16384]).leaks
    (False, True)
    """
    kept = list(readings)[warmup:]
    if len(kept) < 4:
        raise ValueError(
            f"readings must be at least {warmup + 4}, {warmup} of them for warming up, got {len(readings)}"
        )
    steps = [b - a for a, b in zip(kept, kept[1:], strict=False)]
    rising = sum(step > 0 for step in steps) / len(steps)
    middle = float(median(steps))
    return Growth(middle, rising, middle >= least and rising >= steady)
