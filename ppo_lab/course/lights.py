"""Four lights that a healthy run keeps green at every step. Each is an identity: a red one is a bug, not bad luck.

Tolerances are those of float32: a forward of the same tokens in another batch differs by about 1e-6.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ppo_lab.core.masking import masked_sum, select
from ppo_lab.records import StepMetrics, TextRollout, take
from ppo_lab.rlhf.assess import opinions, ref_kl_sum
from ppo_lab.rlhf.steps import advantages, price_of, rewards_of

if TYPE_CHECKING:
    from ppo_lab.rlhf.train import Run

CLOSE = 1e-4
NONSENSE = 1e6


@dataclass(frozen=True, slots=True)
class Light:
    """One identity: its name, by how much it is missed at most, and what a miss means."""

    name: str
    error: float
    means: str

    @property
    def green(self) -> bool:
        """Whether it holds; NaN does not."""
        return self.error <= CLOSE


def lights(run: Run, step: StepMetrics) -> tuple[Light, ...]:
    """The four lights of the step that was just taken, from its rollout and its update."""
    rollout = run.last_rollout
    assert rollout is not None, "take a step of the run first"
    return (
        Light("ratio = 1 in the first minibatch", step.update.first_ratio_error,
              "old and new log-probs are taken in two ways: dropout, temperature, shift"),
        Light("padding is inert", padding_error(run, rollout),
              "the mask or the positions are wrong somewhere"),
        Light("0 ≤ H ≤ ln V", entropy_error(rollout, len(run.parts.tokenizer)),
              "log-probs are not normalised, or padding is averaged in"),
        Light("Σ reward = score − β·KL", sum_error(run, rollout, step.beta),
              "score or KL sits on a token that does not count, or counts twice"),
    )  # fmt: skip


def padding_error(run: Run, rollout: TextRollout, rows: int = 16) -> float:
    """Largest change of log-prob, value, reward or advantage when padding holds other tokens and 1e6."""
    some = take(rollout, slice(rows))
    answers, lens, vocabulary = some.responses, run.parts.lens, len(run.parts.tokenizer)
    other = replace(
        answers,
        tokens=torch.where(answers.attention, answers.tokens, (answers.tokens + 1) % vocabulary),
        response=torch.where(answers.mask, answers.response, (answers.response + 1) % vocabulary),
    )
    before, after = opinions(run.learner, answers, lens), opinions(run.learner, other, lens)
    found = [(before[name] - after[name]).abs().max() for name in before]

    def spoil(x: Tensor) -> Tensor:
        return torch.where(answers.mask, x, NONSENSE)

    filled = replace(some, old_logp=spoil(some.old_logp), ref_logp=spoil(some.ref_logp), value=spoil(some.value))
    for plain, spoiled in zip(_credit(run, some), _credit(run, filled), strict=True):
        found.append(select(plain - spoiled, answers.mask).abs().max())
    return float(torch.stack([x.double() for x in found]).max())


def _credit(run: Run, rollout: TextRollout) -> tuple[Tensor, Tensor]:
    """Token rewards and advantages."""
    reward = rewards_of(rollout, beta=run.beta, cfg=run.config.kl, placement=run.config.reward.placement)
    return reward, advantages(rollout, reward, run.config.ppo)[0]


def entropy_error(rollout: TextRollout, vocabulary: int) -> float:
    """How far the entropy of any token that counts lies outside of [0, ln V], nats."""
    H = rollout.entropy[rollout.responses.mask]
    outside = torch.maximum(-H, H - math.log(vocabulary))
    return float(outside.clamp(min=0).max())


def sum_error(run: Run, rollout: TextRollout, beta: float) -> float:
    """Largest gap between the sum of a row's token rewards and score − β·KL."""
    mask, cfg = rollout.responses.mask, run.config.kl
    reward = rewards_of(rollout, beta=beta, cfg=cfg, placement=run.config.reward.placement)
    total, price = masked_sum(reward, mask, dim=-1), price_of(beta, mask, cfg)
    wanted = rollout.score - price * ref_kl_sum(rollout.old_logp, rollout.ref_logp, mask)
    if rollout.token_score is not None:
        wanted = wanted + masked_sum(rollout.token_score, mask, dim=-1)
    return float((total - wanted).abs().max())
