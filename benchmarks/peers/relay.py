"""One contestant's end of a relay: report the round just run, wait for the word to run the next. Imports no contestant.

A driver (`side_by_side.Relay`) holds one process a contestant and lets one of them run at a time, round by round, so a
busy moment of the machine hits all alike. The clock runs from the word to the next report.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import sys
import time
from typing import Any


def status_mb(field: str) -> float:
    """A figure of /proc/self/status in MiB, as VmRSS (now) and VmHWM (its peak)."""
    with open("/proc/self/status", encoding="ascii") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024


def forget_peak(*, trim: bool = True) -> float:
    """Make the peak the present level, which is returned in MiB; freed memory is handed back before, with ``trim``."""
    gc.collect()
    if trim:
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")
    return status_mb("VmRSS")


class Station:
    """What anybody prints goes to stderr from here on; the driver reads one JSON line a round."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        self._from: tuple[float, float, float] | None = None

    def turn(self, **figures: Any) -> dict[str, Any]:
        """Report, wait, and return what the driver says of the next round; the process ends where it says no more.

        Where it says ``trim``, freed memory is handed back first: right for peaks, wrong for times, since every page
        must then be asked for again.
        """
        if self._from is not None:
            wall, cpu, level = self._from
            figures = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu,
                       "peak_mb": status_mb("VmHWM"), "round_mb": status_mb("VmHWM") - level, **figures}  # fmt: skip
        self._out.write(json.dumps(figures) + "\n")
        self._out.flush()
        line = sys.stdin.readline()
        if not line:
            os._exit(0)
        said = dict(json.loads(line))
        level = forget_peak(trim=bool(said.get("trim")))
        self._from = time.perf_counter(), time.process_time(), level
        return said
