"""Identities of solved worlds in float64: Bellman, visits, gradients by autograd and by finite differences."""

from __future__ import annotations

import itertools

import pytest
import torch
from material import normal, same

from ppo_lab.core.kl import categorical_kl
from ppo_lab.exact.mdp import (
    best_policy,
    corridor,
    fisher,
    limited_values,
    max_kl,
    mean_kl,
    policy_gradient,
    random_mdp,
    solve,
)

SEEDS = range(5)
each = pytest.mark.parametrize("seed", SEEDS)


def logits_of(seed: int) -> torch.Tensor:
    return normal(5, 3, seed=seed)


@each
def test_bellman(seed: int) -> None:
    world, probs = random_mdp(seed, ending=0.2), logits_of(seed).softmax(-1)
    found = solve(world, probs)
    q = world.reward + 0.9 * torch.einsum("saz,z->sa", world.transition, found.value)
    assert same(found.q, q) and same(found.value, (probs * q).sum(-1)) and same(found.J, world.start @ found.value)
    assert same(found.advantage, q - found.value[:, None]) and same((probs * found.advantage).sum(-1), torch.zeros(5))


@each
def test_visits_flow_and_sum(seed: int) -> None:
    world, probs = random_mdp(seed), logits_of(seed).softmax(-1)
    found = solve(world, probs)
    assert same(found.visits.sum(), 1 / (1 - 0.9), atol=1e-10)
    inflow = torch.einsum("s,sa,saz->z", found.visits, probs, world.transition)
    assert same(found.visits, world.start + 0.9 * inflow)
    assert same(found.visits @ (probs * world.reward).sum(-1), found.J)
    ending = random_mdp(seed, ending=0.5)
    assert solve(ending, probs).visits.sum() < 1 / (1 - 0.9)


@each
def test_gradient_is_autograds_and_finite_differences(seed: int) -> None:
    world, leaf = random_mdp(seed, ending=0.2), logits_of(seed).requires_grad_()
    solve(world, leaf.softmax(-1)).J.backward()
    exact = policy_gradient(world, leaf.detach())
    assert same(exact, leaf.grad) and same(exact.sum(-1), torch.zeros(5))
    step, slopes = 1e-5, torch.zeros(5, 3, dtype=torch.float64)
    for s, a in itertools.product(range(5), range(3)):
        nudge = torch.zeros(5, 3, dtype=torch.float64)
        nudge[s, a] = step
        up, down = (solve(world, (leaf.detach() + sign * nudge).softmax(-1)).J for sign in (1, -1))
        slopes[s, a] = (up - down) / (2 * step)
    assert same(exact, slopes, atol=1e-8)  # central differences: error of the order of step²


@each
def test_fisher_is_the_curvature_of_the_mean_kl(seed: int) -> None:
    world, logits = random_mdp(seed), logits_of(seed)
    old = logits.softmax(-1)
    flat = torch.autograd.functional.hessian(lambda z: mean_kl(world, old, z.softmax(-1)), logits.clone())
    assert same(fisher(world, logits), flat.reshape(15, 15))
    assert same(fisher(world, logits) @ torch.ones(15, dtype=torch.float64), torch.zeros(15))


@each
def test_kl_over_states(seed: int) -> None:
    world, old, new = random_mdp(seed), logits_of(seed), logits_of(seed + 100)
    each_state = categorical_kl(old, new)
    visits = solve(world, old.softmax(-1)).visits
    assert same(mean_kl(world, old.softmax(-1), new.softmax(-1)), (visits * each_state).sum() / visits.sum())
    assert same(max_kl(world, old.softmax(-1), new.softmax(-1)), each_state.max())
    assert mean_kl(world, old.softmax(-1), old.softmax(-1)).abs() < 1e-12


@each
def test_best_policy_beats_all(seed: int) -> None:
    """Against every deterministic policy, in every state."""
    world = random_mdp(seed, states=4, actions=2, ending=0.2)
    best = solve(world, best_policy(world)).value
    for choice in itertools.product(range(2), repeat=4):
        probs = torch.nn.functional.one_hot(torch.tensor(choice), 2).double()
        assert bool((best >= solve(world, probs).value - 1e-10).all())


def test_best_policy_of_the_corridor() -> None:
    """Middle of five, two steps before the one that leaves: γ². A near exit of 0.9 on the left ties with nothing."""
    assert same(solve(corridor(5, gamma=0.9), best_policy(corridor(5, gamma=0.9))).J, 0.9**2)
    near = corridor(5, left=0.5, gamma=0.5, start=1)
    assert best_policy(near)[1].tolist() == [1.0, 0.0] and best_policy(near)[4].tolist() == [0.0, 1.0]


def test_values_under_a_limit_by_hand() -> None:
    always = torch.tensor([[0.0, 1.0]] * 3, dtype=torch.float64)
    found = limited_values(corridor(3, gamma=0.5), always, 3)
    assert same(found, torch.tensor([[0, 0, 0], [0, 0, 1], [0, 0.5, 1], [0.25, 0.5, 1]], dtype=torch.float64))


def test_what_cannot_be_solved_is_refused() -> None:
    world = random_mdp(0, gamma=1.0)
    with pytest.raises(ValueError, match="use gamma below 1"):
        solve(corridor(3, gamma=1.0), torch.tensor([[0, 1.0], [1.0, 0], [1.0, 0]], dtype=torch.float64))
    with pytest.raises(ValueError, match=r"probs must be \(S, A\) \(5, 3\) float64"):
        solve(world, torch.full((5, 3), 1 / 3))
    with pytest.raises(ValueError, match=r"got \(3, 5\) torch.float64"):
        solve(world, torch.full((3, 5), 1 / 5, dtype=torch.float64))
    with pytest.raises(ValueError, match="got a sum 0.4 off"):
        solve(world, torch.full((5, 3), 0.2, dtype=torch.float64))
