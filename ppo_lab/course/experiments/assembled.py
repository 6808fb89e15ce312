"""Notebook 06: the parts of the objective, one turned at a time in the real trainer; probes; a Gaussian policy."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import torch

from ppo_lab import faults, seeding
from ppo_lab.config import ControlConfig, load_config
from ppo_lab.config.ppo import PPOConfig
from ppo_lab.control import Run
from ppo_lab.control.probes import GAMMA, PROBES
from ppo_lab.control.trpo import NaturalStep
from ppo_lab.core.values import explained_variance
from ppo_lab.exact.mdp import best_policy, solve
from ppo_lab.records import Assessment, StepBatch, UpdateMetrics
from ppo_lab.update import ppo_update

SHORT = ("total_steps=40960", "evaluation.every=20")  # twenty updates of CartPole
VARIANTS: dict[str, tuple[str, ...]] = {  # what is set on top of control/start
    **{f"separate, c1 {c1}": (f"ppo.value_coef={c1}",) for c1 in (0.5, 2, 8)},
    **{f"shared, c1 {c1}": ("net.trunk=shared", f"ppo.value_coef={c1}") for c1 in (0.01, 0.1, 0.5, 2, 8)},
    "c2 0.01": ("ppo.entropy_coef=0.01",),
    "c2 0.1": ("ppo.entropy_coef=0.1",),
    "c2 0.1 to 0.01": ("ppo.entropy_coef=0.1", "schedule.entropy_coef=0.01"),
    "alternating": (),
    "rates 3e-4, 3e-4": ("optimizer.actor_rate=3e-4", "optimizer.critic_rate=3e-4"),
    "rates 3e-4, 1e-3": ("optimizer.actor_rate=3e-4", "optimizer.critic_rate=1e-3"),
}


class Studied(Run):
    """A run that also notes how well the critic fits the rollout that it was just trained on.

    Args:
        config: of the run.
        alternating: first all epochs of the actor, then all of the critic, in place of one loss for both.
    """

    def __init__(self, config: ControlConfig, *, alternating: bool = False, **where: Any):
        super().__init__(config, **where)
        self.alternating, self.fit = alternating, list[float]()

    def _improve(
        self, batch: StepBatch, ppo: PPOConfig, actor: float, critic: float
    ) -> tuple[UpdateMetrics, NaturalStep | None]:
        if self.alternating:
            seed = seeding.key(self.config.seed, self.step)
            update = ppo_update(self.learner, batch, self.assess, ppo, seed=seed, actor=actor, critic=0.0)
            ppo_update(self.learner, batch, self.assess, ppo, seed=seed + 1, actor=0.0, critic=critic)
            found: tuple[UpdateMetrics, NaturalStep | None] = update, None
        else:
            found = super()._improve(batch, ppo, actor, critic)
        with torch.no_grad():
            value = self.learner.forward(obs=batch.inputs.obs)[1]
        self.fit.append(float(explained_variance(value, batch.return_)))
        return found


def turned(variant: str, seed: int, settings: Sequence[str] = SHORT) -> dict[str, Any]:
    """One run of one variant on top of ``settings``.

    Returns:
        ``return`` a mean over all updates (the last known where no episode ended), ``final`` greedy; explained variance
        of the critic on the rollout it was ``fit`` to, after the update, and on the next one, ``fresh``, before it;
        ``entropy`` at the end; ``kl`` a mean over the updates, exact.
    """
    if variant not in VARIANTS:
        raise ValueError(f"variant must be one of {', '.join(VARIANTS)}, got {variant!r}; choose one of these")
    config = _config("control/start", *settings, *VARIANTS[variant], f"seed={seed}")
    with tempfile.TemporaryDirectory() as folder:
        run = Studied(config, alternating=variant == "alternating", folder=folder)
        steps = [*run]
        run.close()
    known, last = [], 0.0
    for step in steps:
        last = last if step.episode_return is None else step.episode_return
        known.append(last)
    assert steps[-1].evaluation is not None
    return {
        "variant": variant, "seed": seed, "return": _mean(known), "final": steps[-1].evaluation.eval_return,
        "fit": _mean(run.fit[:-1]), "fresh": _mean([step.explained_variance for step in steps[1:]]),
        "entropy": steps[-1].update.entropy, "kl": _mean([step.policy_kl_exact for step in steps]),
    }  # fmt: skip


Update = Callable[[torch.nn.Module, torch.optim.Optimizer, StepBatch, Callable[[Any], Assessment]], None]


class Yours(Run):
    """A run whose update is a function of the reader's: ``update(module, optimizer, batch, assess)``."""

    def __init__(self, config: ControlConfig, update: Update, **where: Any):
        super().__init__(config, **where)
        self.update = update
        self.adam = torch.optim.Adam(self.learner.module.parameters(), lr=config.optimizer.actor_rate, eps=1e-5)

    def _improve(
        self, batch: StepBatch, ppo: PPOConfig, actor: float, critic: float
    ) -> tuple[UpdateMetrics, NaturalStep | None]:
        self.update(self.learner.module, self.adam, batch, lambda inputs: self.assess(self.learner, inputs))
        once = ppo.model_copy(update={"epochs": 1, "minibatches": 1})  # rates 0: it only says what there is
        return ppo_update(self.learner, batch, self.assess, once, seed=0, actor=0.0, critic=0.0), None


def trained_by(update: Update, seed: int = 0, settings: Sequence[str] = ("total_steps=24576",)) -> list[float]:
    """Returns of the episodes on CartPole, one an update, where the reader's ``update`` does the learning."""
    with tempfile.TemporaryDirectory() as folder:
        run = Yours(_config("control/start", *settings, "evaluation.every=1000", f"seed={seed}"), update, folder=folder)
        found = [step.episode_return for step in run]
        run.close()
    return [x for x in found if x is not None]


def swung(seed: int, planted: str = "", settings: Sequence[str] = ()) -> list[dict[str, Any]]:
    """One run of a Gaussian policy on Pendulum, a row an update; with a fault of `ppo_lab.faults` or without."""
    with tempfile.TemporaryDirectory() as folder, faults.planted(planted) if planted else nullcontext():
        run = Run(_config("control/pendulum", "total_steps=64000", *settings, f"seed={seed}"), folder=folder)
        rows = [
            {"seed": seed, "planted": planted, "env_steps": step.env_steps, "return": step.episode_return,
             "action_std": step.action_std, "final": step.evaluation and step.evaluation.eval_return}
            for step in run
        ]  # fmt: skip
        run.close()
    return rows


def probe(name: str, seed: int = 0, planted: Sequence[str] = ()) -> dict[str, Any]:
    """Train on a probe environment and compare critic and policy with the solved world.

    Returns:
        ``expected`` and ``found``: the critic's V of each state where the actions do not matter, else the chance of the
        best action in each; ``error``, their largest gap.
    """
    settings = {
        "name": name, "seed": seed, "env": {"id": f"probe/{name}", "count": 32}, "rollout": 20, "total_steps": 12_800,
        "ppo": {"gamma": GAMMA, "epochs": 4, "minibatches": 2},
        "optimizer": {"actor_rate": 1e-2, "critic_rate": 1e-2}, "net": {"hidden": (16,)},
        "evaluation": {"every": 1000, "episodes": 1, "most_steps": 20}, "checkpoint": {"every": 1000},
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder, faults.planted(*planted) if planted else nullcontext():
        run = Run(ControlConfig(**settings), folder=folder)
        list(run)
        with run.learner.whole() as module, torch.no_grad():
            head, value = module(torch.eye(PROBES[name].states))
        run.close()
    mdp = PROBES[name]
    best = best_policy(mdp)
    if mdp.actions == 1:
        expected, found = solve(mdp, best).value.tolist(), value.tolist()
    else:
        expected, found = [1.0] * mdp.states, (head.softmax(-1).double() * best).sum(-1).tolist()
    return {"name": name, "expected": expected, "found": found,
            "error": max(abs(a - b) for a, b in zip(expected, found, strict=True))}  # fmt: skip


def _config(name: str, *overrides: str) -> ControlConfig:
    config = load_config(name, list(overrides))
    assert isinstance(config, ControlConfig)
    return config


def _mean(x: Sequence[float]) -> float:
    return sum(x) / len(x)
