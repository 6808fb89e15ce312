"""Notebook 12, optional: the same corridor from near to far, all at once, or far from the first step on.

Difficulty is the distance to the exit that pays: level k starts k + 1 fifths of the way from it. All arms have the same
tables, batches and number of episodes, and are judged by the exact J from the far start.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ppo_lab import seeding
from ppo_lab.config.ppo import PPOConfig
from ppo_lab.core.curriculum import Curriculum
from ppo_lab.exact.agent import TabularActorCritic, advantages, assess, sample, step_batch, tables
from ppo_lab.exact.mdp import MDP, corridor, solve, value_iteration
from ppo_lab.learners.plain import PlainLearner
from ppo_lab.update import ppo_update

ARMS = ("far only", "all levels", "curriculum")
LEVELS, STATES, GAMMA = 5, 20, 0.97
ENOUGH = 0.9
EPISODES, STEPS, ITERATIONS = 16, 60, 50


def world() -> MDP:
    """A slippery corridor whose far end pays; the near exit pays nothing. One starts two steps from the near one."""
    return corridor(STATES, slip=0.1, gamma=GAMMA, start=place(LEVELS - 1))


def place(level: int) -> int:
    """Where level k starts: the higher, the farther from the end that pays."""
    return STATES - 1 - round((level + 1) * (STATES - 2) / LEVELS)


def starts(mixture: dict[int, float]) -> Tensor:
    """P(s_0) of a mixture of levels, (S,)."""
    found = torch.zeros(STATES, dtype=torch.float64)
    for level, share in mixture.items():
        found[place(level)] += share
    return found


def trained(arm: str, seed: int, *, iterations: int = ITERATIONS) -> dict[str, Any]:
    """One run. ``curve``: exact J from the far start over the best there is.

    Returns:
        ``reach``: iterations until the curve is `ENOUGH` (all where it never is). ``final``: mean of the last fifth.
        ``levels``: the iteration in which each level began.
    """
    mdp, curriculum = world(), Curriculum(levels=LEVELS)
    best = float(mdp.start @ value_iteration(mdp).amax(-1))
    cfg = PPOConfig(epochs=2, minibatches=2, lam=0.95, value_clip=None, value_coef=0.5, standardize="rollout")
    learner = PlainLearner(TabularActorCritic(mdp), actor_rate=0.06, critic_rate=0.06, device="cpu")
    curve, began = [], [0]
    for i in range(iterations):
        mixture = {"far only": {LEVELS - 1: 1.0}, "all levels": dict.fromkeys(range(LEVELS), 1 / LEVELS)}.get(
            arm) or curriculum.mixture()  # fmt: skip
        logits, value = tables(learner)
        rollout = sample(replace(mdp, start=starts(mixture)), logits.softmax(-1), episodes=EPISODES, steps=STEPS,
                         value=value, after_end="mask", seed=seeding.key(seed, "rollout", i))  # fmt: skip
        if arm == "curriculum":
            own = rollout.obs[:, 0] == place(curriculum.level)
            paid = torch.where(rollout.mask, rollout.reward, 0.0).sum(-1)[own] > 0.5  # left by the exit that pays
            level = curriculum.level
            curriculum = curriculum.after(float(paid.double().mean()) if len(paid) else 0.0, episodes=len(paid))
            began += [i + 1] * (curriculum.level - level)
        batch = step_batch(rollout, *advantages(rollout, gamma=mdp.gamma, lam=cfg.lam))
        ppo_update(learner, batch, assess, cfg, seed=seeding.key(seed, "update", i))
        curve.append(float(solve(mdp, tables(learner)[0].softmax(-1)).J) / best)
    reach = next((i + 1 for i, share in enumerate(curve) if share >= ENOUGH), iterations)
    return {"arm": arm, "seed": seed, "reach": reach, "final": round(statistics.fmean(curve[-(iterations // 5) :]), 5),
            "levels": " ".join(map(str, began)), "curve": " ".join(f"{share:.3f}" for share in curve)}  # fmt: skip


def of(rows: Sequence[dict[str, Any]], key: str, arm: str) -> list[float]:
    """A column of one arm, in order of the seeds."""
    return [float(row[key]) for row in rows if row["arm"] == arm]


def gain(rows: Sequence[dict[str, Any]], over: str) -> list[float]:
    """How much higher the curriculum ends than another arm, relative, seed by seed."""
    return [a / b - 1 for a, b in zip(of(rows, "final", "curriculum"), of(rows, "final", over), strict=True)]


def saved(rows: Sequence[dict[str, Any]], over: str) -> list[float]:
    """Share of the iterations to `ENOUGH` that the curriculum saves against another arm, seed by seed."""
    return [1 - a / b for a, b in zip(of(rows, "reach", "curriculum"), of(rows, "reach", over), strict=True)]
