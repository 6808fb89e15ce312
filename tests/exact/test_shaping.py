"""Potentials keep the optimal actions, other terms do not: on every world that is drawn."""

from __future__ import annotations

import pytest
import torch

from ppo_lab.exact.mdp import (
    best_policy,
    chain,
    corridor,
    grid,
    nearness,
    optimal_actions,
    paid_besides,
    random_mdp,
    shaped,
    solve,
    value_iteration,
)

F64 = torch.float64


@pytest.mark.parametrize("seed", range(12))
def test_any_potential_keeps_the_optimal_actions_and_shifts_q(seed):
    mdp = random_mdp(seed, states=6, ending=0.4)
    phi = 3 * torch.randn(6, dtype=F64, generator=torch.Generator().manual_seed(seed))
    moved = shaped(mdp, phi)
    assert torch.equal(optimal_actions(mdp), optimal_actions(moved))
    torch.testing.assert_close(value_iteration(moved), value_iteration(mdp) - phi[:, None], rtol=0, atol=1e-9)
    any_policy = torch.rand(6, 3, dtype=F64, generator=torch.Generator().manual_seed(seed)).softmax(-1)
    before, after = solve(mdp, any_policy), solve(moved, any_policy)
    torch.testing.assert_close(after.advantage, before.advantage, rtol=0, atol=1e-9)
    torch.testing.assert_close(after.J, before.J - mdp.start @ phi, rtol=0, atol=1e-9)


def test_the_same_potential_as_a_plain_bonus_changes_some_of_them():
    changed = 0
    for seed in range(12):
        mdp = random_mdp(seed, states=6, ending=0.4)
        phi = 3 * torch.randn(6, dtype=F64, generator=torch.Generator().manual_seed(seed))
        changed += not torch.equal(optimal_actions(mdp), optimal_actions(paid_besides(mdp, nearness(mdp, phi))))
    assert changed > 6


def test_value_iteration_agrees_with_policy_iteration():
    for mdp in (corridor(7, slip=0.1), grid(ends={(2, 3): 5.0}, living=-1.0), chain(5), random_mdp(3, ending=0.2)):
        best = best_policy(mdp)
        q = value_iteration(mdp)
        torch.testing.assert_close(q, solve(mdp, best).q, rtol=0, atol=1e-9)
        assert bool((optimal_actions(mdp) & (best == 1)).any(-1).all())
    with pytest.raises(ValueError, match="value iteration must settle"):
        value_iteration(grid(gamma=1.0), most=50)


def test_the_chain_is_walked_in_one_piece_or_not_at_all():
    mdp = chain(6, gamma=0.9)
    right = torch.tensor([[0.0, 1.0]] * 6, dtype=F64)
    assert solve(mdp, right).J.item() == pytest.approx(0.9**5, abs=1e-12)
    undecided = torch.full((6, 2), 0.5, dtype=F64)
    assert solve(mdp, undecided).J.item() < 0.25 * 0.9**5
    with pytest.raises(ValueError, match="chain needs states"):
        chain(0)
    with pytest.raises(ValueError, match="bonus must be"):
        paid_besides(mdp, torch.zeros(6))
