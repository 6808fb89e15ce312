"""Notebook 12, optional: a reward that is added, as a difference of potentials or as it comes to mind.

The world is a slippery corridor that pays 1 at its far end and nothing at the near one, by which one starts. The same
potential, how far along one is, is added in two ways; the weight of the second follows the usual rule. Every value is
exact, so what is measured is the algorithm's doing.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ppo_lab import seeding
from ppo_lab.config.ppo import PPOConfig
from ppo_lab.core.shaping import next_shaping_weight, zero_share
from ppo_lab.exact.agent import TabularActorCritic, advantages, assess, sample, step_batch, tables
from ppo_lab.exact.mdp import MDP, corridor, nearness, optimal_actions, paid_besides, shaped, solve, value_iteration
from ppo_lab.learners.plain import PlainLearner
from ppo_lab.update import ppo_update

ARMS = ("none", "difference", "level", "level, adaptive")
STATES, GAMMA, START = 12, 0.95, 2
WEIGHT = 0.1  # λ of the ad hoc term, at first
ENOUGH = 0.9  # share of the best J that counts as solved
EPISODES, STEPS, ITERATIONS = 16, 60, 50


def world() -> MDP:
    """The corridor."""
    return corridor(STATES, slip=0.1, gamma=GAMMA, start=START)


def potential() -> Tensor:
    """Φ: how far along a state is, in (0, 1]."""
    return torch.arange(1, STATES + 1, dtype=torch.float64) / STATES


@dataclass(frozen=True, slots=True)
class Changed:
    """What a world with an added reward asks for."""

    weight: float
    states: int  # where its optimal actions are others
    worth: float  # what its best policy is worth in the true reward, of the true best


def changed(weights: Sequence[float], *, kind: str) -> list[Changed]:
    """Value iteration with the added reward, a line a weight: which states ask for another action, at what loss."""
    mdp, found = world(), []
    best, true = optimal_actions(mdp), value_iteration(mdp)
    for weight in weights:
        made = shaped(mdp, weight * potential()) if kind == "difference" else paid_besides(
            mdp, nearness(mdp, potential()), weight=weight)  # fmt: skip
        wanted = optimal_actions(made)
        greedy = torch.nn.functional.one_hot(value_iteration(made).argmax(-1), mdp.actions).double()
        worth = float(solve(mdp, greedy).J / (mdp.start @ true.amax(-1)))
        found.append(Changed(weight, int((wanted != best).any(-1).sum()), worth))
    return found


def trained(arm: str, seed: int, *, iterations: int = ITERATIONS) -> dict[str, Any]:
    """One run. ``curve``: exact J of each iteration's policy in the true reward, over the best there is.

    Returns:
        ``reach``: iterations until the curve is `ENOUGH` (all where it never is). ``final``: mean of the last quarter.
        ``spread``: deviation within it. ``weight``: λ at the end.
    """
    mdp, phi, weight = world(), potential(), WEIGHT
    cfg = PPOConfig(epochs=2, minibatches=2, lam=0.95, value_clip=None, value_coef=0.5, standardize="rollout")
    learner = PlainLearner(TabularActorCritic(mdp), actor_rate=0.06, critic_rate=0.06, device="cpu")
    best, curve = float(mdp.start @ value_iteration(mdp).amax(-1)), []
    for i in range(iterations):
        made = {"none": mdp, "difference": shaped(mdp, phi)}.get(arm) or paid_besides(
            mdp, nearness(mdp, phi), weight=weight)  # fmt: skip
        logits, value = tables(learner)
        rollout = sample(made, logits.softmax(-1), episodes=EPISODES, steps=STEPS, value=value, after_end="mask",
                         seed=seeding.key(seed, "rollout", i))  # fmt: skip
        if arm == "level, adaptive":
            base = torch.where(rollout.mask, mdp.reward[rollout.obs, rollout.action], 0.0).sum(-1)
            weight = next_shaping_weight(weight, zero_share(base))
        batch = step_batch(rollout, *advantages(rollout, gamma=mdp.gamma, lam=cfg.lam))
        ppo_update(learner, batch, assess, cfg, seed=seeding.key(seed, "update", i))
        curve.append(float(solve(mdp, tables(learner)[0].softmax(-1)).J) / best)
    late = curve[-(iterations // 4) :]
    reach = next((i + 1 for i, share in enumerate(curve) if share >= ENOUGH), iterations)
    return {"arm": arm, "seed": seed, "reach": reach, "final": round(statistics.fmean(late), 5),
            "spread": round(statistics.stdev(late), 6), "weight": round(weight, 4),
            "curve": " ".join(f"{share:.3f}" for share in curve[:: max(1, iterations // 40)])}  # fmt: skip


def of(rows: Sequence[dict[str, Any]], key: str, arm: str) -> list[float]:
    """A column of one arm, in order of the seeds."""
    return [float(row[key]) for row in rows if row["arm"] == arm]


def sooner(rows: Sequence[dict[str, Any]], arm: str) -> list[float]:
    """Share of the iterations to `ENOUGH` that an arm saves against no shaping, seed by seed."""
    return [1 - a / b for a, b in zip(of(rows, "reach", arm), of(rows, "reach", "none"), strict=True)]


def steadier(rows: Sequence[dict[str, Any]], arm: str) -> list[float]:
    """Share of the late deviation of J that goes against no shaping, seed by seed; never below -1."""
    pairs = zip(of(rows, "spread", arm), of(rows, "spread", "none"), strict=True)
    return [max(-1.0, 1 - a / b) if b else 0.0 if not a else -1.0 for a, b in pairs]
