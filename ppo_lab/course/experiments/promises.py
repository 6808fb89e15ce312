"""Notebook 04: which promises of a surrogate J keeps. Exact on tables; nothing is sampled."""

from __future__ import annotations

from typing import NamedTuple

import torch

from ppo_lab import seeding
from ppo_lab.course.experiments.reuse import world
from ppo_lab.exact.mdp import clipped_surrogate_value, solve, trpo_bound
from ppo_lab.exact.mdp.counterexample import alike, two_doors


class Promise(NamedTuple):
    """A step of the two doors: what the clipped surrogate promises, and what J gains."""

    clip: float
    surrogate: float
    J: float


def slack(seed: int, *, size: float = 0.1) -> float:
    """J of a random step away from a random policy, less its TRPO bound: below 0 the theorem would be wrong.

    Args:
        seed: of the world, the policy and the step.
        size: spread of the step in the logits.
    """
    mdp, draw = world(seed).mdp, seeding.generator(seed, "slack")
    old, step = torch.randn(2, mdp.states, mdp.actions, generator=draw, dtype=torch.float64)
    found = trpo_bound(mdp, old.softmax(-1), (old + size * step).softmax(-1))
    return float(found.J - found.bound)


def two_door_step(clip: float) -> Promise:
    """The best step of the clipped surrogate at this ε, from an old policy for which it loses.

    Going has probability p at both doors, J = p (1 - p), and the surrogate likes to go as long as p < 1/2. A step to
    the edge of the band, p (1 + ε), lowers J where p (2 + ε) > 1. Between the two there is a p for every ε > 0.
    """
    p = (1 / (2 + clip) + 0.5) / 2
    mdp, old, new = two_doors(), alike(p), alike(p * (1 + clip))
    before, after = (clipped_surrogate_value(mdp, old, probs, clip=clip) for probs in (old, new))
    return Promise(clip, float(after - before), float(solve(mdp, new).J - solve(mdp, old).J))
