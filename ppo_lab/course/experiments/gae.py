"""Notebook 05: GAE against exact advantages. World and critics are those of its panel; everything here is measured."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ppo_lab import seeding
from ppo_lab.core.returns import gae
from ppo_lab.course.figures.gae import World, critic, rms, world
from ppo_lab.exact.advantages import between_actions
from ppo_lab.exact.agent import sample
from ppo_lab.records import ControlRollout


def lambda_study(
    seeds: Sequence[int], *, errors: Sequence[float], lams: Sequence[float], batches: Sequence[int], gamma: float = 0.99
) -> list[dict[str, float]]:
    """Bias, noise and error of GAE, one row a seed, critic's error, λ and batch.

    A seed is a draw of the critic's errors and of the episodes; all λ and errors of a seed see the same episodes.

    Args:
        seeds: one run each.
        errors: of the critic, in spreads of V.
        lams: λ.
        batches: episodes that are averaged; the largest is sampled, the others are its first ones.
        gamma: discount.

    Returns:
        Rows with ``seed, error, lam, batch`` and, in units of the size of A: ``bias2`` (squared, unbiased, so it may be
        below 0: the product of two halves' errors), ``noise`` of one step, ``rmse`` of the batch's mean, and ``plain``
        (as bias2, without taking off what the actions of a state share).
    """
    here, rows = world(gamma), []
    for seed in seeds:
        number = torch.arange(here.mdp.states, dtype=torch.float64)
        key = seeding.key(seed, "lambda study")
        seen = sample(here.mdp, here.probs, episodes=max(batches), steps=200, seed=key, value=number, after_end="mask")
        for error in errors:
            value = critic(here, error, seed=1 + seed)
            for lam in lams:
                found = gae(seen.reward, value[seen.obs], value[seen.next_value.long()], terminated=seen.terminated,
                            ended=seen.ended, gamma=gamma, lam=lam, mask=seen.mask)  # fmt: skip
                for batch in batches:
                    row = {"seed": seed, "error": error, "lam": lam, "batch": batch}
                    rows.append(row | judged(here, seen, found, batch))
    return rows


def judged(here: World, seen: ControlRollout, found: Tensor, batch: int) -> dict[str, float]:
    """Errors of the first ``batch`` episodes' estimates, by state and action."""
    size = rms(here.advantage, here.weight)
    half = batch // 2
    first, second, whole = (table(here, seen, found, rows) for rows in (slice(0, half), slice(half, batch),
                                                                         slice(0, batch)))  # fmt: skip
    a, b, both = (between_actions(m, here.probs) - here.advantage for m in (first, second, whole))
    keep = seen.mask[:batch]
    cell = (seen.obs * here.mdp.actions + seen.action)[:batch][keep]
    scatter = found[:batch][keep] - whole.flatten()[cell]
    plain = (first - here.advantage) * (second - here.advantage)
    return {
        "bias2": float((here.weight * a * b).sum()) / size**2,
        "noise": float(scatter.square().mean().sqrt()) / size,
        "rmse": rms(both, here.weight) / size,
        "plain": float((here.weight * plain).sum()) / size**2,
    }


def table(here: World, seen: ControlRollout, found: Tensor, rows: slice) -> Tensor:
    """Mean estimate of every state and action in these rows, (S, A); 0 where there was none."""
    keep = seen.mask[rows]
    cell = (seen.obs * here.mdp.actions + seen.action)[rows][keep]
    cells = here.mdp.states * here.mdp.actions
    count = torch.bincount(cell, minlength=cells).clamp(min=1)
    total = torch.bincount(cell, weights=found[rows][keep], minlength=cells)
    return (total / count).reshape(here.mdp.states, here.mdp.actions)
