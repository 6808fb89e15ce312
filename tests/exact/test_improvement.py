"""What may be promised of a new policy: the lemma exact, the bound never broken, the clipped surrogate caught lying."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch
from material import normal, same

from ppo_lab.exact.mdp import (
    clip_counterexample,
    clipped_surrogate_value,
    corridor,
    performance_difference,
    policy_gradient,
    random_mdp,
    solve,
    surrogate_value,
    trpo_bound,
)
from ppo_lab.exact.mdp.counterexample import alike, two_doors

each = pytest.mark.parametrize("seed", range(4))


def pair(seed: int, size: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    old = normal(5, 3, seed=seed)
    return old.softmax(-1), (old + size * normal(5, 3, seed=seed + 1000)).softmax(-1)


@each
def test_performance_difference_is_exact(seed: int) -> None:
    world, (old, new) = random_mdp(seed, ending=0.1), pair(seed)
    assert same(performance_difference(world, old, new), solve(world, new).J - solve(world, old).J, atol=1e-11)


@each
def test_surrogate_meets_J_with_its_slope(seed: int) -> None:
    world, logits = random_mdp(seed), normal(5, 3, seed=seed)
    old, leaf = logits.softmax(-1), logits.clone().requires_grad_()
    promise = surrogate_value(world, old, leaf.softmax(-1))
    promise.backward()
    assert same(promise.detach(), solve(world, old).J, atol=1e-11) and same(leaf.grad, policy_gradient(world, logits))
    far = pair(seed, 3.0)[1]
    found = solve(world, old)
    by_hand = found.J + torch.einsum("s,sa,sa->", found.visits, far, found.advantage)
    assert same(surrogate_value(world, old, far), by_hand, atol=1e-11)
    assert (surrogate_value(world, old, far) - solve(world, far).J).abs() > 1e-3


@each
def test_clipped_surrogate_by_hand(seed: int) -> None:
    world, (old, new) = random_mdp(seed), pair(seed)
    found = solve(world, old)
    total = found.J.item()
    for s in range(5):
        for a in range(3):
            ratio, adv = float(new[s, a] / old[s, a]), float(found.advantage[s, a])
            total += float(found.visits[s] * old[s, a]) * min(ratio * adv, min(max(ratio, 0.9), 1.3) * adv)
    assert same(clipped_surrogate_value(world, old, new, clip=(0.1, 0.3)), total, atol=1e-11)
    assert same(clipped_surrogate_value(world, old, old, clip=0.2), found.J, atol=1e-11)
    assert same(clipped_surrogate_value(world, old, new, clip=(1.0, 1e9)), surrogate_value(world, old, new), atol=1e-11)


def test_the_bound_holds_on_a_thousand_steps() -> None:
    """Random worlds, discounts from 0.3 to 0.99, steps from tiny to wild; and it is not vacuous for the tiny ones."""
    above, tight = [], []
    for seed in range(1000):
        gamma, size = (0.3, 0.7, 0.9, 0.99)[seed % 4], (0.001, 0.03, 0.3, 2.0)[seed // 4 % 4]
        world = random_mdp(seed, states=4, actions=2, gamma=gamma, ending=0.2 * (seed % 3))
        old = normal(4, 2, seed=seed)
        found = trpo_bound(world, old.softmax(-1), (old + size * normal(4, 2, seed=seed + 5000)).softmax(-1))
        above.append((found.J - found.bound).item())
        tight.append(found.penalty.item() < 0.1)
    assert min(above) >= -1e-10 and sum(tight) > 300


@each
def test_parts_of_the_bound(seed: int) -> None:
    world, (old, new) = random_mdp(seed, gamma=0.8), pair(seed)
    found, before = trpo_bound(world, old, new), solve(world, old)
    assert same(found.coefficient, 4 * before.advantage.abs().max() * 0.8 / 0.2**2, atol=1e-9)
    kl = (old * (old / new).log()).sum(-1).max()
    assert same(found.kl, kl) and same(found.surrogate, surrogate_value(world, old, new), atol=1e-11)
    assert same(found.bound, found.surrogate - found.coefficient * kl, atol=1e-8)
    assert same(found.J, solve(world, new).J) and same(found.epsilon, before.advantage.abs().max())


def test_no_bound_without_a_discount() -> None:
    with pytest.raises(ValueError, match="gamma below 1"):
        trpo_bound(corridor(gamma=1.0), *(torch.full((5, 2), 0.5, dtype=torch.float64),) * 2)


# --- the counterexample ----------------------------------------------------------------------------------------------


def test_clipped_surrogate_rises_and_J_falls_in_fractions() -> None:
    """The proof, without a float: J, the old visits, the advantages and the ratios are fractions."""
    p, q = Fraction(12, 25), Fraction(72, 125)
    second, first = 1 - p, p * (1 - p)  # values of the two doors under the old policy
    advantage = {(0, "go"): second - first, (0, "stay"): 0 - first, (1, "go"): 0 - second, (1, "stay"): 1 - second}
    visits, old, new = {0: Fraction(1), 1: p}, {"go": p, "stay": 1 - p}, {"go": q, "stay": 1 - q}
    low, high, gain = Fraction(4, 5), Fraction(6, 5), Fraction(0)
    for (s, a), adv in advantage.items():
        ratio = new[a] / old[a]
        assert low <= ratio <= high  # the clip is silent
        gain += visits[s] * old[a] * (min(ratio * adv, min(max(ratio, low), high) * adv) - adv)
    loss = q * (1 - q) - p * (1 - p)
    assert gain == Fraction(12, 3125) and loss == Fraction(-84, 15625)
    found = clip_counterexample()
    assert same(found.surrogate_gain, float(gain)) and same(found.J_gain, float(loss))
    assert same(solve(found.mdp, found.old).J, float(p * (1 - p)))


def test_it_is_the_best_step_of_the_clipped_surrogate() -> None:
    """Over the one parameter there is: a grid of a thousand has its highest point there."""
    found = clip_counterexample()
    gos = [i / 1000 for i in range(10, 991)]
    heights = [clipped_surrogate_value(found.mdp, found.old, alike(go), clip=found.clip).item() for go in gos]
    assert gos[max(range(len(gos)), key=heights.__getitem__)] == 0.576
    assert same(found.new, alike(0.576)) and same(solve(two_doors(), alike(0.3)).J, 0.3 * 0.7)
