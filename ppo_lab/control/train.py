"""Control with policy gradients: one recipe (Schulman et al. 2017, algorithm 1; details after Huang et al. 2022).

REINFORCE, A2C, PPO-clip and PPO with a KL penalty are settings of it, and TRPO differs in one sentence. Random numbers
are keyed by (seed, step), and environments start anew after every checkpoint, so a resumed run is the run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ppo_lab import seeding
from ppo_lab.config import ControlConfig
from ppo_lab.config.ppo import PPOConfig
from ppo_lab.learners.plain import PlainLearner
from ppo_lab.learners.rates import rate_multiplier
from ppo_lab.logbook import Logbook
from ppo_lab.metrics.cost import Clock
from ppo_lab.records import ControlMetrics, StepBatch, UpdateMetrics
from ppo_lab.update import ppo_update

from .collect import Collected, Collector
from .evaluate import Evaluator
from .exploration import make_bonuses
from .make import make_envs
from .measure import measure
from .normalize import Normalizers
from .policy import ActorCritic, actions_of
from .steer import Knobs, settings, turned
from .steps import credit, make_assess, policy_kl, step_batch
from .trpo import NaturalStep, trpo_update


class Run:
    """One control run in a folder. Iterating yields one `ControlMetrics` an update and writes it down.

    Args:
        config: everything, as data.
        folder: where it is kept; ``runs/NAME`` if left out.
        resume: go on from the newest checkpoint, or from the start where there is none yet.

    Raises:
        ConfigError: whatever can be known to be wrong before work is done.

    `last` (rollout, episodes, heads), `last_batch`, `learner`, `evaluate` and `play` are there to look at.
    """

    def __init__(self, config: ControlConfig, *, folder: str | Path | None = None, resume: bool = False):
        self.config = config
        self.folder = Path(folder) if folder is not None else Path("runs") / config.name
        seeding.set_threads(config.threads)
        self.envs = make_envs(config.env)
        self.logbook = Logbook.open(
            self.folder, config, resume=resume, keep=config.checkpoint.keep, trackers=config.log.trackers
        )
        seeding.seed_globals(config.seed)
        self.actions = actions_of(self.envs.action_space)
        shape = self.envs.observation_space.shape or ()
        self.normalizers = Normalizers(config.normalize, shape, config.ppo.gamma)
        self.bonuses = make_bonuses(config.shaping, config.exploration, shape, gamma=config.ppo.gamma, seed=config.seed)
        self.collector = Collector(self.envs, self.actions, self.normalizers, self.bonuses)
        self.evaluator = Evaluator(config, self.actions, self.normalizers)
        self.learner = make_learner(config, shape, self.actions)
        self.assess = make_assess(self.actions, exact_kl=config.penalized)
        self.step, self.knobs = 0, Knobs.first(config)
        self.last: Collected | None = None
        self.last_batch: StepBatch | None = None
        self._stop, self._saved = False, -1
        saved = self.logbook.resume_from() if resume else None
        if saved is not None:
            self._load(*saved)
        self._restart()

    def __iter__(self) -> Iterator[ControlMetrics]:
        """Updates until ``config.steps``. Every station is one sentence; the maths is in `core`."""
        cfg, learner = self.config, self.learner
        self._start()
        while self.step < cfg.steps and not (self._stop and self._saved == self.step):
            clock = Clock()
            # 1 what this update's ε, c2, λ, β and rates are
            ppo = settings(self.step, cfg, self.knobs)
            rate = rate_multiplier(self.step, cfg.optimizer, total=cfg.steps)
            actor_rate = 0.0 if self.step < cfg.critic_warmup else rate
            # 2 the policy acts in all environments; what it saw and did is kept
            noise = self.actions.noise(cfg.rollout, cfg.env.count, draw=seeding.generator(cfg.seed, "act", self.step))
            with learner.whole() as module:
                collected = self.collector.collect(module, noise)  # type: ignore[arg-type]
            clock.lap("rollout")
            # 3 credit flows back, past a cut by the critic's word, never past an end
            advantage, target = credit(collected.rollout, ppo, cfg.advantage)
            # 4 one batch of single steps
            batch = step_batch(collected, advantage, target)
            clock.lap("score")
            # 5 epochs of bounded steps, or one natural step inside the trust region
            update, natural = self._improve(batch, ppo, actor_rate, rate)
            with learner.whole() as module:
                module.follow()  # type: ignore[operator]
            # 6 how far the policy has moved sets the next β, ε, λ, δ
            kl, spread = policy_kl(learner, batch, self.actions), float(batch.advantage.std(correction=0))
            knobs = self.knobs
            self.knobs = turned(knobs, cfg, kl=kl, spread=spread, step=natural, n_steps=len(batch))
            clock.lap("update")
            # 7 the next rollout is seen with what this one showed
            self.normalizers.learn_observations(collected.raw_obs.reshape(-1, *self.collector.shape))
            self.step, self.last, self.last_batch = self.step + 1, collected, batch
            # 8 say what happened, and write it down
            rates = (cfg.optimizer.actor_rate * actor_rate, cfg.optimizer.critic_rate * rate)
            metrics = measure(self.step, self.step * cfg.rows, collected, advantage, target, update, kl=kl, ppo=ppo,
                              actions=self.actions, rates=rates, clock=clock,
                              extra=self._extra(knobs, natural))  # fmt: skip
            yield self._record(metrics)

    def evaluate(self, *, episodes: int | None = None, greedy: bool = True, name: int | str = "asked") -> Tensor:
        """Returns of the present policy on fresh environments, (episodes,); ``name`` keys their start states."""
        played = self.evaluator.episodes(self.learner, name, greedy=greedy, episodes=episodes)
        return torch.from_numpy(played.returns)

    def stop(self) -> None:
        """Go on to the next checkpoint and end the iteration there: environments cannot be saved in mid-episode."""
        self._stop = True

    def save(self) -> None:
        """A checkpoint of the last finished update; the environments start anew after it, here as in a resumed run."""
        state = {
            "knobs": self.knobs.state(),
            "normalizers": self.normalizers.state(),
            "bonuses": {name: bonus.state() for name, bonus in self.bonuses.items()},
            "threads": torch.get_num_threads(),
            "rng": seeding.rng_state(),
        }
        self.logbook.save(self.step, self.learner.state(), state)
        self._saved = self.step
        self._restart()

    def close(self) -> None:
        """Flush the trackers, let go of the environments."""
        self.logbook.close()
        self.evaluator.close()
        self.envs.close()

    def _improve(
        self, batch: StepBatch, ppo: PPOConfig, actor: float, critic: float
    ) -> tuple[UpdateMetrics, NaturalStep | None]:
        cfg, seed = self.config, seeding.key(self.config.seed, self.step)
        if cfg.algorithm == "ppo":
            return ppo_update(self.learner, batch, self.assess, ppo, seed=seed, actor=actor, critic=critic), None
        return trpo_update(
            self.learner, batch, self.assess, self.actions, ppo, cfg.trust_region, seed=seed, delta=self.knobs.delta,
            critic=critic, frozen=actor == 0,
        )  # fmt: skip

    def _extra(self, knobs: Knobs, natural: NaturalStep | None) -> dict[str, float | None]:
        """What only some runs have."""
        return {
            "penalty_beta": knobs.beta if self.config.penalized else None,
            "delta": knobs.delta if natural is not None else None,
            "backtracks": natural.accepted if natural is not None else None,
            "reward_scale": self.normalizers.reward_scale,
            "bonus_mean": self.last.bonus if self.last is not None else None,
        }

    def _restart(self) -> None:
        self.collector.reset(seeding.key(self.config.seed, "envs", self.step) % 2**31)

    def _load(self, tensors: Mapping[str, Tensor], state: dict[str, Any]) -> None:
        self.learner.load(tensors)
        self.normalizers.load(state["normalizers"])
        for name, bonus in self.bonuses.items():
            bonus.load(state["bonuses"][name])
        self.knobs = Knobs(**state["knobs"])
        self.step = self._saved = state["step"]
        seeding.set_rng_state(state["rng"])

    def _start(self) -> None:
        """Before the first update: how good is the untouched policy?"""
        self._stop = False
        if self.step == 0 and not (self.folder / "baseline.json").exists():
            self.logbook.note_baseline(asdict(self.evaluator.evaluate(self.learner, 0)))

    def _record(self, metrics: ControlMetrics) -> ControlMetrics:
        cfg, last = self.config, self.step == self.config.steps
        if last or self.step % cfg.evaluation.every == 0:
            metrics = replace(metrics, evaluation=self.evaluator.evaluate(self.learner, self.step))
        self.logbook.log(metrics.row())
        if last or self.step % cfg.checkpoint.every == 0:  # the best is sought among steps that are kept
            if metrics.evaluation is not None:
                self.logbook.note_best(self.step, metrics.evaluation.eval_return)
            self.save()
        return metrics


def make_learner(config: ControlConfig, shape: tuple[int, ...], actions: Any) -> PlainLearner:
    """Actor, critic and their optimizer, on the CPU: networks this small are slower anywhere else."""
    draw = seeding.generator(config.seed, "weights")
    optimizer, observed = config.optimizer, int(torch.Size(shape).numel())
    return PlainLearner(
        ActorCritic(config.net, observed, actions, draw).eval(), actor_rate=optimizer.actor_rate, eps=optimizer.eps,
        critic_rate=optimizer.critic_rate, betas=optimizer.betas, weight_decay=optimizer.weight_decay,
        max_norm=optimizer.max_norm, device="cpu", fused=True,
    )  # fmt: skip
