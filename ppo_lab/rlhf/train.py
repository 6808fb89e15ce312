"""RLHF with PPO: the recipe (Ouyang et al. 2022; details after Huang et al. 2024).

One process on a CPU and N processes run the same sentences; a `Learner` hides who owns the weights. Left out on
purpose: asynchronous rollouts and replay. Random numbers are keyed by (seed, step, row), so a resumed run is the run.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path

import torch
from torch import Tensor

from ppo_lab import seeding
from ppo_lab.config import RLHFConfig
from ppo_lab.learners import processes
from ppo_lab.learners.rates import rate_multiplier
from ppo_lab.learners.watchdog import Watchdog
from ppo_lab.logbook import Logbook
from ppo_lab.records import StepMetrics, TextRollout, UpdateMetrics, take
from ppo_lab.update import ppo_update

from .assess import make_assess
from .ema import of_average
from .evaluate import evaluate
from .generate import generate, trim
from .lengths import of_lengths
from .measure import Clock, measure
from .prepare import prepare
from .score import Reward
from .steps import adapt, advantages, judge, leash_of, rewards_of, step_batch
from .tokens import nearest_words, unknown_words

log = logging.getLogger(__name__)


class Run:
    """One RLHF run in a folder. Iterating yields one `StepMetrics` a step and writes it down.

    Args:
        config: everything, as data.
        folder: where it is kept; ``runs/NAME`` if left out.
        reward: a callable in place of ``config.reward.sources``: ``reward(prompts, responses, **columns)``.
        resume: go on from the newest checkpoint, or from the start where there is none yet.

    Raises:
        ConfigError: whatever can be known to be wrong before work is done.
        RewardError: a reward fails on the first answers of the reference.

    `last_rollout`, `texts`, `held_out` and `generate` are there to look at.
    """

    def __init__(
        self,
        config: RLHFConfig,
        *,
        folder: str | Path | None = None,
        reward: Reward | None = None,
        resume: bool = False,
    ):
        self.config = config
        self.folder = Path(folder) if folder is not None else Path("runs") / config.name
        seeding.set_threads(config.threads)
        processes.join(config.learner.kind)
        hint = f"the last checkpoint in {self.folder}, if there is one, is whole: resume with --resume"
        self.watchdog = Watchdog.start(patience=config.learner.patience, hint=hint)
        self.logbook = Logbook.open(
            self.folder, config, resume=resume, keep=config.checkpoint.keep, trackers=config.log.trackers
        )
        self.parts = parts = prepare(config, self.folder, reward=reward)
        self.learner, self.scorer, self.texts = parts.learner, parts.scorer, parts.texts
        if config.policy.ema is not None:
            self.learner.keep_average()
        self.assess = make_assess(parts.lens)
        self.step, self.beta = 0, config.kl.beta
        self.last_rollout: TextRollout | None = None
        self._asked, self._saved = False, -1
        saved = self.logbook.resume_from() if resume else None
        if saved is None:
            seeding.seed_globals(config.seed)
            parts.fit_normalizers()
        else:
            self._load(*saved)

    def __iter__(self) -> Iterator[StepMetrics]:
        """Steps until ``config.steps``. Every station is one sentence; the maths is in `core`."""
        cfg, learner, parts = self.config, self.learner, self.parts
        self._start()
        while self.step < cfg.steps and not self._stop:
            clock = Clock()
            with self.logbook.saving_on_error(self):
                # 1 the next prompts; my share of them is answered
                prompts = parts.prompts_at(self.step)
                rows = learner.share(len(prompts))
                noise = seeding.uniforms(cfg.seed, self.step, range(len(prompts))[rows], cfg.sampling.max_new_tokens)
                with learner.whole() as actor:
                    mine = generate(actor.policy, take(prompts, rows), noise=noise, version=learner.optimizer_steps,
                                    **parts.sampling)  # fmt: skip
                responses = trim(learner.gather(mine))
                clock.lap("rollout")
                # 2 four models look at every answer
                rollout = judge(learner, take(responses, rows), self.scorer, self.texts, parts.lens, cfg)
                rollout = learner.gather(rollout)
                # 3 KL on each token, the score on the last
                reward = rewards_of(rollout, beta=self.beta, cfg=cfg.kl, placement=cfg.reward.placement)
                # 4 credit flows back
                advantage, target = advantages(rollout, reward, cfg.ppo)
                # 5 one batch, complete, the same on every rank
                batch = step_batch(rollout, advantage, target, cfg=cfg.kl, cap=cfg.sampling.max_new_tokens)
                clock.lap("score")
            # 6 epochs of clipped steps; a warming critic learns alone
            rate = rate_multiplier(self.step, cfg.optimizer, total=cfg.steps)
            actor_rate = 0.0 if self.step < cfg.critic.warmup else rate
            per_step = cfg.ppo.epochs * cfg.ppo.minibatches
            beside = None if parts.mix is None else parts.mix.beside(self.step, steps=per_step)
            update = ppo_update(learner, batch, self.assess, cfg.ppo, seed=seeding.key(cfg.seed, self.step),
                                actor=actor_rate, critic=rate, leash=leash_of(self.beta, cfg.kl),
                                beside=beside)  # fmt: skip
            if cfg.policy.ema is not None:
                learner.average(cfg.policy.ema)
            clock.lap("update")
            # 7 the next β holds the KL near its target
            beta, self.beta = self.beta, adapt(self.beta, rollout, cfg.kl)
            self.step, self.last_rollout = self.step + 1, rollout
            # 8 say what happened, and write it down
            yield self._record(rollout, reward, advantage, target, update, beta, (actor_rate, rate), clock)
        if self._saved != self.step:
            self.save()

    def generate(self, prompts: list[str], *, greedy: bool = False, seed: int | None = None) -> list[str]:
        """Answers of the present policy to any prompts, in words; warns of words that it cannot read."""
        tokenizer = self.parts.tokenizer
        if unknown := unknown_words(tokenizer, prompts):
            log.warning("the model does not know these words of a prompt and reads %s instead: %s",
                        tokenizer.unk_token, nearest_words(tokenizer, unknown))  # fmt: skip
        encoded = self.parts.encode(prompts)
        steps = self.config.sampling.max_new_tokens
        noise = seeding.uniforms(self.config.seed if seed is None else seed, "sample", range(len(prompts)), steps)
        with self.learner.whole() as actor:
            answers = generate(actor.policy, encoded, noise=None if greedy else noise, **self.parts.sampling)
        return self.texts.responses_of(answers)

    @property
    def sample_prompts(self) -> list[str]:
        """A few held-out prompts, the ones of ``samples.jsonl``."""
        return self.parts.held_out.texts.prompts[: self.config.log.samples]

    def stop(self) -> None:
        """Finish this step, write a checkpoint, end the iteration."""
        self._asked = True

    @property
    def _stop(self) -> bool:
        """Whether any rank was asked to stop: all end after the same step."""
        return self.learner.total(int(self._asked)) > 0

    def save(self) -> None:
        """A checkpoint of the last finished step."""
        state = {
            "beta": self.beta,
            "normalizers": self.scorer.state(),
            "prompts": self.parts.order.state(),
            "reference_sha256": self.parts.reference_sha256,
            "threads": torch.get_num_threads(),
            "rng": seeding.rng_state(),
        }
        self.logbook.save(self.step, self.learner.state(), state)
        self._saved = self.step

    def close(self) -> None:
        """Flush the trackers; tell the other ranks that this one has ended."""
        self.logbook.close()
        if self.watchdog is not None:
            self.watchdog.close()

    def _load(self, tensors: Mapping[str, Tensor], state: dict) -> None:
        self.parts.check_reference(state["reference_sha256"])
        self.learner.load(tensors)
        self.scorer.load(state["normalizers"])
        self.parts.order.load(state["prompts"])
        self.step = self._saved = state["step"]
        self.beta = state["beta"]
        seeding.set_rng_state(state["rng"])

    def _start(self) -> None:
        """Before the first step: how good is the untouched policy on held-out prompts?"""
        self._asked = False
        if self.step == 0 and not self.logbook.has_baseline():
            baseline, samples = evaluate(self.learner, self.parts.held_out, self.config)
            self.logbook.samples(0, samples)
            self.logbook.note_baseline(asdict(baseline))

    def _record(
        self,
        rollout: TextRollout,
        reward: Tensor,
        advantage: Tensor,
        target: Tensor,
        update: UpdateMetrics,
        beta: float,
        multipliers: tuple[float, float],
        clock: Clock,
    ) -> StepMetrics:
        cfg = self.config
        rates = (cfg.optimizer.actor_rate * multipliers[0], cfg.optimizer.critic_rate * multipliers[1])
        lengths = of_lengths(rollout, reward, advantage, cap=cfg.sampling.max_new_tokens,
                             centred=cfg.ppo.standardize != "none")  # fmt: skip
        metrics = measure(self.step, rollout, reward, advantage, target, update, beta=beta, rates=rates, clock=clock,
                          lengths=lengths)  # fmt: skip
        self.parts.order.learn(rollout)  # which prompts the next step draws
        better = False
        with self.logbook.saving_on_error(self):
            try:
                metrics = replace(metrics, gold_mean=self.parts.gold_of(rollout))
                if self.step == cfg.steps or self.step % cfg.evaluation.every == 0:
                    evaluation, samples = evaluate(self.learner, self.parts.held_out, cfg)
                    self.logbook.samples(self.step, samples)
                    better = self.logbook.note_best(self.step, evaluation.eval_objective)
                    average = {} if cfg.policy.ema is None else of_average(self.learner, self.parts.held_out, cfg)
                    metrics = replace(metrics, evaluation=replace(evaluation, **average))
            finally:  # a reward that fails in an evaluation costs the evaluation, not the step
                self.logbook.log(metrics.row())
        if better or self.step == cfg.steps or self.step % cfg.checkpoint.every == 0:
            self.save()
        return metrics
