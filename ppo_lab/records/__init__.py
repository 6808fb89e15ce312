"""The nouns: what flows from station to station. Frozen, complete when built, never changed.

Shapes: ``B`` rows, ``T`` steps (responses: tokens), ``P`` prompt length, ``L = P + T``; time is last. Every ``mask`` is
bool, True counts. A record holds tensors, plain values or other records; `take`, `concatenate` and `to` walk it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ppo_lab.records.figures import (
    BUCKETS,
    HISTOGRAM_EDGES,
    ControlEvaluation,
    ControlMetrics,
    EvalMetrics,
    Finding,
    LengthMetrics,
    StepMetrics,
    UpdateMetrics,
)
from ppo_lab.records.walking import concatenate, flat, take, to, walk

__all__ = [
    "BUCKETS", "HISTOGRAM_EDGES", "Assessment", "ControlEvaluation", "ControlMetrics", "ControlRollout", "EvalMetrics",
    "Finding", "LengthMetrics", "Prompts", "Responses", "StepBatch", "StepMetrics", "TextInputs", "TextRollout",
    "UpdateMetrics", "concatenate", "flat", "take", "to", "walk",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlRollout:
    """What ``B`` environments did in ``T`` steps."""

    obs: Tensor  # (B, T, *O)
    action: Tensor  # (B, T[, A]) as sampled; the environment may have been sent a clipped copy
    logp: Tensor  # (B, T) of that raw action
    reward: Tensor  # (B, T)
    terminated: Tensor  # (B, T) bool, no future
    ended: Tensor  # (B, T) bool, do not look across; includes terminated
    mask: Tensor  # (B, T) bool, False on the rows of a next-step autoreset
    value: Tensor  # (B, T) V(s_t)
    next_value: Tensor  # (B, T) V(s_{t+1}), of the final observation where truncated


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompts:
    """Left-padded questions."""

    tokens: Tensor  # (B, P)
    attention: Tensor  # (B, P) bool
    index: Tensor  # (B,) row of the corpus each prompt came from

    def __len__(self) -> int:
        return len(self.tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class Responses:
    """Prompts with sampled answers, right-padded."""

    tokens: Tensor  # (B, L) prompt and response
    attention: Tensor  # (B, L) bool
    response: Tensor  # (B, T) the response's tokens
    mask: Tensor  # (B, T) bool, up to and including the first stop token
    stopped: Tensor  # (B,) bool, False where the answer ran into the cap
    logp: Tensor  # (B, T) of the sampler (behaviour policy), 0 after the end
    index: Tensor  # (B,) row of the corpus
    policy_version: Tensor  # (B,) optimizer steps the sampling policy had seen

    def __len__(self) -> int:
        return len(self.tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class TextRollout:
    """Answers with what four models say of them."""

    responses: Responses
    old_logp: Tensor  # (B, T) the denominator of the ratio: forward_logp, or the sampler's
    forward_logp: Tensor  # (B, T) log π at rollout, by the update's own forward
    ref_logp: Tensor  # (B, T) log π_ref
    value: Tensor  # (B, T) V(x, y_<t)
    entropy: Tensor  # (B, T) of π at rollout, nats
    raw_score: Tensor  # (B,) as the reward gave it, before normalising
    score: Tensor  # (B,) normalised, weighted, clipped, missing-EOS rule applied
    token_score: Tensor | None = None  # (B, T) process reward, added to the token rewards
    parts: Tensor | None = None  # (B, T) the score taken apart by sentence: rows sum to it
    score_spread: Tensor | None = None  # (B,) deviation over the members of a reward ensemble


@dataclass(frozen=True, slots=True, kw_only=True)
class TextInputs:
    """What the trained module needs to look at an answer again."""

    tokens: Tensor  # (B, L)
    attention: Tensor  # (B, L) bool
    response: Tensor  # (B, T)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBatch:
    """What one PPO update learns from. Rows are responses (B, T) or single steps (N,)."""

    inputs: Any  # a record or tensor with one row a sample; only `assess` looks inside
    old_logp: Tensor
    old_value: Tensor
    advantage: Tensor
    return_: Tensor
    mask: Tensor
    ref_logp: Tensor | None = None  # where the KL to the reference stands in the loss
    length: int | None = None  # most steps a row could have (cap, or T of the rollout); `fixed_length` divides by it

    def __len__(self) -> int:
        return len(self.mask)


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """The trained module's present opinion of a batch; the only seam between language and control."""

    logp: Tensor
    entropy: Tensor
    value: Tensor
    old_kl: Tensor | None = None  # exact KL(old‖new) a step, where the distribution is at hand
    ref_kl: Tensor | None = None  # exact KL(π‖ref) a step, likewise
