"""The policy's moving average (EMA) on held-out prompts.

With ``policy.ema: d`` the learner keeps θ̄ ← d θ̄ + (1-d) θ, once a PPO step, of everything the policy trains (a shared
trunk and adapters included, the critic not). It is evaluated beside the policy and can be exported. Rollouts, the
reference, the update and the choice of the best checkpoint never look at it.
"""

from __future__ import annotations

from ppo_lab.config.language import RLHFConfig
from ppo_lab.learners import Learner

from .evaluate import HeldOut, answer, judged


def of_average(learner: Learner, held: HeldOut, cfg: RLHFConfig) -> dict[str, float]:
    """The fields ``eval_ema_*`` of `EvalMetrics`: the average's sampled answers, with the noise of every evaluation."""
    with learner.averaged():
        seen = judged(learner, held, answer(learner, held, seed=cfg.seed, greedy=False), cfg)
    found: dict[str, float] = {
        name: float(learner.gather(seen[name].double()).mean())
        for name in ("score", "ref_kl_sum", "gold") if name in seen
    }  # fmt: skip
    found["objective"] = found["score"] - cfg.kl.beta * found["ref_kl_sum"]
    return {f"eval_ema_{name}": value for name, value in found.items()}
