"""Notebook 05: what the critic learns, by the real update on worlds whose values are known."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ppo_lab import seeding
from ppo_lab.config.ppo import PPOConfig
from ppo_lab.core.values import explained_variance
from ppo_lab.course.figures.gae import World, world
from ppo_lab.exact.agent import TabularActorCritic, advantages, assess, sample, step_batch, train
from ppo_lab.exact.mdp import MDP, grid
from ppo_lab.learners.plain import PlainLearner
from ppo_lab.update import ppo_update

CONTROL = PPOConfig(value_coef=0.5, value_clip=None, standardize="minibatch", minibatches=2)


# --- a time limit ----------------------------------------------------------------------------------------------------


def living(*, leave: float = 5.0, limit: int = 10) -> MDP:
    """A step pays 1 while one stays; the far corner ends it all and pays ``leave``. γ 0.9: staying is worth 10."""
    return grid(2, 2, living=1.0, ends={(1, 1): leave}, gamma=0.9, limit=limit)


@dataclass(frozen=True, slots=True)
class Life:
    """One training run under a time limit, after each iteration."""

    J: list[float]  # exact
    value: list[float]  # the critic's, of the first place
    left: list[float]  # exact chance that an episode terminates before the limit
    explained: list[float]  # explained variance, as a log shows it


def live(mdp: MDP, seed: int, *, iterations: int = 14) -> Life:
    """Train actor and critic; whatever is planted in `ppo_lab.faults` is in it."""
    module = TabularActorCritic(mdp)
    learner = PlainLearner(module, actor_rate=0.1, critic_rate=0.4, max_norm=None, device="cpu")
    run = Life([], [], [], [])
    for step in train(learner, mdp, CONTROL, episodes=16, steps=35, iterations=iterations, seed=seed):
        walk = torch.einsum("sa,sap->sp", step.probs, mdp.transition)
        stayed = mdp.start @ torch.linalg.matrix_power(walk, mdp.limit or 1)
        _, target = advantages(step.rollout, gamma=mdp.gamma, lam=CONTROL.lam)
        run.J.append(step.J)
        run.value.append(module.value[0].item())
        run.left.append(1 - float(stayed.sum()))
        run.explained.append(float(explained_variance(step.rollout.value, target)))
    return run


# --- value clipping and a target network -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CriticRun:
    """After each rollout: rms error of V against V^π in spreads of V^π, and what logs call explained variance."""

    error: list[float]
    explained: list[float]


def fit_critic(
    here: World, seed: int, *, value_clip: float | None = None, pace: float = 1.0, lam: float = 0.95, rollouts: int = 8
) -> CriticRun:
    """Train only the critic of a fixed policy, by the real update.

    Args:
        here: world, policy and their true values.
        seed: of the episodes and minibatches.
        value_clip: band around the old value, in units of the return.
        pace: a target network moves this share of the way to the critic after each rollout and gives the values of the
            next targets; 1 is the critic itself, as PPO has it.
        lam: λ of the targets V + Â.
        rollouts: how many.
    """
    module = TabularActorCritic(here.mdp, logits=here.probs.log())
    learner = PlainLearner(module, actor_rate=1e-3, critic_rate=0.1, max_norm=None, device="cpu")
    cfg = replace_config(CONTROL, value_clip=value_clip, lam=lam)
    slow, run = module.value.detach().clone(), CriticRun([], [])
    for i in range(rollouts):
        key = seeding.key(seed, "critic", i)
        seen = sample(here.mdp, here.probs, episodes=16, steps=64, seed=key, value=slow)
        advantage, target = advantages(seen, gamma=here.mdp.gamma, lam=lam)
        now = replace(seen, value=module.value.detach()[seen.obs])  # the band is around the critic, not its copy
        ppo_update(learner, step_batch(now, advantage, target), assess, cfg, seed=key, actor=0.0)
        value = module.value.detach()
        slow = slow + pace * (value - slow)
        run.error.append(float((value - here.value).square().mean().sqrt() / here.value.std(correction=0)))
        run.explained.append(float(explained_variance(now.value[seen.mask], target[seen.mask])))
    return run


def replace_config(cfg: PPOConfig, **changes: object) -> PPOConfig:
    """A checked copy with other settings."""
    return PPOConfig(**{**cfg.model_dump(), **changes})


def scaled(here: World, by: float) -> World:
    """The same world with every reward multiplied."""
    return here._replace(mdp=replace(here.mdp, reward=by * here.mdp.reward), value=by * here.value,
                         advantage=by * here.advantage)  # fmt: skip


# --- explained variance ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Explained:
    """A critic, the targets it is judged by, and two figures for it."""

    value: Tensor  # (N,) V of each step
    target: Tensor  # (N,) V + Â
    logged: float  # explained variance of the targets: what a log shows
    true: float  # the same against V^π


def explain(factor: float, lam: float, seed: int) -> Explained:
    """Judge the critic V = factor · V^π by targets made with λ."""
    here = world()
    seen = sample(here.mdp, here.probs, episodes=64, steps=100, seed=seeding.key(seed, "explain"),
                  value=factor * here.value, after_end="mask")  # fmt: skip
    _, target = advantages(seen, gamma=here.mdp.gamma, lam=lam)
    value, target, truth = seen.value[seen.mask], target[seen.mask], here.value[seen.obs[seen.mask]]
    return Explained(value, target, float(explained_variance(value, target)), float(explained_variance(value, truth)))
