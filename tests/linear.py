"""A linear actor-critic in float64, a ragged batch for it, and one minibatch of PPO worked out by hand.

The hand version never differentiates: it writes the gradient of a softmax out, token by token.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ppo_lab import seeding
from ppo_lab.config.ppo import PPOConfig
from ppo_lab.learners.plain import PlainLearner
from ppo_lab.records import Assessment, StepBatch, UpdateMetrics
from ppo_lab.update import Leash, ppo_update

FEATURES, ACTIONS = 4, 3
LENGTHS = (5, 1, 3, 0, 2, 4, 5)  # a row without a valid step among them
PLAIN = PPOConfig(epochs=1, minibatches=1, standardize="none", value_clip=None, value_coef=0.5)


@dataclass(frozen=True, kw_only=True)
class Inputs:
    obs: Tensor  # (B, T, F)
    action: Tensor  # (B, T)
    row: Tensor  # (B,)


class Linear(nn.Module):
    """Logits and value are linear in the observation."""

    def __init__(self, seed: int = 0, dropout: float = 0.0):
        super().__init__()
        draw = seeding.generator(seed, "weights")
        self.actor = nn.Parameter(torch.randn(FEATURES, ACTIONS, generator=draw, dtype=torch.float64))
        self.critic = nn.Parameter(torch.randn(FEATURES, generator=draw, dtype=torch.float64))
        self.dropout = nn.Dropout(dropout)

    def forward(self, obs: Tensor, action: Tensor) -> dict[str, Tensor]:
        logp = (self.dropout(obs) @ self.actor).log_softmax(-1)
        chosen = logp.gather(-1, action[..., None])[..., 0]
        return {"logp": chosen, "entropy": -(logp.exp() * logp).sum(-1), "value": obs @ self.critic}

    def parameter_groups(self) -> dict[str, list[tuple[str, nn.Parameter]]]:
        return {"actor": [("actor", self.actor)], "critic": [("critic", self.critic)]}


class Watched(PlainLearner):
    """Notes the gradient, the multipliers and the weights of every step."""

    def __init__(self, module: nn.Module | None = None, rate: float = 0.05, **options: Any):
        options = {"max_norm": None, "device": "cpu"} | options
        super().__init__(module or Linear(), actor_rate=rate, critic_rate=rate, **options)
        self.gradients: list[dict[str, Tensor]] = []
        self.multipliers: list[tuple[float, float]] = []
        self.weights: list[dict[str, Tensor]] = [self.snapshot()]
        self.seen: list[list[int]] = []

    def snapshot(self) -> dict[str, Tensor]:
        return {name: p.detach().clone() for name, p in self.parameters.items()}

    def step(self, actor: float = 1.0, critic: float = 1.0) -> float:
        self.gradients.append({n: torch.zeros_like(p) if p.grad is None else p.grad.clone()
                               for n, p in self.parameters.items()})  # fmt: skip
        self.multipliers.append((actor, critic))
        norm = super().step(actor, critic)
        self.weights.append(self.snapshot())
        return norm


def assess(learner: Any, inputs: Inputs) -> Assessment:
    learner.seen.append(inputs.row.tolist())
    return Assessment(**learner.forward(obs=inputs.obs, action=inputs.action))


def make_batch(lengths: tuple[int, ...] = LENGTHS, *, seed: int = 0, drift: float = 0.4, steps: int = 0) -> StepBatch:
    """Old log-probs ``drift`` away from those of `Linear`, so that ratios differ from 1 and some are clipped."""
    rows, steps = len(lengths), steps or max(lengths)
    draw = seeding.generator(seed, "batch")

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw, dtype=torch.float64)

    obs, action = normal(rows, steps, FEATURES), torch.randint(ACTIONS, (rows, steps), generator=draw)
    with torch.no_grad():
        now = Linear()(obs, action)
    return StepBatch(
        inputs=Inputs(obs=obs, action=action, row=torch.arange(rows)),
        old_logp=now["logp"] + drift * normal(rows, steps),
        old_value=now["value"] + 0.3 * normal(rows, steps),
        advantage=normal(rows, steps),
        return_=now["value"] + normal(rows, steps),
        mask=torch.arange(steps) < torch.tensor(lengths)[:, None],
        ref_logp=now["logp"] + 0.5 * normal(rows, steps),
        length=steps + 3,  # wider than any row here: no reduction may mistake the tensors' width for it
    )


def update(learner: Watched, batch: StepBatch, cfg: PPOConfig = PLAIN, **options: Any) -> UpdateMetrics:
    return ppo_update(learner, batch, assess, cfg, **({"seed": 3} | options))


# --- one minibatch by hand -------------------------------------------------------------------------------------------


def weight_by_hand(lengths: list[int], row: int, steps: int, reduction: str) -> float:
    rows = sum(n > 0 for n in lengths)
    return {
        "token_mean": 1 / sum(lengths),
        "sequence_mean": 1 / (rows * max(lengths[row], 1)),
        "sequence_sum": 1 / rows,
        "fixed_length": 1 / (len(lengths) * steps),
    }[reduction]


def policy_by_hand(ratio: float, logp: float, advantage: float, cfg: PPOConfig) -> tuple[float, float]:
    """Objective of one step, and its derivative with respect to log π."""
    if cfg.objective == "reinforce":
        return logp * advantage, advantage
    if cfg.objective == "surrogate":
        return ratio * advantage, ratio * advantage
    if cfg.objective == "kl_penalty":
        kl = ratio - 1 - math.log(ratio)
        return ratio * advantage - cfg.penalty_beta * kl, ratio * advantage - cfg.penalty_beta * (ratio - 1)
    low, high = cfg.clip_band
    bound = min(max(ratio, 1 - low), 1 + high)
    if bound * advantage < ratio * advantage:
        return bound * advantage, 0.0
    if cfg.dual_clip is not None and advantage < 0 and ratio > cfg.dual_clip:
        return cfg.dual_clip * advantage, 0.0
    return ratio * advantage, ratio * advantage


def value_by_hand(v: float, old: float, target: float, clip: float | None) -> tuple[float, float]:
    """Error of one value, and its derivative."""
    free = (v - target) ** 2 / 2
    if clip is None:
        return free, v - target
    held = min(max(v, old - clip), old + clip)
    return ((held - target) ** 2 / 2, 0.0) if (held - target) ** 2 / 2 > free else (free, v - target)


def kl_by_hand(d: float, estimator: str) -> tuple[float, float]:
    """k1, k2 or k3 of one step from d = log π - log π_ref, and its derivative with respect to log π."""
    return {"k1": (d, 1.0), "k2": (d * d / 2, d), "k3": (math.exp(-d) - 1 + d, 1 - math.exp(-d))}[estimator]


def by_hand(model: Linear, batch: StepBatch, cfg: PPOConfig, leash: Leash) -> dict[str, Any]:
    """Gradients and metrics of one minibatch, a loop over tokens; d log π(a) / d logit_k = [a = k] - π(k)."""
    actor, critic = torch.zeros_like(model.actor), torch.zeros_like(model.critic)
    lengths, steps = batch.mask.sum(-1).tolist(), batch.length or 0
    out: Counter[str] = Counter()
    ratios = []
    for b, n in enumerate(lengths):
        weight = weight_by_hand(lengths, b, steps, cfg.reduction)
        for t in range(n):
            obs, action = batch.inputs.obs[b, t], int(batch.inputs.action[b, t])
            with torch.no_grad():
                p = (obs @ model.actor).softmax(-1)
                v, logp = float(obs @ model.critic), float(p[action].log())
            entropy = -float((p * p.log()).sum())
            lr = logp - float(batch.old_logp[b, t])
            ratio, advantage = math.exp(lr), float(batch.advantage[b, t])
            objective, slope = policy_by_hand(ratio, logp, advantage, cfg)
            old_value, target = float(batch.old_value[b, t]), float(batch.return_[b, t])
            error, error_slope = value_by_hand(v, old_value, target, cfg.value_clip)
            kl, kl_slope = kl_by_hand(logp - float(batch.ref_logp[b, t]), leash.estimator)
            score = -p.clone()
            score[action] += 1
            to_logits = (-slope + leash.beta * kl_slope) * score + cfg.entropy_coef * p * (p.log() + entropy)
            actor += weight * torch.outer(obs, to_logits)
            critic += weight * cfg.value_coef * error_slope * obs
            low, high = cfg.clip_band
            out.update(
                policy=-weight * objective, value=weight * error, entropy=entropy, k1=-lr, k3=ratio - 1 - lr, kl=kl,
                outside=not 1 - low <= ratio <= 1 + high,
                active=(advantage > 0 and ratio > 1 + high) or (advantage < 0 and ratio < 1 - low),
                value_outside=error > (v - target) ** 2 / 2,
            )  # fmt: skip
            ratios.append(ratio)
    return {"actor": actor, "critic": critic, "ratios": ratios, "n": len(ratios), **out}
