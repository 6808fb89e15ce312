"""Notebook 12, optional: two objectives whose best trades bend the wrong way, and weights that follow a target.

The dive: at each depth one takes the treasure there or goes deeper, which costs time; after Vamplew et al. 2011, deep
sea treasure. All deterministic policies are listed and solved. The answers: a list of them with scores of three kinds,
where the best policy on a leash is known in closed form, so that only the rule that moves the weights is judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import torch
from torch import Tensor

from ppo_lab import seeding
from ppo_lab.core.several import adapt_weights, chebyshev, lexicographic, pareto_front
from ppo_lab.exact.mdp import MDP, best_policy, solve
from ppo_lab.exact.optimum import optimal_logp

TREASURE = (1.0, 2.0, 3.0, 5.0, 8.0, 16.0, 24.0, 50.0, 74.0, 124.0)  # Vamplew et al. 2011
COST = (1.0, 3.0, 5.0, 7.0, 8.0, 9.0, 13.0, 14.0, 17.0, 19.0)  # steps to each
TAKE, DIVE = 0, 1
WEIGHTS = (0.6, 0.3, 0.1)  # at first
ROUNDS, ANSWERS, BETA, ALPHA = 150, 64, 0.2, 0.2


def dive() -> tuple[MDP, Tensor]:
    """The world without a reward, and its two rewards (2, S, A): treasure and minus time, each over its largest.

    At the bottom both actions take.
    """
    depth = len(TREASURE)
    transition, reward = torch.zeros(depth, 2, depth).double(), torch.zeros(2, depth, 2).double()
    for d in range(depth):
        step = COST[d] - (COST[d - 1] if d else 0.0)
        reward[1, d] = -step / COST[-1]  # paid on arriving here
        reward[0, d, TAKE] = TREASURE[d] / TREASURE[-1]
        if d + 1 < depth:
            transition[d, DIVE, d + 1] = 1.0
        else:
            reward[0, d, DIVE] = reward[0, d, TAKE]
    start = torch.eye(depth, dtype=torch.float64)[0]
    return MDP(transition=transition, reward=torch.zeros(depth, 2).double(), start=start, gamma=1.0), reward


def returns(probs: Tensor) -> Tensor:
    """Expected return of a policy in both objectives, (2,)."""
    world, rewards = dive()
    return torch.stack([solve(replace(world, reward=reward), probs).J for reward in rewards])


def all_points() -> Tensor:
    """Both returns of every deterministic policy, (2^S, 2)."""
    every = product((TAKE, DIVE), repeat=len(TREASURE))
    return torch.stack([returns(torch.eye(2).double()[list(actions)]) for actions in every])


@dataclass(frozen=True, slots=True)
class Reached:
    """Which points of the front each rule can reach."""

    front: Tensor  # (F, 2)
    linear: Tensor  # (F,) bool
    chebyshev: Tensor  # (F,) bool
    constraint: Tensor  # (F,) bool


def reached(points: Tensor, *, grid: int = 401) -> Reached:
    """Every rule over a grid of weights (or, for the constraint, of limits on time).

    Linear weights are given to policy iteration on the weighted reward, so that no list of policies is needed for what
    they miss; the other two choose among the points.
    """
    world, rewards = dive()
    front = points[pareto_front(points)].unique(dim=0)
    sides = torch.linspace(0, 1, grid, dtype=torch.float64)[1:-1].tolist()
    hits = {name: torch.zeros(len(front), dtype=torch.bool) for name in ("linear", "chebyshev", "constraint")}

    def hit(name: str, point: Tensor) -> None:
        hits[name] |= (front - point).abs().amax(-1) < 1e-9

    for w in sides:
        mixed = replace(world, reward=w * rewards[0] + (1 - w) * rewards[1])
        hit("linear", returns(best_policy(mixed)))
        worst = chebyshev(points, [w, 1 - w], reference=[-0.01, -1.01], sum_weight=1e-6)
        hit("chebyshev", points[worst.argmax()])
        least = 1.01 * (w - 1)
        kept = lexicographic(points, [1.0, 0.0], first=1, least=least, floor=-9.0)
        if bool((points[:, 1] >= least).any()):
            hit("constraint", points[kept.argmax()])
    return Reached(front, **hits)


@dataclass(frozen=True, slots=True)
class Followed:
    """How weights moved, and what came of them."""

    weights: list[list[float]]
    shortfall: list[float]  # largest (target - reached) of the three, each round

    @property
    def late(self) -> float:
        """Mean shortfall of the last third."""
        kept = self.shortfall[-(len(self.shortfall) // 3) :]
        return sum(kept) / len(kept)


def study(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Scores (N, 3) that pull against each other, log π_ref (N,), and a target that some weights reach exactly."""
    draw = seeding.generator("several objectives", seed)
    scores = torch.randn(ANSWERS, 3, generator=draw, dtype=torch.float64)
    scores = scores - 0.5 * scores.roll(1, dims=-1)
    ref = torch.full((ANSWERS,), 1 / ANSWERS, dtype=torch.float64).log()
    hidden = torch.rand(3, generator=draw, dtype=torch.float64) + 0.2
    return scores, ref, _mean(scores, ref, (hidden / hidden.sum()).tolist())


def _mean(scores: Tensor, ref: Tensor, weights: Sequence[float]) -> Tensor:
    """What the best policy on the leash reaches under these weights, (3,)."""
    return optimal_logp(ref, scores @ torch.tensor(weights, dtype=torch.float64), beta=BETA).exp() @ scores


def follow(seed: int, rule: str, *, rounds: int = ROUNDS) -> Followed:
    """Weights under a rule (or "fixed"): after each round the policy is the best for them, and they see what it got."""
    scores, ref, target = study(seed)
    weights: list[float] = [*WEIGHTS]
    found = Followed([], [])
    for _ in range(rounds):
        got = _mean(scores, ref, weights)
        found.weights.append(weights)
        found.shortfall.append(float((target - got).max()))
        if rule != "fixed":
            weights = adapt_weights(weights, got.tolist(), target.tolist(), rule=rule, alpha=ALPHA)
    return found


def closed(seeds: Sequence[int], rule: str) -> list[float]:
    """How much of the fixed weights' late shortfall a rule closes, seed by seed; 1 is all of it."""
    return [1 - follow(seed, rule).late / follow(seed, "fixed").late for seed in seeds]
