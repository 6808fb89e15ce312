"""Tabular worlds: tables that mean what the docstrings say, and errors that name what is wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from material import same

from ppo_lab.exact.mdp import MDP, bandit, corridor, grid, limited_values, random_mdp, solve


def table(rows: list) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def evenly(mdp: MDP) -> torch.Tensor:
    return torch.full_like(mdp.reward, 1 / mdp.actions)


def test_a_bandit_pays_its_arm() -> None:
    reward = table([1.0, -2.0, 5.0])
    world = bandit(reward)
    probs = table([[0.2, 0.3, 0.5]])
    found = solve(world, probs)
    assert same(found.J, 0.2 - 0.6 + 2.5) and same(found.q[0], reward) and same(found.visits, torch.ones(1))


@pytest.mark.parametrize("states", [1, 2, 5, 8])
def test_the_undecided_walk_has_its_closed_form(states: int) -> None:
    """V(i) = (i+1)/(S+1) of Sutton & Barto, example 6.2."""
    world = corridor(states, gamma=1.0)
    assert same(solve(world, evenly(world)).value, torch.arange(1, states + 1).double() / (states + 1))


def test_corridor_by_hand() -> None:
    """Three places, two steps to the right exit from the middle; a slip of 0.1; a toll a step."""
    world = corridor(3, left=0.5, right=2.0, step=-0.1, slip=0.1, gamma=0.9)
    assert same(world.reward, table([[0.9 * 0.5, 0.1 * 0.5], [0, 0], [0.1 * 2, 0.9 * 2]]) - 0.1)
    assert same(world.transition[1], table([[0.9, 0, 0.1], [0.1, 0, 0.9]]))
    assert same(world.transition[0].sum(-1), table([0.1, 0.9]))
    assert world.start.tolist() == [0, 1, 0] and corridor(4, start=3).start.tolist() == [0, 0, 0, 1]
    always = table([[0.0, 1.0]] * 3)
    assert same(solve(corridor(3, right=2.0, step=-0.1, gamma=0.9), always).J, -0.1 + 0.9 * 1.9)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 0.9, 0.99])
def test_a_cut_is_no_end(gamma: float) -> None:
    """Reward 1 for ever is worth 1/(1-γ); were the limit an end, (1-γ^h)/(1-γ) with h steps to go."""
    world = grid(gamma=gamma, slip=0.3, limit=7)
    assert same(solve(world, evenly(world)).value, torch.full((12,), 1 / (1 - gamma)), atol=1e-10)
    ended = limited_values(world, evenly(world), 7)
    closed = (1 - gamma ** torch.arange(8, dtype=torch.float64)) / (1 - gamma)
    assert same(ended, closed[:, None].expand(8, 12))
    assert same(solve(replace(world, limit=None), evenly(world)).value, solve(world, evenly(world)).value)


def test_limited_values_reach_the_unlimited() -> None:
    world = random_mdp(3, ending=0.3)
    assert same(limited_values(world, evenly(world), 400)[-1], solve(world, evenly(world)).value)


def test_grid_by_hand() -> None:
    """2 x 2, a pit below the start: down ends with -5, up stays put, right moves on."""
    world = grid(2, 2, living=1.0, ends={(1, 0): -5.0}, gamma=0.9, limit=None)
    assert same(world.reward[0], table([1.0, -4.0, 1.0, 1.0]))
    assert same(world.transition[0].sum(-1), table([1.0, 0.0, 1.0, 1.0]))
    assert world.transition[0, 0, 0] == 1 and world.transition[0, 3, 1] == 1
    slippery = grid(2, 2, living=0.0, ends={(1, 0): -5.0}, slip=0.4)
    assert same(slippery.reward[0], -5 * table([0.1, 0.7, 0.1, 0.1]))


def test_random_worlds_are_reproducible_and_different() -> None:
    assert torch.equal(random_mdp(0).transition, random_mdp(0).transition)
    assert not torch.equal(random_mdp(0).reward, random_mdp(1).reward)
    assert same(random_mdp(0).transition.sum(-1), torch.ones(5, 3)) and same(random_mdp(0).start.sum(), 1.0)
    mass = random_mdp(0, ending=0.5).transition.sum(-1)
    assert bool((mass < 1).all()) and bool((mass >= 0.5).all()) and mass.std() > 0.05


@pytest.mark.parametrize(
    "change, message",
    [
        ({"transition": torch.full((5, 3, 5), 0.3, dtype=torch.float64)}, "transition rows must be probabilities"),
        ({"transition": torch.zeros(5, 3, 4, dtype=torch.float64)}, r"transition must be \(5, 3, 5\)"),
        ({"reward": torch.zeros(5, 3)}, "reward must be finite float64"),
        ({"start": torch.full((5,), 0.3, dtype=torch.float64)}, "start must be probabilities"),
        ({"gamma": 1.5}, "gamma must be in"),
        ({"limit": 0}, "limit must be at least 1"),
    ],
)
def test_a_wrong_table_is_refused(change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(random_mdp(0), **change)


def test_makers_refuse_what_is_no_world() -> None:
    with pytest.raises(ValueError, match="slip in"):
        corridor(3, slip=0.7)
    with pytest.raises(ValueError, match="must be different places"):
        grid(2, 2, ends={(0, 0): 1.0})
