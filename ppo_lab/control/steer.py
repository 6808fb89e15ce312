"""What moves from update to update besides the weights: ε, c2, λ, β of the penalty, δ of the trust region.

Each follows a plan (linear, to its last value) or what was just measured:

=====  =============================================================================================================
β      `core.kl.next_beta` of KL(old‖new) over the whole batch *after* its epochs; before them it is 0 and β only falls
ε      `core.kl.next_clip` of the same KL
λ      one notch down where the advantages spread too far, one up where they do not
δ      `core.trust_region.next_delta` of what the surrogate gained and what its slope promised, on the same samples: it
       tells how straight the way was, not how lucky the sample
=====  =============================================================================================================
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace

from ppo_lab import faults
from ppo_lab.config.control import ControlConfig, PenaltyConfig
from ppo_lab.config.ppo import PPOConfig
from ppo_lab.core.kl import next_beta, next_clip
from ppo_lab.core.trust_region import next_delta

from .trpo import NaturalStep

CLIP_RATE = 10.0  # per nat: how fast ε follows the KL
BETA_RANGE = (1e-4, 1e4)
LAM_NOTCH, LAM_RANGE = 0.02, 0.2  # how fast λ moves, and how far it may fall below its first value


@dataclass(frozen=True, slots=True)
class Knobs:
    """What follows a measurement; travels in the checkpoint."""

    beta: float
    clip: float
    lam: float
    delta: float

    @classmethod
    def first(cls, cfg: ControlConfig) -> Knobs:
        """At the start of a run."""
        return cls(cfg.ppo.penalty_beta, cfg.ppo.clip_band[1], cfg.ppo.lam, cfg.trust_region.delta)

    def state(self) -> dict[str, float]:
        """Plain data."""
        return asdict(self)


def settings(step: int, cfg: ControlConfig, knobs: Knobs) -> PPOConfig:
    """The update's settings at this step, counted from 0."""
    plan, ppo = cfg.schedule, cfg.ppo
    along = step / max(cfg.steps - 1, 1)
    changed: dict[str, object] = {"penalty_beta": knobs.beta, "lam": knobs.lam}
    if plan.entropy_coef is not None:
        changed["entropy_coef"] = ppo.entropy_coef + along * (plan.entropy_coef - ppo.entropy_coef)
    if plan.lam is not None:
        changed["lam"] = ppo.lam + along * (plan.lam - ppo.lam)
    if plan.clip is not None:
        changed["clip"] = ppo.clip_band[1] + along * (plan.clip - ppo.clip_band[1])
    if plan.clip_kl is not None:
        changed["clip"] = knobs.clip
    return ppo.model_copy(update=changed)


def turned(
    knobs: Knobs, cfg: ControlConfig, *, kl: float, spread: float, step: NaturalStep | None, n_steps: int
) -> Knobs:
    """The knobs for the next update. A KL that is not finite turns nothing.

    Args:
        knobs: of this one.
        cfg: rules and targets.
        kl: exact KL(old‖new) over the whole batch after its epochs, nats a step.
        spread: deviation of the advantages before standardising.
        step: what came of the natural step, where there was one.
        n_steps: environment steps just taken.
    """
    plan = cfg.schedule
    if cfg.penalized and math.isfinite(kl):
        knobs = replace(knobs, beta=penalty(knobs.beta, kl, cfg.penalty, n_steps))
    if plan.clip_kl is not None and math.isfinite(kl):
        knobs = replace(knobs, clip=next_clip(knobs.clip, kl, target=plan.clip_kl, rate=CLIP_RATE))
    if plan.lam_spread is not None:
        lam = knobs.lam + (-LAM_NOTCH if spread > plan.lam_spread else LAM_NOTCH)
        knobs = replace(knobs, lam=min(max(lam, cfg.ppo.lam - LAM_RANGE, 0.0), cfg.ppo.lam))
    if cfg.trust_region.adapt == "improvement" and step is not None:
        knobs = replace(knobs, delta=next_delta(knobs.delta, step.improvement, step.promised))
    return knobs


def penalty(beta: float, kl: float, cfg: PenaltyConfig, n_steps: int) -> float:
    """The next β (Schulman et al. 2017, PPO, sec. 4; Ziegler et al. 2019, sec. 2.2).

    >>> penalty(1.0, 0.02, PenaltyConfig(rule="double_or_halve", target=0.01), 2048)
    2.0
    """
    if faults.active("kl_before_epochs"):
        kl = 0.0
    if cfg.rule == "fixed":
        return beta
    return next_beta(beta, kl, target=cfg.target, rule=cfg.rule, horizon=cfg.horizon, n_steps=n_steps,
                     bounds=BETA_RANGE)  # fmt: skip
