"""What multiplies both base rates of a learner, step after step of a run."""

from __future__ import annotations

from ppo_lab.config.ppo import OptimizerConfig
from ppo_lab.core.schedules import linear_anneal, periodic_restart, warmup_cosine


def rate_multiplier(step: int, cfg: OptimizerConfig, *, total: int) -> float:
    """What multiplies both base rates at PPO step ``step``, counted from 0; the number of ranks is nowhere in it.

    >>> rate_multiplier(5, OptimizerConfig(schedule="linear"), total=10)
    0.5
    """
    if cfg.schedule == "linear":
        return float(linear_anneal(step, total=total))
    if cfg.schedule == "warmup_cosine":
        warmup = round(cfg.warmup * total)
        return float(warmup_cosine(step + 1, total=total + 1, warmup=warmup, start=cfg.start, floor=cfg.floor))
    if cfg.schedule == "restart":
        return float(periodic_restart(step, period=cfg.period or total))
    return 1.0
