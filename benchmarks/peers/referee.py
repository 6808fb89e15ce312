"""One stop rule and one clock for every contestant on CartPole-v1; imports no contestant.

Every 2,048 environment steps the greedy policy plays 20 episodes in fresh environments. Two means in a row of at least
475 end the race. Time is CPU-seconds of the process, evaluations left out; importing and building come before it.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import torch

EVERY, EPISODES, ENOUGH = 2048, 20, 475.0
Act = Callable[[np.ndarray], np.ndarray]


def evaluate(act: Act, seed: int) -> float:
    """Mean return of one greedy episode in each of 20 fresh environments."""
    envs = [gymnasium.make("CartPole-v1") for _ in range(EPISODES)]
    obs = np.stack([env.reset(seed=seed + i)[0] for i, env in enumerate(envs)])
    returns, alive = np.zeros(EPISODES), np.ones(EPISODES, dtype=bool)
    while alive.any():
        actions = act(obs)
        for i in np.flatnonzero(alive):
            obs[i], reward, terminated, truncated, _ = envs[i].step(int(actions[i]))
            returns[i] += float(reward)
            alive[i] = not (terminated or truncated)
    return float(returns.mean())


class Referee:
    """Tell it after every update how many steps were taken; ``done`` once the second evaluation in a row is enough."""

    def __init__(self, contestant: str, seed: int):
        self.contestant, self.seed = contestant, seed
        self.curve: list[tuple[int, float]] = []
        self.solved: dict[str, float] | None = None
        self._next, self._outside = EVERY, 0.0
        self._start = time.process_time()

    @property
    def done(self) -> bool:
        """Whether the race is over."""
        return self.solved is not None

    def cpu(self) -> float:
        """CPU-seconds so far, evaluations left out."""
        return time.process_time() - self._start - self._outside

    def look(self, steps: int, act: Act) -> bool:
        """Evaluate where one is due; True ends the race."""
        if self.done or steps < self._next:
            return self.done
        self._next = (steps // EVERY + 1) * EVERY
        at, spent = self.cpu(), time.process_time()
        self.curve.append((steps, evaluate(act, seed=10_000 + len(self.curve) * EPISODES)))
        if len(self.curve) > 1 and min(mean for _, mean in self.curve[-2:]) >= ENOUGH:
            self.solved = {"steps": steps, "cpu_seconds": at}
        self._outside += time.process_time() - spent
        return self.done

    def report(self, steps: int, **more: Any) -> None:
        """One JSON line."""
        row = {
            "contestant": self.contestant, "seed": self.seed, "solved": self.done, "steps": steps,
            "cpu_seconds": self.cpu(), **(self.solved or {}), "steps_per_cpu_second": steps / max(self.cpu(), 1e-9),
            "evaluations": self.curve[-3:], "load": os.getloadavg()[0], **more,
        }  # fmt: skip
        print(json.dumps(row), flush=True)


def options(most: int, **extra: Any) -> argparse.Namespace:
    """Seed and the most steps; one torch thread."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--most", type=int, default=most)
    for name, default in extra.items():
        parser.add_argument(f"--{name}", default=default)
    torch.set_num_threads(1)
    return parser.parse_args()
