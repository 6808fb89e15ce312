"""What the scripts here share: contestants that take turns, and the numbers that come of it.

Figures are CPU-seconds of one thread (the machine is shared, so wall-clock says little), medians over rounds. Two
contestants are compared round by round: the ratio of each round, its median, and a 95 % interval of that median by the
paired bootstrap (`ppo_lab.evaluate.statistics`).
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ppo_lab.evaluate.statistics import percentile_interval

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
RESAMPLES = 10_000


class Ratio(NamedTuple):
    """Median of the rounds' ratios and its 95 % interval."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.2f} [{self.low:.2f}, {self.high:.2f}]"


def paired(over: Sequence[float], under: Sequence[float], *, seed: int = 0) -> Ratio:
    """``over / under`` round by round: rounds are drawn again with replacement, both of a round together.

    >>> paired([2.0, 4.0], [1.0, 2.0])
    Ratio(median=2.0, low=2.0, high=2.0)
    """
    ratios = np.asarray(over, dtype=float) / np.asarray(under, dtype=float)
    drawn = np.random.default_rng(seed).integers(len(ratios), size=(RESAMPLES, len(ratios)))
    return Ratio(float(np.median(ratios)), *percentile_interval(np.median(ratios[drawn], axis=1), alpha=0.05))


def environment(threads: int, path: str | None = None) -> dict[str, str]:
    """Of a contestant. Two threads are pinned: unpinned, one operation takes 0.02 ms in one process, 8 in the next."""
    plain = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "OMP_PROC_BIND")}
    found = {**plain, "OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    if threads > 1:
        found["OMP_PROC_BIND"] = "true"
    return found if path is None else {**found, "PYTHONPATH": path}


class Relay:
    """Contestants by name, each a process that speaks `peers/relay.py`; one runs, the others wait.

    Args:
        commands: name to (command, environment).
    """

    def __init__(self, commands: Mapping[str, tuple[Sequence[str], dict[str, str]]]):
        self.memory: dict[str, dict[str, Any]] = {}
        self.said: dict[str, dict[str, Any]] = {}
        self._at: dict[str, subprocess.Popen] = {}
        for name, (command, env) in commands.items():  # one after the other: imports are not part of the race
            self._at[name] = subprocess.Popen(command, env=env, text=True, stdin=subprocess.PIPE,
                                              stdout=subprocess.PIPE)  # fmt: skip
            self.said[name] = self._hear(name)

    def _hear(self, name: str) -> dict[str, Any]:
        line = self._at[name].stdout.readline()  # type: ignore[union-attr]
        if not line:
            raise SystemExit(f"{name} ended with status {self._at[name].wait()}; what it said is above")
        return dict(json.loads(line))

    def run(self, rounds: int, *, warmup: int = 1, **words: Any) -> dict[str, list[dict[str, Any]]]:
        """Every contestant once a round, the order turning; the warm-up is not kept. ``words`` go to all.

        A last round is for `memory`, and not kept either.
        """
        names = list(self._at)
        kept: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
        for i in range(warmup + rounds + 1):
            for name in names[i % len(names) :] + names[: i % len(names)]:
                asked = self._at[name].stdin
                asked.write(json.dumps({**words, "trim": i == warmup + rounds}) + "\n")  # type: ignore[union-attr]
                asked.flush()  # type: ignore[union-attr]
                figures = self._hear(name)
                if i == warmup + rounds:
                    self.memory[name] = figures
                elif i >= warmup:
                    kept[name].append(figures)
            if i == warmup + rounds:
                break
            print(f"round {i + 1 - warmup:>3}  " + "  ".join(
                f"{name} {kept[name][-1]['cpu']:.3f}" for name in names if kept[name]), flush=True)  # fmt: skip
        return kept

    def close(self) -> None:
        """No more rounds."""
        for process in self._at.values():
            process.stdin.close()  # type: ignore[union-attr]
            process.wait()


def column(rows: Sequence[Mapping[str, Any]], key: str) -> list[float]:
    """One figure of all rounds."""
    return [float(row[key]) for row in rows]


def median(rows: Sequence[Mapping[str, Any]], key: str) -> float:
    """Its median."""
    return float(np.median(column(rows, key)))


def machine(threads: int) -> dict[str, Any]:
    """What the figures were measured on."""
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "unknown")
    return {"cpu": model, "cores": os.cpu_count(), "threads": threads, "python": platform.python_version(),
            "load": round(os.getloadavg()[0], 1)}  # fmt: skip


def versions(*packages: str) -> dict[str, str]:
    """As installed here."""
    return {name: importlib.metadata.version(name) for name in packages}


def keep(name: str, found: Mapping[str, Any]) -> None:
    """Figures, as `results/NAME.json`."""
    RESULTS.mkdir(exist_ok=True)
    command = " ".join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]])
    for part in sys.argv[1:]:  # folders are the reader's own
        if "/" in part and not part.startswith("benchmarks"):
            command = command.replace(part, "PYTHON" if Path(part).name.startswith("python") else "FOLDER")
    text = json.dumps({"command": command, **found}, indent=1)
    (RESULTS / f"{name}.json").write_text(text + "\n", encoding="utf-8")
