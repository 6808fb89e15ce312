"""Notebook 12, optional: a chain that reward alone cannot climb, by plain PPO and with two bonuses for what is new."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ppo_lab.config import ControlConfig
from ppo_lab.config.base import build, override
from ppo_lab.control.train import Run

STATES = 20
ARMS = ("none", "count", "prediction")
TOTAL = 24_576  # environment steps


def config(bonus: str, seed: int, *, total: int = TOTAL, states: int = STATES) -> ControlConfig:
    """A run on the chain, all alike but for the bonus."""
    return build(ControlConfig, override({}, [
        "name=chain", f"seed={seed}", "env.id=probe/chain", f"env.options.states={states}", "env.count=16",
        "rollout=48", f"total_steps={total}", "net.hidden=[32]", "optimizer.actor_rate=3e-3",
        "optimizer.critic_rate=3e-3", "ppo.entropy_coef=0.01", f"exploration.bonus={bonus}",
        "evaluation.every=1000000", "evaluation.episodes=4", "checkpoint.every=1000000",
    ]))  # fmt: skip


def row(bonus: str, seed: int, *, total: int = TOTAL, states: int = STATES) -> dict[str, Any]:
    """One run. ``found``: environment steps until some episode reached the end (-1: none). ``reached``: share of the
    last greedy episodes that do. ``curve``: farthest state of each rollout, over the last one."""
    cpu, found, curve, bonus_mean = time.process_time(), -1, [], None
    with tempfile.TemporaryDirectory() as folder:
        run = Run(config(bonus, seed, total=total, states=states), folder=Path(folder) / "run")
        for step in run:
            assert run.last is not None
            if found < 0 and bool((run.last.episodes.returns >= 1).any()):
                found = step.env_steps
            bonus_mean = step.bonus_mean
            curve.append(int(run.last.rollout.obs.argmax(-1).max()) / (states - 1))
        reached = float((run.evaluate(episodes=4) >= 1).double().mean())
        run.close()
    return {"arm": bonus, "seed": seed, "found": found, "reached": reached,
            "bonus": None if bonus_mean is None else round(bonus_mean, 6),
            "cpu_seconds": round(time.process_time() - cpu, 1),
            "curve": " ".join(f"{x:.2f}" for x in curve)}  # fmt: skip


def share(rows: Sequence[dict[str, Any]], arm: str, key: str = "found") -> list[float]:
    """1 for each seed of an arm whose run found the end (or, ``key`` reached, goes there now), else 0."""
    kept = [row for row in rows if row["arm"] == arm]
    return [float(row["found"] >= 0 if key == "found" else row["reached"] == 1.0) for row in kept]
