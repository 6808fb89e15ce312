"""Notebook 07: five algorithms under one search budget. All are settings of one recipe, `ppo_lab.control.train.Run`.

Sixteen draws serve all five: draw i gives each the same rates, γ, λ and entropy weight, and what only some of them have
comes on top. The best of an algorithm is chosen by one run each, then judged on seeds that had no part in the choice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ppo_lab import seeding
from ppo_lab.config import ControlConfig
from ppo_lab.config.base import build, override

from .trained import TASKS, summary, train

ALGORITHMS = {  # what each is in terms of the recipe
    "REINFORCE": ("advantage=return", "ppo.objective=reinforce", "ppo.standardize=none", "ppo.epochs=1"),
    "A2C": ("ppo.objective=reinforce", "ppo.epochs=1"),
    "TRPO": ("algorithm=trpo",),
    "PPO-clip": ("ppo.objective=clip",),
    "PPO-KL": ("ppo.objective=kl_penalty",),
}
EPOCHS, SIZES, ENVS = (4, 8, 16), (128, 256), 8
DRAWS, SEARCH_SEED, FRESH = 16, 1000, tuple(range(5))


def draw(i: int) -> dict[str, float | int]:
    """Setting i: one number from each range, log-uniform for rates, targets and trust regions."""
    u = iter(seeding.uniforms(0, "search of notebook 07", [i], 12)[0].tolist())

    def log(low: float, high: float) -> float:
        return float(f"{math.exp(math.log(low) + next(u) * math.log(high / low)):.3g}")

    def one(*choices: Any) -> Any:
        return choices[int(next(u) * len(choices))]

    return {
        "actor_rate": log(3e-4, 1e-2), "critic_rate": log(5e-4, 1e-2), "gamma": one(0.98, 0.99),
        "lam": one(0.8, 0.9, 0.95, 1.0), "entropy_coef": one(0.0, 0.01), "rollout": one(16, 32, 64, 128),
        "whole": one(32, 64, 128), "epochs": one(*EPOCHS), "size": one(*SIZES), "clip": one(0.1, 0.2, 0.3),
        "target": log(0.005, 0.03), "delta": log(0.003, 0.1),
    }  # fmt: skip


def settings(algorithm: str, knobs: dict[str, float | int]) -> list[str]:
    """The draw as overrides of this algorithm; knobs that it does not have are left out.

    REINFORCE sums whole episodes, so its rollouts are long ones; the others may cut earlier, for they bootstrap.
    """
    rollout = int(knobs["whole" if algorithm == "REINFORCE" else "rollout"])
    given = [f"optimizer.{name}={knobs[name]}" for name in ("actor_rate", "critic_rate")]
    given += [f"ppo.{name}={knobs[name]}" for name in ("gamma", "lam", "entropy_coef")] + [f"rollout={rollout}"]
    many = algorithm not in ("REINFORCE", "A2C")
    minibatches = max(1, ENVS * rollout // int(knobs["size"])) if many else 1
    given += [f"ppo.minibatches={minibatches}"] + ([f"ppo.epochs={knobs['epochs']}"] if many else [])
    own = {"PPO-clip": [f"ppo.clip={knobs['clip']}"], "PPO-KL": [f"penalty.target={knobs['target']}"],
           "TRPO": [f"trust_region.delta={knobs['delta']}"]}  # fmt: skip
    return given + own.get(algorithm, [])


def config(env: str, algorithm: str, given: Sequence[str], *, seed: int, total: int) -> ControlConfig:
    """A checked config: what all share, what the algorithm is, what was drawn."""
    shared = {
        "name": "five", "seed": seed, "total_steps": total, "env": {"id": env, "count": ENVS},
        "normalize": {"observation": env == "Acrobot-v1"}, "evaluation": {"every": 10**6, "episodes": 1},
        "checkpoint": {"every": 10**6},
    }  # fmt: skip
    return build(ControlConfig, override(shared, [*ALGORITHMS[algorithm], *given]))


def row(env: str, algorithm: str, i: int, *, seed: int, total: int, part: str) -> dict[str, Any]:
    """One run, as it is recorded; ``part`` is search or fresh."""
    given = settings(algorithm, draw(i))
    found = summary(train(config(env, algorithm, given, seed=seed, total=total)), TASKS[env])
    return {"part": part, "env": env, "algorithm": algorithm, "draw": i, "seed": seed, **found,
            "settings": " ".join(given)}  # fmt: skip


def best_draw(rows: Sequence[Mapping[str, Any]], algorithm: str) -> int:
    """The draw of the highest final return in the search; between equals, of the larger area."""
    tried = [r for r in rows if r["part"] == "search" and r["algorithm"] == algorithm]
    return int(max(tried, key=lambda r: (r["final"], r["area"]))["draw"])
