"""The gradient-norm alarm: a norm above the limit is said, together with the sample that made it.

Clipping hides a bad sample: the step is short, and its direction is that sample's. The log's ``gradient_norm_max``
tells that there was one; `suspects` tells which.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ppo_lab.config.ppo import PPOConfig
from ppo_lab.core.masking import step_weights, upcast
from ppo_lab.learners import Learner
from ppo_lab.learners.collectives import rounds
from ppo_lab.learners.plain import global_norm
from ppo_lab.records import StepBatch, UpdateMetrics, take
from ppo_lab.update import Assess, Leash, loss_and_sums, row_length

LIMIT = 10.0
NO_LEASH = Leash()


@dataclass(frozen=True, slots=True)
class Suspect:
    """A row of the batch and the norm of its own share of the gradient; ``share``: of the sum of all rows' norms."""

    row: int
    norm: float
    share: float


def row_norms(learner: Learner, batch: StepBatch, assess: Assess, cfg: PPOConfig, leash: Leash = NO_LEASH) -> Tensor:
    r"""Norm of each row's share of the loss's gradient, :math:`\lVert \nabla_\theta\, loss_i \rVert_2`, ``(B,)``.

    The weights are those of the whole batch, so the shares add up to the gradient and, by the triangle inequality, to
    no less than its norm. One backward pass a row: for a minibatch that has rung the alarm, not for every step. Nothing
    is added to the learner's gradient, and nothing moves. A ``standardize`` of the config is the caller's to apply.

    Among several processes each takes its rows, as many passes as the others (the last ones perhaps of no row), and all
    get the norms of all.
    """
    weight = step_weights(batch.mask, cfg.reduction, length=row_length(batch, cfg), dtype=upcast(batch.advantage).dtype)
    norms = []
    for rows in rounds(len(batch), world=learner.world, rank=learner.rank, micro=1):
        empty = rows.start >= rows.stop
        part = take(batch, slice(0, 1) if empty else rows)
        if empty:
            part = replace(part, mask=part.mask & False)
        share = weight[:1] * 0 if empty else weight[rows]
        loss, *_ = loss_and_sums(assess(learner, part.inputs), part, share, cfg, leash, policy_on=True)
        norm = _norm_under_zero(learner, loss) if hasattr(learner, "engine") else _norm(learner, loss)
        norms += [] if empty else [norm]
    return learner.gather(torch.tensor(norms, dtype=torch.float64))


def _norm(learner: Any, loss: Tensor) -> float:
    """Of a loss's gradient, which is added nowhere."""
    gradients = torch.autograd.grad(loss, list(learner.parameters.values()), allow_unused=True)
    return float(global_norm([g for g in gradients if g is not None]))


def _norm_under_zero(learner: Any, loss: Tensor) -> float:
    """The same where DeepSpeed takes gradients away as they come: each is measured on its way, and goes on as zeros.

    It is whole there, this rank's own, and carries the factors that `ZeroLearner.accumulate` and a loss scale gave it.
    """
    squares: dict[str, float] = {}

    def measure(name: str, gradient: Tensor) -> Tensor:
        if name in squares:
            raise RuntimeError(f"{name} had two gradients in one backward pass; its norm is not the sum of theirs")
        squares[name] = float(torch.linalg.vector_norm(gradient, dtype=torch.float64)) ** 2
        return torch.zeros_like(gradient)

    hooks = [p.register_hook(partial(measure, name)) for name, p in learner.parameters.items()]
    try:
        learner.accumulate(loss)
    finally:
        for hook in hooks:
            hook.remove()
    scaler = getattr(learner.engine.optimizer, "loss_scaler", None)
    scale = float(getattr(scaler, "cur_scale", 1.0)) if learner.precision == "fp16" else 1.0
    return math.sqrt(sum(squares.values())) / (learner.world * scale)


def suspects(norms: Tensor | Sequence[float], *, most: int = 3) -> list[Suspect]:
    """The rows with the largest norms, largest first; a norm that is no number comes before all others.

    >>> [s.row for s in suspects([0.1, 9.0, float("nan"), 0.2], most=2)]
    [2, 1]
    """
    x = torch.as_tensor(norms, dtype=torch.float64)
    order = x.nan_to_num(nan=torch.inf).argsort(descending=True, stable=True)[:most]
    total = float(x.nan_to_num(nan=0.0).sum()) or 1.0
    return [Suspect(int(i), float(x[i]), float(x[i]) / total) for i in order]


def alarm(
    update: UpdateMetrics,
    learner: Learner,
    batch: StepBatch,
    assess: Assess,
    cfg: PPOConfig,
    *,
    leash: Leash = NO_LEASH,
    limit: float = LIMIT,
    texts: Sequence[str] = (),
) -> list[str]:
    """One sentence a suspect where the update's largest norm passed ``limit`` (or was not finite); else nothing.

    The norms are taken after the update, on the weights as they are now: the size has changed, the order rarely has.
    Any learner, on any number of processes: every rank calls it and is told the same.

    Args:
        update: what `ppo_update` gave for ``batch``.
        limit: of the norm before clipping. Lower: more false alarms.
        texts: of the rows, to be quoted.
    """
    if update.gradient_norm_max <= limit:  # NaN is no such number
        return []
    said = f"gradient norm {update.gradient_norm_max:.3g} is above {limit:g}"
    quoted = dict(enumerate(texts))
    return [
        f"{said}: row {s.row} has {s.norm:.3g} of its own ({s.share:.0%} of all rows')"
        + (f": {quoted[s.row]!r}" if s.row in quoted else "")
        for s in suspects(row_norms(learner, batch, assess, cfg, leash))
    ]
