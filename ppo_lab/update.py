"""The one PPO update, shared by language and control, by one process and many.

Every rank holds the whole batch; advantages, permutation and weights are computed on it identically and only forward
passes are shared out. A loss is a weighted *sum* whose weights were made once from the whole minibatch, so
micro-batches and ranks change nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from ppo_lab import faults, seeding
from ppo_lab.config.ppo import PPOConfig
from ppo_lab.core.importance import log_ratio
from ppo_lab.core.kl import k1, k2, k3
from ppo_lab.core.masking import masked_sum, select, standardize, step_weights, upcast
from ppo_lab.core.objectives import (
    active_clip_fraction,
    clip_fraction,
    clipped_surrogate,
    kl_penalized,
    log_band,
    reinforce,
    surrogate,
)
from ppo_lab.core.values import clipped_value_error, value_clip_fraction, value_error
from ppo_lab.learners import Learner
from ppo_lab.learners.collectives import rounds
from ppo_lab.learners.collectives import share as share_of
from ppo_lab.records import HISTOGRAM_EDGES, Assessment, StepBatch, UpdateMetrics, take

Assess = Callable[[Learner, Any], Assessment]
Beside = Callable[[Learner, int], float]  # adds a loss of its own to the n-th minibatch; its value over all ranks
SUMS = ("policy", "value", "steps", "entropy", "k1", "k3", "outside", "active", "value_outside", "ref_kl")
MOST_LOG = 709.0  # above it e^x is no float64


@dataclass(frozen=True)
class Leash:
    """KL(π‖π_ref) inside the loss; β 0 where it stands in the reward. Rising β: nearer to the reference."""

    beta: float = 0.0
    estimator: str = "k2"


def ppo_update(
    learner: Learner,
    batch: StepBatch,
    assess: Assess,
    cfg: PPOConfig,
    *,
    seed: int,
    actor: float = 1.0,
    critic: float = 1.0,
    leash: Leash = Leash(),
    beside: Beside | None = None,
) -> UpdateMetrics:
    """Epochs of minibatch steps on one rollout (Schulman et al. 2017, algorithm 1).

    Args:
        learner: owns the weights.
        batch: the whole rollout, the same on every rank.
        assess: ``(learner, inputs) -> Assessment``, the only thing that knows what a sample is.
        cfg: objective, epochs, minibatches, clip, …
        seed: key of the permutations.
        actor, critic: multipliers of the base rates; actor 0 freezes the policy (critic warm-up).
        leash: KL to the reference in the loss.
        beside: a second loss of the policy, such as `rlhf.ptx`; called once a minibatch that moves the policy.

    Returns:
        Means over every valid step looked at, in all minibatches of all epochs.
    """
    if cfg.standardize == "rollout":
        batch = replace(batch, advantage=standardized(batch, learner.world))
    tally, policy_on = Tally(), actor > 0
    for epoch in range(cfg.epochs):
        order = seeding.permutation(len(batch), seed, "minibatches", epoch)
        for rows in torch.tensor_split(order, min(cfg.minibatches, len(batch))):
            part = take(batch, rows.to(batch.mask.device))
            sums, bins, widest = accumulate(learner, part, assess, cfg, leash, policy_on=policy_on)
            if policy_on and cfg.target_kl is not None and sums["k3"] > 1.5 * cfg.target_kl * sums["steps"]:
                policy_on, tally.early_stop = False, 1
            if policy_on and beside is not None:
                tally.beside.append(beside(learner, len(tally.norms)))
            norm = learner.step(actor=actor if policy_on else 0.0, critic=critic)
            tally.add(sums, bins, widest, norm, moved=policy_on)
    return tally.metrics(cfg, leash)


def standardized(batch: StepBatch, world: int) -> Tensor:
    """Advantages with one mean and deviation over the valid steps of all ranks."""
    if not faults.active("whitened_per_rank"):
        return standardize(batch.advantage, batch.mask)
    shares = [share_of(len(batch), rank, world) for rank in range(world)]
    return torch.cat([standardize(batch.advantage[rows], batch.mask[rows]) for rows in shares])


def accumulate(
    learner: Learner, part: StepBatch, assess: Assess, cfg: PPOConfig, leash: Leash, *, policy_on: bool
) -> tuple[dict[str, float], Tensor, Tensor]:
    """Gradients of one minibatch, summed over micro-batches and ranks.

    Returns:
        Sums by name, counts of log-ratios in 41 bins, and the largest (log r, |r-1|), all of the whole minibatch.
    """
    if cfg.standardize == "minibatch":
        part = replace(part, advantage=standardize(part.advantage, part.mask))
    weight = step_weights(part.mask, cfg.reduction, length=row_length(part, cfg), dtype=upcast(part.advantage).dtype)
    micro = cfg.micro_batch or len(part)
    sums = torch.zeros(len(SUMS), dtype=torch.float64)
    bins = torch.zeros(len(HISTOGRAM_EDGES) + 1, dtype=torch.float64)
    widest = torch.tensor([-math.inf, 0.0], dtype=torch.float64)
    for rows in rounds(len(part), world=learner.world, rank=learner.rank, micro=micro):
        empty = rows.start >= rows.stop  # an equal number of forwards on all ranks: look at row 0, count nothing
        whole = (rows.start, rows.stop) == (0, len(part))
        few = part if whole else take(part, slice(0, 1) if empty else rows)
        share = weight[:1] * 0 if empty else weight[rows]
        if empty:
            few = replace(few, mask=few.mask & False)
        seen = assess(learner, few.inputs)
        loss, terms, lr = loss_and_sums(seen, few, share, cfg, leash, policy_on=policy_on)
        learner.accumulate(loss)
        valid = lr.flatten() if bool(few.mask.all()) else lr[few.mask]
        sums += terms
        bins += torch.bincount(torch.bucketize(valid, edges(valid.device)).cpu(), minlength=len(bins))
        if valid.numel():
            here = torch.stack([valid.max(), torch.expm1(valid).abs().max()]).double().cpu()
            widest = torch.maximum(widest, here)
    totals = learner.total(torch.cat([sums, bins]))
    widest = learner.gather(widest[None]).amax(0)
    return dict(zip(SUMS, totals[: len(SUMS)].tolist(), strict=True)), totals[len(SUMS) :], widest


@lru_cache
def edges(device: torch.device) -> Tensor:
    """Inner edges of the histogram of log ratios."""
    return torch.tensor(HISTOGRAM_EDGES, device=device)


def row_length(part: StepBatch, cfg: PPOConfig) -> int | None:
    """The constant of the reduction ``fixed_length``; None for the others.

    It is the batch's ``length``, never the width of its tensors: answers are trimmed to the longest, which would then
    set the size of everyone's step. Single steps ``(N,)`` are rows of length 1.
    """
    if cfg.reduction != "fixed_length":
        return None
    if part.mask.dim() == 1:
        return len(part)
    if part.length is None or part.length < part.mask.shape[-1]:
        raise ValueError(
            f"ppo.reduction fixed_length needs StepBatch.length of at least the {part.mask.shape[-1]} steps of a row, "
            f"got {part.length}; give the cap of an answer (sampling.max_new_tokens), or the steps of the rollout"
        )
    return part.length


def loss_and_sums(
    seen: Assessment, part: StepBatch, weight: Tensor, cfg: PPOConfig, leash: Leash, *, policy_on: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """One micro-batch's share of the loss, its sums in the order of `SUMS`, and the log-ratios (detached)."""
    mask = None if bool(part.mask.all()) else part.mask  # where all counts there is nothing to select
    lr = log_ratio(seen.logp, part.old_logp, mask)
    if faults.active("ratio_from_probabilities"):
        lr = select((seen.logp.exp() / part.old_logp.exp()).log(), mask)
    if faults.active("ratio_outside_the_loop"):
        lr = select(seen.logp - seen.logp.detach(), mask)
    value, target, old_value = (select(x, mask) for x in (seen.value, part.return_, part.old_value))
    entropy = select(seen.entropy, mask)

    objective = policy_objective(seen, part, lr, cfg)
    if cfg.value_clip is None:
        error = value_error(value, target)
        outside = lr.new_zeros(())
    else:
        error = clipped_value_error(value, old_value, target, clip=cfg.value_clip)
        outside = value_clip_fraction(value, old_value, target, mask, clip=cfg.value_clip)
    ref_kl = reference_kl(seen, part, leash) if leash.beta > 0 else torch.zeros_like(lr)

    policy_loss = -(objective * weight).sum()
    value_loss = (error * weight).sum()
    loss = cfg.value_coef * value_loss
    if policy_on:
        loss = loss + policy_loss
        if cfg.entropy_coef > 0:  # else its backward pass is not asked for
            loss = loss - cfg.entropy_coef * (entropy * weight).sum()
        if leash.beta > 0:
            loss = loss + leash.beta * (ref_kl * weight).sum()

    with torch.no_grad():
        steps = part.mask.sum().double()  # float64, and with it all sums
        parts = [policy_loss, value_loss, steps, masked_sum(entropy, mask),
                 masked_sum(k1(part.old_logp, seen.logp), mask), masked_sum(k3(part.old_logp, seen.logp), mask),
                 clip_fraction(lr, mask, clip=cfg.clip) * steps,
                 active_clip_fraction(lr, select(part.advantage, mask), mask, clip=cfg.clip) * steps,
                 outside * steps, masked_sum(ref_kl, mask)]  # fmt: skip
        sums = torch.stack([x.detach() for x in parts]).cpu()
    return loss, sums, lr.detach()


def policy_objective(seen: Assessment, part: StepBatch, lr: Tensor, cfg: PPOConfig) -> Tensor:
    """What the policy maximises, per step, by ``cfg.objective``."""
    advantage = select(part.advantage, part.mask)
    if faults.active("baseline_attached"):  # the same number while V is still V_old, and a gradient
        advantage = advantage + select(part.old_value, part.mask) - select(seen.value, part.mask)
    if cfg.objective == "clip" and faults.active("min_left_out"):
        low, high = log_band(cfg.clip)
        return surrogate(lr.clamp(low, high), advantage)
    if cfg.objective == "clip":
        return clipped_surrogate(lr, advantage, clip=cfg.clip, dual_clip=cfg.dual_clip or math.inf)
    if cfg.objective == "surrogate":
        return surrogate(lr, advantage)
    if cfg.objective == "reinforce":
        return reinforce(select(seen.logp, part.mask), advantage)
    kl = seen.old_kl if seen.old_kl is not None else torch.expm1(lr) - lr  # k3: KL(old‖new) from old samples
    return kl_penalized(lr, advantage, select(kl, part.mask), beta=cfg.penalty_beta)


def reference_kl(seen: Assessment, part: StepBatch, leash: Leash) -> Tensor:
    """KL(π‖π_ref) a step for the loss, 0 at masked steps."""
    if leash.estimator == "exact":
        if seen.ref_kl is None:
            raise ValueError("kl.estimator exact needs assess() to return ref_kl, got None; use k2")
        return select(seen.ref_kl, part.mask)
    if part.ref_logp is None:
        raise ValueError(f"kl.estimator {leash.estimator} in the loss needs StepBatch.ref_logp, got None")
    estimator = {"k1": k1, "k2": k2, "k3": k3}[leash.estimator]
    return estimator(select(seen.logp, part.mask), select(part.ref_logp, part.mask))


def larger(a: float, b: float) -> float:
    """The larger of two numbers, NaN where one of them is: ``max`` would keep or drop it by their order."""
    return a if math.isnan(a) or a > b else b


@dataclass
class Tally:
    """Sums over the minibatches of one update."""

    sums: dict[str, float] = field(default_factory=lambda: dict.fromkeys(SUMS, 0.0))
    bins: Tensor = field(default_factory=lambda: torch.zeros(len(HISTOGRAM_EDGES) + 1, dtype=torch.float64))
    norms: list[float] = field(default_factory=list)
    largest_norm: float = 0.0
    widest: float = -math.inf
    first_ratio_error: float | None = None
    policy_steps: int = 0
    early_stop: int = 0
    beside: list[float] = field(default_factory=list)

    def add(self, sums: dict[str, float], bins: Tensor, widest: Tensor, norm: float, *, moved: bool) -> None:
        """One minibatch more."""
        for name in SUMS:
            self.sums[name] += sums[name]
        self.bins += bins
        self.widest = larger(self.widest, float(widest[0]))
        if self.first_ratio_error is None:
            self.first_ratio_error = float(widest[1])
        self.norms.append(norm)
        self.largest_norm = larger(self.largest_norm, norm)
        self.policy_steps += moved

    def metrics(self, cfg: PPOConfig, leash: Leash) -> UpdateMetrics:
        """Means over all valid steps."""
        steps, count = max(self.sums["steps"], 1.0), len(self.norms)
        mean = {name: self.sums[name] / steps for name in SUMS}
        return UpdateMetrics(
            policy_loss=self.sums["policy"] / count,
            value_loss=self.sums["value"] / count,
            entropy=mean["entropy"],
            policy_kl_k1=mean["k1"],
            policy_kl_k3=mean["k3"],
            clip_fraction=mean["outside"],
            active_clip_fraction=mean["active"],
            value_clip_fraction=mean["value_outside"] if cfg.value_clip is not None else None,
            ratio_max=math.inf if self.widest > MOST_LOG else math.exp(self.widest),
            first_ratio_error=self.first_ratio_error or 0.0,
            log_ratio_histogram=tuple(int(x) for x in self.bins.tolist()),
            gradient_norm=sum(self.norms) / count,
            gradient_norm_max=self.largest_norm,
            optimizer_steps=count,
            policy_steps=self.policy_steps,
            early_stop=self.early_stop,
            ref_kl_loss=mean["ref_kl"] if leash.beta > 0 else None,
            ptx_loss=sum(self.beside) / len(self.beside) if self.beside else None,
        )
