"""Several ways to compute one thing, in one process, in turn: CPU-seconds a call, and the memory that a call needs.

Imports no contestant.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from relay import forget_peak, status_mb

Call = Callable[[], Any]


def peak_mb(call: Call, *, before: Call | None = None) -> float:
    """Memory that one call takes at most above what was there before it, result included.

    ``before`` drops what an earlier call left, which this one would otherwise be credited for freeing.
    """
    if before is not None:
        before()
    level = forget_peak()
    result = call()
    high = status_mb("VmHWM")
    del result
    return high - level


def timed(calls: Mapping[str, Call], rounds: int, *, least: float = 0.02) -> dict[str, list[float]]:
    """CPU-seconds a call, round by round, who begins changing; short calls are repeated for ``least`` seconds."""
    repeat, seconds = {}, {name: list[float]() for name in calls}
    for name, call in calls.items():
        call()
        start = time.process_time()
        call()
        repeat[name] = max(1, int(least / max(time.process_time() - start, 1e-6)))
    names = list(calls)
    for i in range(rounds):
        for name in names[i % len(names) :] + names[: i % len(names)]:
            start = time.process_time()
            for _ in range(repeat[name]):
                calls[name]()
            seconds[name].append((time.process_time() - start) / repeat[name])
    return seconds
