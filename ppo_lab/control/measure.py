"""From one finished update to its line in the log."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ppo_lab.config.ppo import PPOConfig
from ppo_lab.metrics.cost import Clock, peak_memory_mb
from ppo_lab.metrics.credit import of_credit
from ppo_lab.records import ControlMetrics, UpdateMetrics

from .collect import Collected, means
from .policy import Choices, Numbers


def measure(
    step: int, env_steps: int, collected: Collected, advantage: Tensor, target: Tensor, update: UpdateMetrics, *,
    kl: float, ppo: PPOConfig, actions: Choices | Numbers, rates: tuple[float, float], clock: Clock,
    extra: dict[str, float | None],
) -> ControlMetrics:  # fmt: skip
    """All metrics of an update over the steps that count; ``extra`` are those that not every run has."""
    rollout, mask = collected.rollout, collected.rollout.mask
    known: dict[str, Any] = {name: value for name, value in extra.items() if value is not None}
    if actions.gaussian:
        known["action_std"] = float(torch.exp(collected.head.chunk(2, -1)[1]).mean())
    known |= means([collected.episodes])
    return ControlMetrics(
        step=step,
        update=update,
        env_steps=env_steps,
        episodes=len(collected.episodes.returns),
        policy_kl_exact=kl,
        **of_credit(rollout.value, target, advantage, mask),
        clip=ppo.clip_band[1],
        lam=ppo.lam,
        entropy_coef=ppo.entropy_coef,
        actor_rate=rates[0],
        critic_rate=rates[1],
        seconds_rollout=clock.laps["rollout"],
        seconds_score=clock.laps["score"],
        seconds_update=clock.laps["update"],
        peak_memory_mb=peak_memory_mb(),
        **known,
    )
