"""Notebook 04: how often can one batch be used? Five ways to hold a policy back, in small random worlds solved exactly.

A seed is a world: eight states, four actions, an undecided policy, fifteen rounds of sixty-four steps each. The update
is `ppo_lab.update.ppo_update` itself. A gain of 0 is the policy at the start, 1 the best there is.

    python -m ppo_lab.course.experiments.reuse      # records all runs, some minutes
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ppo_lab import faults, seeding
from ppo_lab.config.ppo import PPOConfig
from ppo_lab.core.kl import categorical_kl, next_beta
from ppo_lab.exact.agent import TabularActorCritic, advantages, assess, sample, step_batch, train
from ppo_lab.exact.mdp import MDP, best_policy, mean_kl, random_mdp, solve
from ppo_lab.exact.trust_region import trpo_step
from ppo_lab.learners.plain import PlainLearner
from ppo_lab.records import UpdateMetrics
from ppo_lab.update import ppo_update

METHODS = ("surrogate", "clip", "fixed penalty", "adaptive penalty", "TRPO")
OBJECTIVE = {"surrogate": "surrogate", "clip": "clip", "fixed penalty": "kl_penalty", "adaptive penalty": "kl_penalty"}
EPOCHS, SEEDS, ITERATIONS = (1, 4, 10, 20, 40), tuple(range(20)), 15
ROWS, STEPS, RATE = 4, 16, 0.05
TARGET, DELTA = 0.03, 0.03  # nats
Adapt = Callable[[PPOConfig, float], PPOConfig]


class World(NamedTuple):
    """A world and the two ends of the scale."""

    mdp: MDP
    start: float  # J of the undecided policy
    best: float  # J of the best

    def gain(self, probs: Tensor) -> float:
        """0 at the start, 1 at the best."""
        return (solve(self.mdp, probs).J.item() - self.start) / (self.best - self.start)


class Round(NamedTuple):
    """One rollout and its update."""

    gain: float  # exact, after the update
    kl: float  # exact mean KL(old‖new) of this update over the states old visits, nats
    batch_kl: float  # the same over the states of the batch: what a controller may know
    cfg: PPOConfig  # settings that the update ran with
    update: UpdateMetrics | None  # None for TRPO


def world(seed: int) -> World:
    """A random world of that seed."""
    mdp = random_mdp(seed, 8, 4, gamma=0.9, ending=0.2)
    undecided = torch.full_like(mdp.reward, 1 / mdp.actions)
    return World(mdp, solve(mdp, undecided).J.item(), solve(mdp, best_policy(mdp)).J.item())


def config(objective: str, epochs: int, **more: Any) -> PPOConfig:
    """Settings that all methods share: the whole batch a step, no value clipping."""
    return PPOConfig(objective=objective, epochs=epochs, minibatches=1, value_clip=None, value_coef=0.5, **more)


def tables(here: World, rate: float = RATE) -> tuple[TabularActorCritic, PlainLearner]:
    """A fresh policy and critic, and the learner that owns them."""
    module = TabularActorCritic(here.mdp)
    return module, PlainLearner(module, actor_rate=rate, critic_rate=0.1, max_norm=None, device="cpu")


def rounds(
    seed: int, cfg: PPOConfig, *, iterations: int = ITERATIONS, adapt: Adapt | None = None, rate: float = RATE
) -> Iterator[Round]:
    """Rollout and update, again and again; ``adapt(cfg, kl)`` sets the next round's config from the KL of this one."""
    here = world(seed)
    module, learner = tables(here, rate)
    for i in range(iterations):
        old = module.probs
        key = seeding.key(seed, "round", i)
        (step,) = train(learner, here.mdp, cfg, episodes=ROWS, steps=STEPS, iterations=1, seed=key)
        measured = old if faults.active("kl_before_epochs") else step.probs
        kl = batch_kl(old, measured, step.rollout.obs)
        yield Round(here.gain(step.probs), mean_kl(here.mdp, old, step.probs).item(), kl, cfg, step.update)
        cfg = cfg if adapt is None else adapt(cfg, kl)


def batch_kl(old: Tensor, new: Tensor, obs: Tensor) -> float:
    """Mean KL(old‖new) over the states of a batch, nats."""
    return categorical_kl(old.log()[obs], new.log()[obs]).mean().item()


def trpo_rounds(seed: int, epochs: int, *, delta: float = DELTA, iterations: int = ITERATIONS) -> Iterator[Round]:
    """The same with one TRPO step a rollout; the critic sees the batch ``epochs`` times."""
    here, cfg = world(seed), config("surrogate", epochs)
    module, learner = tables(here)
    for i in range(iterations):
        old, value = module.probs, module.value.detach().clone()
        key = seeding.key(seed, "round", i)
        rollout = sample(here.mdp, old, episodes=ROWS, steps=STEPS, seed=seeding.key(key, "rollout", 0), value=value)
        batch = step_batch(rollout, *advantages(rollout, gamma=here.mdp.gamma, lam=cfg.lam))
        trpo_step(module, batch, delta=delta)
        ppo_update(learner, batch, assess, cfg, seed=key, actor=0.0)
        new = module.probs
        yield Round(here.gain(new), mean_kl(here.mdp, old, new).item(), batch_kl(old, new, rollout.obs), cfg, None)


def double_or_halve(cfg: PPOConfig, kl: float) -> PPOConfig:
    """β of the next round by the rule of the PPO paper."""
    beta = next_beta(cfg.penalty_beta, kl, target=TARGET, rule="double_or_halve")
    return cfg.model_copy(update={"penalty_beta": beta})


def run(method: str, epochs: int, seed: int) -> list[Round]:
    """One of `METHODS`, to the end."""
    if method == "TRPO":
        return [*trpo_rounds(seed, epochs)]
    adapt = double_or_halve if method == "adaptive penalty" else None
    return [*rounds(seed, config(OBJECTIVE[method], epochs), adapt=adapt)]


def study(
    methods: Iterable[str] = METHODS, epochs: Sequence[int] = EPOCHS, seeds: Sequence[int] = SEEDS
) -> list[dict[str, Any]]:
    """One row a run: the gain at the end and at its best, the mean and the largest KL of an update."""
    rows = []
    for method in methods:
        for count in epochs:
            for seed in seeds:
                seen = run(method, count, seed)
                gains, kls = [r.gain for r in seen], [r.kl for r in seen]
                rows.append({"method": method, "epochs": count, "seed": seed, "gain": round(gains[-1], 4),
                             "best": round(max(gains), 4), "kl": round(sum(kls) / len(kls), 5),
                             "largest_kl": round(max(kls), 5)})  # fmt: skip
    return rows


class Epoch(NamedTuple):
    """One pass over a batch that stays the same."""

    gain: float
    kl: float  # exact mean KL(old‖new) since the batch was sampled, nats
    silent: float  # share of the batch that the clipped surrogate leaves without a gradient
    outside: float  # share of the batch outside the band, on whichever side
    gradient: float  # length of the gradient


def one_batch(seed: int, cfg: PPOConfig, *, epochs: int, rate: float = RATE) -> list[Epoch]:
    """One rollout of the undecided policy, used again and again, watched after every pass. ``cfg.epochs`` is not used.

    The critic is exact at the start: what goes wrong is the policy's doing.
    """
    here = world(seed)
    module, learner = tables(here, rate)
    old = module.probs
    module.value.data.copy_(solve(here.mdp, old).value)
    rollout = sample(here.mdp, old, episodes=ROWS, steps=STEPS, seed=seeding.key(seed, "one batch"))
    batch = step_batch(rollout, *advantages(rollout, gamma=here.mdp.gamma, lam=cfg.lam), old_logits=module.logits)
    once, seen = cfg.model_copy(update={"epochs": 1}), []
    for epoch in range(epochs):
        found = ppo_update(learner, batch, assess, once, seed=seeding.key(seed, "epoch", epoch))
        kl = mean_kl(here.mdp, old, module.probs).item()
        seen.append(Epoch(here.gain(module.probs), kl, found.active_clip_fraction,
                          found.clip_fraction, found.gradient_norm))  # fmt: skip
    return seen


if __name__ == "__main__":
    from ppo_lab.course.recordings import record

    record("reuse", "python -m ppo_lab.course.experiments.reuse", study())
