"""Records of figures: what an update, an evaluation and a step say of themselves; each field is in the registry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ppo_lab.records.walking import flat

BUCKETS = ("short", "middle", "long")  # answers in the first, second, last third of the cap
HISTOGRAM_EDGES = tuple(round(-2.05 + 0.1 * i, 2) for i in range(1, 41))  # 40 inner edges make 41 bins, ends open


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
    ptx_loss: float | None = None


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
    eval_ema_score: float | None = None  # eval_ema_*: of the moving average of the policy's weights, sampled
    eval_ema_ref_kl_sum: float | None = None
    eval_ema_objective: float | None = None
    eval_ema_gold: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthMetrics:
    """A step by length of the answers, one field a third of the cap; ``None`` where no answer is there."""

    answers_short: float
    answers_middle: float
    answers_long: float
    reward_token_short: float | None = None
    reward_token_middle: float | None = None
    reward_token_long: float | None = None
    ref_kl_token_short: float | None = None
    ref_kl_token_middle: float | None = None
    ref_kl_token_long: float | None = None
    pushed_down_short: float | None = None
    pushed_down_middle: float | None = None
    pushed_down_long: float | None = None


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
    lengths: LengthMetrics | None = None
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
    bonus_mean: float | None = None  # a step, of shaping and exploration
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
