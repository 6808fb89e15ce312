"""Notebook 07: one control run, summed up in a flat row that a recording can hold."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ppo_lab.config import ControlConfig
from ppo_lab.control.train import Run
from ppo_lab.evaluate.curves import binned, crashed, smoothed

BINS = 20  # spans of a run


@dataclass(frozen=True, slots=True)
class Task:
    """An environment and the two ends of its scale."""

    env: str
    random: float  # mean return of actions at random
    reference: float  # return that counts as solved
    good: float  # on the way there: when it is first reached is a run's speed


TASKS = {
    task.env: task
    for task in (
        Task("CartPole-v1", 22.0, 500.0, 195.0),
        Task("Pendulum-v1", -1200.0, -150.0, -400.0),
        Task("Acrobot-v1", -500.0, -100.0, -200.0),
    )
}


@dataclass(frozen=True, slots=True)
class Trained:
    """A finished run: its log, and every episode with the environment steps done when its rollout was over."""

    rows: list[dict[str, Any]]
    when: list[int]
    returns: list[float]
    total: int  # environment steps
    cpu: float  # seconds
    wall: float

    def curve(self, bins: int = BINS) -> list[float]:
        """Mean return of the episodes that ended in each span."""
        return binned(self.when, self.returns, total=self.total, bins=bins)


def train(config: ControlConfig) -> Trained:
    """Run it to the end in a folder that is thrown away; whatever is planted in `ppo_lab.faults` is in it."""
    cpu, wall = time.process_time(), time.monotonic()
    when: list[int] = []
    returns: list[float] = []
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        run = Run(config, folder=Path(folder) / "run")
        for step in run:
            ended = run.last.episodes.returns.tolist() if run.last is not None else []
            when += [step.env_steps] * len(ended)
            returns += ended
            rows.append(step.row())
        run.close()
    return Trained(rows, when, returns, config.steps * config.rows, time.process_time() - cpu, time.monotonic() - wall)


def summary(run: Trained, task: Task) -> dict[str, Any]:
    """The run in numbers.

    Returns:
        ``final``, ``spread``: mean and deviation of the returns of the last quarter's episodes. ``best``: highest
        smoothed return. ``area``: mean over the whole run. ``reach``: environment steps until the smoothed return is
        good (all of them where it never is). ``crash``: see `crashed`. ``cpu``, ``wall``: seconds. ``curve``: the
        returns of the spans, as text.
    """
    curve, late = run.curve(), [r for at, r in zip(run.when, run.returns, strict=True) if at > 0.75 * run.total]
    late = late or run.returns[-1:]
    calm = smoothed(curve, decay=0.5)
    reach = next((i + 1 for i, score in enumerate(calm) if score >= task.good), len(calm))
    return {
        "final": round(float(np.mean(late)), 2), "spread": round(float(np.std(late)), 2), "best": round(max(calm), 2),
        "area": round(float(np.mean(curve)), 2), "reach": reach * run.total // len(calm),
        "crash": crashed(curve, random=task.random, reference=task.reference),
        "cpu": round(run.cpu, 2), "wall": round(run.wall, 2), "curve": " ".join(f"{score:.0f}" for score in curve),
    }  # fmt: skip


def signal(rows: Sequence[dict[str, Any]], name: str, how: str = "mean") -> float | None:
    """A logged metric over a run: its ``mean``, ``max`` or ``last``; None where it was never a finite number."""
    found = [row[name] for row in rows if row.get(name) is not None and math.isfinite(row[name])]
    if not found:
        return None
    value = {"mean": lambda: sum(found) / len(found), "max": lambda: max(found), "last": lambda: found[-1]}[how]()
    return float(f"{value:.5g}")
