"""The stations between a rollout and an update, one small function each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ppo_lab import faults
from ppo_lab.config.ppo import PPOConfig
from ppo_lab.core.masking import masked_mean
from ppo_lab.core.returns import discounted_returns, gae
from ppo_lab.learners import Learner
from ppo_lab.records import Assessment, ControlRollout, StepBatch, take

from .collect import Collected
from .policy import Choices, Numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlInputs:
    """What the trained module needs to look at steps again."""

    obs: Tensor  # (N, *O) as the policy saw them
    action: Tensor  # (N[, A]) as sampled
    head: Tensor  # (N, H) of the policy that sampled


def make_assess(actions: Choices | Numbers, *, exact_kl: bool) -> Callable[[Learner, ControlInputs], Assessment]:
    """``assess(learner, inputs)`` for `ppo_update`; with ``exact_kl`` also KL(old‖new) of each step."""

    def assess(learner: Learner, inputs: ControlInputs) -> Assessment:
        head, value = learner.forward(obs=inputs.obs)
        return Assessment(
            logp=actions.logp(head, inputs.action), entropy=actions.entropy(head), value=value,
            old_kl=actions.kl(inputs.head, head) if exact_kl else None,
        )  # fmt: skip

    return assess


def credit(rollout: ControlRollout, ppo: PPOConfig, kind: str) -> tuple[Tensor, Tensor]:
    """What weighs each action, and the critic's target (before any standardising), ``(B, T)``.

    Args:
        rollout: T steps of B environments.
        ppo: γ and λ.
        kind: "gae"; or "return", the discounted return without a baseline, as REINFORCE has it. Where an episode was
            cut, by its limit or by the rollout's end, the critic says what would still have come.
    """
    flags = {"terminated": rollout.terminated, "ended": rollout.ended, "mask": rollout.mask}
    ahead = rollout.next_value
    if faults.active("episodes_joined"):  # a terminal state is still worth 0: only the sum runs on
        ahead = torch.where(rollout.terminated, 0.0, ahead)
        flags |= {"terminated": rollout.terminated & False, "ended": rollout.ended & False}
        flags["ended"][:, -1] = True
    if kind == "return":
        total = discounted_returns(rollout.reward, ahead, gamma=ppo.gamma, **flags)
        return total, total
    advantage = gae(rollout.reward, rollout.value, ahead, gamma=ppo.gamma, lam=ppo.lam, **flags)
    return advantage, advantage + rollout.value


def step_batch(collected: Collected, advantage: Tensor, target: Tensor) -> StepBatch:
    """What `ppo_update` learns from: every step that counts is a row of its own."""
    rollout = collected.rollout
    inputs = ControlInputs(obs=rollout.obs, action=rollout.action, head=collected.head)
    batch = StepBatch(inputs=inputs, old_logp=rollout.logp, old_value=rollout.value, advantage=advantage,
                      return_=target, mask=rollout.mask)  # fmt: skip
    counts = rollout.mask.flatten().nonzero()[:, 0]
    return take(flatten(batch), counts)


def flatten(batch: StepBatch) -> StepBatch:
    """(B, T, …) -> (B·T, …) in every tensor."""
    rows = {name: getattr(batch, name).flatten() for name in ("old_logp", "old_value", "advantage", "return_", "mask")}
    inputs = batch.inputs
    parts = {name: getattr(inputs, name).flatten(0, 1) for name in ("obs", "action", "head")}
    return replace(batch, inputs=ControlInputs(**parts), **rows)


@torch.no_grad()
def policy_kl(learner: Learner, batch: StepBatch, actions: Choices | Numbers) -> float:
    """Exact KL(old‖new), nats a step, over the whole batch; call it after the epochs. Before them it is 0."""
    with learner.whole() as module:
        kl = actions.kl(batch.inputs.head, module.head(batch.inputs.obs))  # type: ignore[operator]
    return float(masked_mean(kl, batch.mask))
