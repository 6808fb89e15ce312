"""From one finished step to its line in the log."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ppo_lab.core.masking import masked_sum
from ppo_lab.metrics.cost import Clock, peak_memory_mb
from ppo_lab.metrics.credit import of_credit
from ppo_lab.records import LengthMetrics, StepMetrics, TextRollout, UpdateMetrics

from .assess import distinct, mean_length, ref_kl_sum, sampler_gap


def measure(
    step: int,
    rollout: TextRollout,
    reward: Tensor,
    advantage: Tensor,
    target: Tensor,
    update: UpdateMetrics,
    *,
    beta: float,
    rates: tuple[float, float],
    clock: Clock,
    lengths: LengthMetrics | None = None,
) -> StepMetrics:
    """All metrics of a step over the answers of all ranks; token means run over valid tokens only."""
    mask = rollout.responses.mask
    return StepMetrics(
        step=step,
        update=update,
        **of_rewards(rollout, reward),
        **of_text(rollout),
        **of_credit(rollout.value, target, advantage, mask),
        beta=beta,
        actor_rate=rates[0],
        critic_rate=rates[1],
        seconds_rollout=clock.laps["rollout"],
        seconds_score=clock.laps["score"],
        seconds_update=clock.laps["update"],
        peak_memory_mb=peak_memory_mb(),
        lengths=lengths,
    )


def of_rewards(rollout: TextRollout, reward: Tensor) -> dict[str, Any]:
    """The score, the token rewards' row sums, and what in them is not score; KL(π‖π_ref) from samples of π."""
    mask = rollout.responses.mask
    kl, total = ref_kl_sum(rollout.forward_logp, rollout.ref_logp, mask), masked_sum(reward, mask, dim=-1)
    own = rollout.score
    if rollout.token_score is not None:
        own = own + masked_sum(rollout.token_score, mask, dim=-1)
    return {
        "score_mean": float(rollout.score.mean()),
        "score_std": float(rollout.score.std(correction=0)),
        "raw_score_mean": float(rollout.raw_score.mean()),
        "score_disagreement": None if rollout.score_spread is None else float(rollout.score_spread.mean()),
        "reward_mean": float(total.mean()),
        "non_score_reward": float((total - own).mean()),
        "ref_kl_sum": float(kl.mean()),
        "ref_kl_token": float(kl.sum()) / max(int(mask.sum()), 1),
    }


def of_text(rollout: TextRollout) -> dict[str, Any]:
    """Lengths, stops, diversity, and how far the sampler's log-probs are from the forward's."""
    responses, mask = rollout.responses, rollout.responses.mask
    return {
        "sampler_mismatch": sampler_gap(responses.logp, rollout.forward_logp, mask),
        "response_length": mean_length(mask),
        "stop_rate": float(responses.stopped.float().mean()),
        "distinct_1": distinct(responses.response, mask, 1),
        "distinct_2": distinct(responses.response, mask, 2),
        "tokens": int(mask.sum()),
    }
