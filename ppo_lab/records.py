"""The nouns: what flows from station to station. Frozen, complete when built, never changed.

Shapes: ``B`` rows, ``T`` steps (responses: tokens), ``P`` prompt length, ``L = P + T``; time is last. Every ``mask`` is
bool, True counts. A record holds tensors, plain values or other records; `take`, `concatenate` and `to` walk it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

R = TypeVar("R")
HISTOGRAM_EDGES = tuple(round(-2.05 + 0.1 * i, 2) for i in range(1, 41))  # 40 inner edges make 41 bins, ends open


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


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetrics:
    """What happened in one `ppo_update`; every field is in the metric registry."""

    policy_loss: float
    value_loss: float
    entropy: float
    policy_kl_k1: float
    policy_kl_k3: float
    clip_fraction: float
    active_clip_fraction: float
    value_clip_fraction: float | None
    ratio_max: float
    first_ratio_error: float  # max |r - 1| in the first minibatch of the first epoch
    log_ratio_histogram: tuple[int, ...]
    gradient_norm: float
    gradient_norm_max: float
    optimizer_steps: int
    policy_steps: int  # optimizer steps that moved the policy
    early_stop: int  # 1 where the KL limit ended the policy's part
    ref_kl_loss: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalMetrics:
    """Held-out prompts, sampled and greedy. Gold is never used to choose."""

    eval_score: float
    eval_ref_kl_sum: float
    eval_objective: float  # eval_score - β₀ · eval_ref_kl_sum; the best checkpoint has the highest
    eval_response_length: float
    eval_score_greedy: float
    eval_gold: float | None = None
    eval_gold_greedy: float | None = None
    eval_grammatical: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMetrics:
    """One line of ``metrics.jsonl``. ``None`` means not measured, and the key is left out."""

    step: int
    update: UpdateMetrics
    score_mean: float
    score_std: float
    reward_mean: float
    non_score_reward: float
    ref_kl_sum: float
    ref_kl_token: float
    sampler_mismatch: float
    explained_variance: float
    advantage_mean: float
    advantage_std: float
    value_mean: float
    return_mean: float
    response_length: float
    stop_rate: float
    distinct_1: float
    distinct_2: float
    beta: float
    actor_rate: float
    critic_rate: float
    tokens: int  # response tokens of this step
    seconds_rollout: float
    seconds_score: float
    seconds_update: float
    peak_memory_mb: float
    raw_score_mean: float | None = None
    score_disagreement: float | None = None
    gold_mean: float | None = None
    evaluation: EvalMetrics | None = None

    def row(self) -> dict[str, Any]:
        """Flat ``{name: value}``, in order, without what was not measured."""
        return flat(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlEvaluation:
    """Fresh environments, one episode each; greedy, and sampled where the config asks for it."""

    eval_return: float  # greedy; the best checkpoint has the highest
    eval_return_worst: float
    eval_episode_length: float
    eval_return_sampled: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlMetrics:
    """One line of a control run's ``metrics.jsonl``. Episode figures are of those that ended in this rollout."""

    step: int
    update: UpdateMetrics
    env_steps: int  # of all environments since the start
    episodes: int
    policy_kl_exact: float  # over the whole batch after its epochs
    explained_variance: float
    advantage_mean: float
    advantage_std: float
    value_mean: float
    return_mean: float
    clip: float  # in force, the upper side
    lam: float
    entropy_coef: float
    actor_rate: float
    critic_rate: float
    seconds_rollout: float
    seconds_score: float
    seconds_update: float
    peak_memory_mb: float
    episode_return: float | None = None
    episode_length: float | None = None
    truncated_share: float | None = None
    penalty_beta: float | None = None
    delta: float | None = None
    backtracks: int | None = None
    reward_scale: float | None = None
    action_std: float | None = None
    evaluation: ControlEvaluation | None = None

    def row(self) -> dict[str, Any]:
        """Flat ``{name: value}``, in order, without what was not measured."""
        return flat(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a diagnosis says of a log."""

    rule: str
    severity: str  # "ok", "watch", "act"
    steps: tuple[int, ...]
    evidence: str
    remedy: str


def flat(record: Any) -> dict[str, Any]:
    """Fields of a record of figures, those of records inside among them; ``None`` is left out."""
    found: dict[str, Any] = {}
    for field in fields(record):
        value = getattr(record, field.name)
        if is_dataclass(value):
            found.update({inner.name: getattr(value, inner.name) for inner in fields(value)})
        else:
            found[field.name] = value
    return {name: value for name, value in found.items() if value is not None}


def walk(record: R, change: Callable[[Tensor], Tensor]) -> R:
    """The same record with ``change`` applied to every tensor in it."""
    if isinstance(record, Tensor):
        return change(record)  # type: ignore[return-value]
    if is_dataclass(record) and not isinstance(record, type):
        return replace(record, **{f.name: walk(getattr(record, f.name), change) for f in fields(record)})
    return record


def take(record: R, rows: Tensor | slice) -> R:
    """These rows of every tensor in the record."""
    return walk(record, lambda x: x[rows])


def to(record: R, device: torch.device | str) -> R:
    """The record on another device."""
    return walk(record, lambda x: x.to(device))


def concatenate(records: Sequence[R]) -> R:
    """Rows of several like records, one after the other."""
    first = records[0]
    if isinstance(first, Tensor):
        return torch.cat(list(records))  # type: ignore[arg-type, return-value]
    if is_dataclass(first) and not isinstance(first, type):
        parts = {f.name: concatenate([getattr(r, f.name) for r in records]) for f in fields(first)}
        return replace(first, **parts)
    return first
