"""Notebook 02: baselines against exact gradients, by listing every batch, and on random worlds."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import torch
from torch import Tensor

from ppo_lab import seeding
from ppo_lab.config.ppo import PPOConfig
from ppo_lab.course.experiments.reinforce import WEIGHTS, episode_gradients
from ppo_lab.exact.agent import Progress, TabularActorCritic, train
from ppo_lab.exact.mdp import MDP, corridor, random_mdp, solve
from ppo_lab.learners.plain import PlainLearner


def expected_gradient(probs: Tensor, reward: Tensor, *, batch: int, baseline: str) -> Tensor:
    """The exact mean of a batch's gradient, (K,), summed over all K^batch batches that there are.

    ``baseline`` is "none", "batch mean" or "leave-one-out", as the package's advantages have them.
    """
    arms = torch.tensor([*product(range(len(probs)), repeat=batch)])
    chance = probs[arms].prod(-1)
    score = torch.eye(len(probs), dtype=probs.dtype) - probs
    gradient = (WEIGHTS[baseline](reward[arms])[..., None] * score[arms]).mean(1)
    return chance @ gradient


def study_world(seed: int, offset: float = 0.0) -> tuple[MDP, Tensor]:
    """A random world whose episodes terminate, with ``offset`` on the reward of every step, and random logits."""
    mdp = random_mdp(seed, ending=0.5, gamma=1.0)
    logits = torch.randn(mdp.reward.shape, generator=seeding.generator("baselines", seed), dtype=torch.float64)
    moved = MDP(transition=mdp.transition, reward=mdp.reward + offset, start=mdp.start, gamma=1.0)
    return moved, logits


def variance_cut(seeds: Sequence[int], *, offset: float = 0.0, episodes: int = 1000) -> Tensor:
    """What share of the gradient's variance goes when the return becomes an advantage, G - V, V exact. (seeds,)."""
    found = []
    for seed in seeds:
        mdp, logits = study_world(seed, offset)
        value = solve(mdp, logits.softmax(-1)).value
        g = episode_gradients(mdp, logits, episodes=episodes, seed=seed, baselines={"advantage": value})
        found.append(1 - g["advantage"].var(0).sum() / g["to go"].var(0).sum())
    return torch.stack(found)


def critic_run(c1: float, *, seed: int = 0, iterations: int = 60) -> list[Progress]:
    """Actor and critic by the real trainer on a slippery corridor, one step a rollout of 16 whole episodes."""
    mdp = critic_world()
    cfg = PPOConfig(epochs=1, minibatches=1, lam=1.0, value_clip=None, value_coef=c1, standardize="none")
    learner = PlainLearner(TabularActorCritic(mdp), actor_rate=0.05, critic_rate=0.15, device="cpu")
    return [*train(learner, mdp, cfg, episodes=16, steps=50, iterations=iterations, seed=seed, after_end="mask")]


def critic_world() -> MDP:
    """The corridor of `critic_run`."""
    return corridor(5, slip=0.1, gamma=0.9)


def value_gaps(steps: Sequence[Progress]) -> Tensor:
    """The critic less the exact V of the policy that it judged, mean over the steps seen, one number an iteration."""
    mdp, gaps = critic_world(), []
    probs = torch.full_like(mdp.reward, 1 / mdp.actions)
    for step in steps:
        seen = step.rollout
        exact = solve(mdp, probs).value[seen.obs]
        gaps.append((seen.value - exact)[seen.mask].mean())
        probs = step.probs
    return torch.stack(gaps)
