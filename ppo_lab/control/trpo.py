r"""TRPO's update, the sibling of `ppo_update`: one natural step of the policy inside a trust region.

The Fisher matrix is the Hessian of the mean KL(old‖new) at new = old, and only its products with vectors are needed: a
second backward pass each. Write-ups that count its D² numbers against TRPO never built one; nor does anybody.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from ppo_lab.config.control import TrustRegionConfig
from ppo_lab.config.ppo import PPOConfig
from ppo_lab.core.importance import log_ratio
from ppo_lab.core.masking import standardize
from ppo_lab.core.objectives import surrogate
from ppo_lab.core.trust_region import accept_step, natural_step
from ppo_lab.learners import Learner
from ppo_lab.records import StepBatch, UpdateMetrics
from ppo_lab.update import Assess, ppo_update

from .policy import Choices, Numbers


@dataclass(frozen=True, slots=True)
class NaturalStep:
    """What came of one natural step."""

    accepted: int | None  # halvings of the full step; None: refused, the policy stays
    kl: float  # exact KL(old‖new), nats a step, 0 where refused
    improvement: float  # of the surrogate
    promised: float  # by its slope, for the step taken (refused: for the full one)
    gradient_norm: float  # of the surrogate
    ratio_error: float  # max |r - 1| before the step


def take_natural_step(
    learner: Learner, batch: StepBatch, actions: Choices | Numbers, cfg: TrustRegionConfig, *, delta: float
) -> NaturalStep:
    r"""Maximise :math:`E[r_t \hat A_t]` subject to the mean :math:`KL(old \| new) \le \delta`.

    Conjugate gradients solve :math:`F x = g`, the step along x is as long as the quadratic KL allows, and a line search
    halves it until the true KL is within ``delta`` and the surrogate has risen.

    Args:
        learner: owns the weights; its policy is moved in place.
        batch: single steps, (N,); advantages are standardised over all of them.
        actions: what the policy's output means.
        cfg: damping, conjugate-gradient steps, candidates.
        delta: trust region, nats a step.

    Source: Schulman et al. 2015, TRPO, app. C.
    """
    advantage = standardize(batch.advantage, batch.mask)
    inputs = batch.inputs
    with learner.whole() as module, torch.enable_grad():
        parameters = [p for _, p in module.parameter_groups()["actor"]]  # type: ignore[operator]

        def look() -> tuple[Tensor, Tensor, Tensor]:
            head = module.head(inputs.obs)  # type: ignore[operator]
            lr = log_ratio(actions.logp(head, inputs.action), batch.old_logp)
            return surrogate(lr, advantage).mean(), actions.kl(inputs.head, head).mean(), lr

        gain, kl, lr = look()
        g = flat(torch.autograd.grad(gain, parameters, retain_graph=True))
        step = natural_step(fisher_product(kl, parameters), g, delta=delta, damping=cfg.damping, iters=cfg.iters)
        error = float(torch.expm1(lr.detach()).abs().max())
        slope, before = float(g @ step), float(gain.detach())
        with torch.no_grad():
            return _search(look, parameters, step, cfg.backtracks, delta=delta,
                           found=NaturalStep(None, 0.0, 0.0, slope, float(g.norm()), error), before=before)  # fmt: skip


def fisher_product(kl: Tensor, parameters: list[nn.Parameter]) -> Callable[[Tensor], Tensor]:
    """v ↦ F v: the gradient of (∇ KL)·v, (D,) -> (D,). ``kl`` is the mean KL(old‖new) at new = old."""
    slopes = flat(torch.autograd.grad(kl, parameters, create_graph=True))

    def product(v: Tensor) -> Tensor:
        return flat(torch.autograd.grad(slopes @ v, parameters, retain_graph=True))

    return product


def flat(tensors: tuple[Tensor, ...] | list[Tensor]) -> Tensor:
    """All numbers in one row, (D,)."""
    return torch.cat([x.reshape(-1) for x in tensors])


def _search(
    look: Callable[[], tuple[Tensor, Tensor, Tensor]], parameters: list[nn.Parameter], step: Tensor, candidates: int, *,
    delta: float, found: NaturalStep, before: float,
) -> NaturalStep:  # fmt: skip
    start = flat([p.detach() for p in parameters]).clone()
    for j in range(candidates):
        share = 0.5**j
        nn.utils.vector_to_parameters(start + share * step, parameters)
        gain, kl, _ = look()
        improvement = float(gain) - before
        if accept_step([float(kl)], [improvement], delta=delta) is not None:
            return replace(found, accepted=j, kl=float(kl), improvement=improvement, promised=share * found.promised)
    nn.utils.vector_to_parameters(start, parameters)
    return found


def trpo_update(
    learner: Learner, batch: StepBatch, assess: Assess, actions: Choices | Numbers, ppo: PPOConfig,
    cfg: TrustRegionConfig, *, seed: int, delta: float, critic: float = 1.0, frozen: bool = False,
) -> tuple[UpdateMetrics, NaturalStep | None]:  # fmt: skip
    """A natural step of the policy, then the critic's epochs, which are those of `ppo_update` with the policy at rest.

    Args:
        learner, batch, assess, ppo, seed, critic: as `ppo_update` takes them.
        actions, cfg, delta: as `take_natural_step` takes them.
        frozen: the policy rests (critic warm-up).

    Returns:
        Metrics of the critic's epochs and of the moved policy on the batch; what came of the natural step.
    """
    step = None if frozen else take_natural_step(learner, batch, actions, cfg, delta=delta)
    update = ppo_update(learner, batch, assess, ppo, seed=seed, actor=0.0, critic=critic)
    if step is None:
        return update, None
    return replace(update, policy_loss=-step.improvement, first_ratio_error=step.ratio_error,
                   policy_steps=int(step.accepted is not None)), step  # fmt: skip
