"""What a step cost: seconds by part, and memory."""

from __future__ import annotations

import resource
import sys
import time
from dataclasses import dataclass, field


@dataclass
class Clock:
    """Seconds between laps, by name."""

    last: float = field(default_factory=time.perf_counter)
    laps: dict[str, float] = field(default_factory=dict)

    def lap(self, name: str) -> None:
        """The time since the last lap belongs to ``name``."""
        now = time.perf_counter()
        self.laps[name], self.last = self.laps.get(name, 0.0) + now - self.last, now


def peak_memory_mb() -> float:
    """Largest resident size of this process so far, MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1024 if sys.platform != "darwin" else 1024**2)
