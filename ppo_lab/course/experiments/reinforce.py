"""Notebook 01: REINFORCE on a bandit, many seeds at once, judged by the exact J. No optimizer: plain gradient steps."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ppo_lab import seeding
from ppo_lab.core.objectives import reinforce


def ascend(
    reward: Tensor,
    *,
    seeds: Sequence[int],
    rate: float,
    batch: int,
    steps: int,
    offset: float = 0.0,
    reuse: int = 1,
    logits: Tensor | None = None,
) -> Tensor:
    """Learning curves of REINFORCE in the exact J, (seeds, steps + 1); all settings of a seed see the same noise.

    Args:
        reward: what each arm pays, (K,).
        seeds: one run each.
        rate: α of plain gradient ascent.
        batch: samples a gradient.
        steps: gradient steps.
        offset: added to every reward that the learner sees; J is without it.
        reuse: gradient steps on one batch before the next is drawn.
        logits: (K,) where all start; None: undecided.
    """
    noise = torch.stack([
        torch.rand(steps, batch, generator=seeding.generator("reinforce", seed), dtype=torch.float64) for seed in seeds
    ])  # fmt: skip
    start = torch.zeros(len(reward), dtype=torch.float64) if logits is None else logits
    table = start.repeat(len(seeds), 1).requires_grad_()
    curve, action = [table.detach().softmax(-1) @ reward], torch.empty(0)
    for t in range(steps):
        if t % reuse == 0:
            cumulative = table.detach().softmax(-1).cumsum(-1)
            action = (noise[:, t, :, None] >= cumulative[:, None] / cumulative[:, None, -1:]).sum(-1)
        logp = table.log_softmax(-1).gather(-1, action)
        objective = reinforce(logp, reward[action] + offset).mean(-1).sum()  # each seed has its own row: no mixing
        (gradient,) = torch.autograd.grad(objective, table)
        table = (table.detach() + rate * gradient).requires_grad_()
        curve.append(table.detach().softmax(-1) @ reward)
    return torch.stack(curve, dim=-1)
