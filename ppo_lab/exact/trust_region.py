"""TRPO on tables: one step of the natural gradient from a sampled batch, checked before it is taken.

The Fisher matrix is never made. Its product with a vector is a second backward pass through the mean KL of the batch.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ppo_lab.core.distributions import categorical_logp
from ppo_lab.core.importance import log_ratio
from ppo_lab.core.kl import categorical_kl
from ppo_lab.core.masking import standardize
from ppo_lab.core.objectives import surrogate
from ppo_lab.core.trust_region import accept_step, natural_step
from ppo_lab.exact.agent import TabularActorCritic
from ppo_lab.records import StepBatch

HALVINGS = 10


class TrustRegionStep(NamedTuple):
    """What became of one step. Both 0 where the line search refused all candidates."""

    halvings: int | None  # of the full step, None: no step was taken
    kl: float  # KL(old‖new) over the batch's states, nats
    gain: float  # of the surrogate over the batch


def trpo_step(
    module: TabularActorCritic, batch: StepBatch, *, delta: float, damping: float = 1e-3, iters: int = 10
) -> TrustRegionStep:
    r"""Move the logits by :math:`\sqrt{2\delta / x^T g}\, x` with :math:`x \approx F^{-1} g`, halved until it will do.

    A candidate will do if its mean KL(old‖new) over the states of the batch is at most ``delta`` and the surrogate
    :math:`\frac1N \sum_i r_i \hat A_i` has risen. Advantages are standardised over the batch. The critic is left alone:
    train it with ``ppo_update(..., actor=0.0)``.

    Args:
        module: its logits are changed in place.
        batch: one step a row, (N,), as `step_batch` makes it, sampled by the module as it is.
        delta: trust region, nats; 0.01 to 0.05 is usual.
        damping: added to F's diagonal: a table's F is singular (states not visited; a constant added to a row).
        iters: conjugate-gradient steps.

    Source: Schulman et al. 2015, Trust region policy optimization, sec. 6 and appendix C.
    """
    obs, action = batch.inputs.obs, batch.inputs.action
    advantage = standardize(batch.advantage, batch.mask)
    old = module.logits.detach().clone()
    shape = old.shape

    def measures(logits: Tensor) -> tuple[Tensor, Tensor]:
        gain = surrogate(log_ratio(categorical_logp(logits[obs], action), batch.old_logp), advantage).mean()
        return gain, categorical_kl(old[obs], logits[obs]).mean()

    here = old.clone().requires_grad_()
    gain, kl = measures(here)
    (g,) = torch.autograd.grad(gain, here)
    (slope,) = torch.autograd.grad(kl, here, create_graph=True)

    def fisher_product(v: Tensor) -> Tensor:
        (product,) = torch.autograd.grad((slope.reshape(-1) * v).sum(), here, retain_graph=True)
        return product.reshape(-1)

    step = natural_step(fisher_product, g.reshape(-1), delta=delta, damping=damping, iters=iters).reshape(shape)
    with torch.no_grad():
        found = [measures(old + step * 0.5**j) for j in range(HALVINGS)]
        kls, gains = [k.item() for _, k in found], [(value - gain).item() for value, _ in found]
        j = accept_step(kls, gains, delta=delta)
        if j is None:
            return TrustRegionStep(None, 0.0, 0.0)
        module.logits.copy_(old + step * 0.5**j)
    return TrustRegionStep(j, kls[j], gains[j])
