"""Small control runs for tests: configs that take a moment, and environments that say which step it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from ppo_lab import control, metrics
from ppo_lab.config import ControlConfig, build
from ppo_lab.config.base import override

BASE = ("env.id=CartPole-v1", "env.count=4", "rollout=16", "total_steps=384", "ppo.epochs=2", "ppo.minibatches=2",
        "net.hidden=[8]", "evaluation.every=2", "evaluation.episodes=3", "checkpoint.every=2")  # fmt: skip


def config(*changes: str) -> ControlConfig:
    return build(ControlConfig, override({}, [*BASE, *changes]))


def run(folder: Path, *changes: str, **options: Any) -> control.Run:
    return control.Run(config(*changes), folder=folder, **options)


def log_of(folder: Path) -> list[dict]:
    free = ("seconds", "peak_memory")
    return [{k: v for k, v in row.items() if not k.startswith(free)} for row in metrics.read(folder / "metrics.jsonl")]


class Counting(gym.Env):
    """Episodes of ``length`` steps, ended by death or by the clock in turn; it observes (start, steps taken).

    Start is 100 · (number of the episode); each step pays its own number.
    """

    observation_space = spaces.Box(-1e6, 1e6, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, length: int = 3):
        self.length, self.episode = length, -1

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.episode = 0 if seed is not None else self.episode + 1
        self.taken = 0
        return self._seen(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.taken += 1
        over = self.taken == self.length
        dies = self.episode % 2 == 0
        return self._seen(), float(self.taken), over and dies, over and not dies, {}

    def _seen(self) -> np.ndarray:
        return np.array([100.0 * self.episode, self.taken], dtype=np.float32)
