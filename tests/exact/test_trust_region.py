"""TRPO on tables: the product is the Fisher matrix's, the region holds, a bad batch moves nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from ppo_lab.core.kl import categorical_kl
from ppo_lab.core.masking import standardize
from ppo_lab.core.trust_region import natural_step
from ppo_lab.exact.agent import TabularActorCritic, advantages, sample, step_batch
from ppo_lab.exact.mdp import random_mdp, solve
from ppo_lab.exact.trust_region import trpo_step
from ppo_lab.records import StepBatch

MDP = random_mdp(3, 5, 3, gamma=0.9, ending=0.2)


def prepared(seed: int = 0, episodes: int = 16) -> tuple[TabularActorCritic, StepBatch]:
    draw = torch.Generator().manual_seed(seed)
    module = TabularActorCritic(MDP, torch.randn(5, 3, generator=draw, dtype=torch.float64))
    rollout = sample(MDP, module.probs, episodes=episodes, steps=16, seed=seed)
    return module, step_batch(rollout, *advantages(rollout, gamma=MDP.gamma, lam=0.95), old_logits=module.logits)


def by_matrix(module: TabularActorCritic, batch: StepBatch, delta: float, damping: float) -> torch.Tensor:
    """The full step with the Fisher matrix written out and inverted."""
    obs, action, n = batch.inputs.obs, batch.inputs.action, len(batch)
    probs = module.probs
    share = torch.bincount(obs, minlength=5).double() / n
    blocks = torch.diag_embed(probs) - probs[:, :, None] * probs[:, None, :]
    fisher = torch.block_diag(*(share[:, None, None] * blocks)) + damping * torch.eye(15, dtype=torch.float64)
    score = torch.nn.functional.one_hot(action, 3).double() - probs[obs]
    a = standardize(batch.advantage, batch.mask)
    g = torch.zeros(5, 3, dtype=torch.float64).index_add(0, obs, score * a[:, None] / n).reshape(-1)
    x = torch.linalg.solve(fisher, g)
    return ((2 * delta / (x @ g)).sqrt() * x).reshape(5, 3)


@pytest.mark.parametrize("damping", [1e-3, 0.1])
def test_the_step_is_the_one_of_the_explicit_matrix(damping: float) -> None:
    module, batch = prepared()
    before, full = module.logits.detach().clone(), by_matrix(module, batch, 0.01, damping)
    took = trpo_step(module, batch, delta=0.01, damping=damping, iters=40)
    assert took.halvings is not None
    torch.testing.assert_close(module.logits.detach() - before, full * 0.5**took.halvings, rtol=0, atol=1e-8)


@pytest.mark.parametrize("seed", range(5))
def test_the_region_holds_and_the_surrogate_rises(seed: int) -> None:
    module, batch = prepared(seed)
    old = module.logits.detach().clone()
    took = trpo_step(module, batch, delta=0.02)
    kl = categorical_kl(old[batch.inputs.obs], module.logits.detach()[batch.inputs.obs]).mean().item()
    assert 0 < took.kl <= 0.02 and took.gain > 0 and took.kl == pytest.approx(kl, abs=1e-12)
    assert took.kl > 0.001  # and it is used


def test_exact_steps_raise_J_every_time() -> None:
    """Many samples and a small region: the surrogate is nearly J itself."""
    module, worth = TabularActorCritic(MDP), []
    for i in range(6):
        worth.append(solve(MDP, module.probs).J.item())
        rollout = sample(MDP, module.probs, episodes=400, steps=16, seed=i)
        trpo_step(module, step_batch(rollout, *advantages(rollout, gamma=MDP.gamma, lam=0.95)), delta=0.01)
    assert worth == sorted(worth) and worth[-1] > worth[0] + 0.1


def test_where_nothing_can_be_gained_nothing_moves() -> None:
    module, batch = prepared()
    before = module.logits.detach().clone()
    took = trpo_step(module, replace(batch, advantage=torch.zeros_like(batch.advantage)), delta=0.01)
    assert took == (None, 0.0, 0.0) and torch.equal(module.logits.detach(), before)


def test_products_and_matrix_give_the_same_step() -> None:
    """The memory of vectors is enough: no D × D matrix is needed."""
    draw = torch.Generator().manual_seed(0)
    a = torch.randn(6, 6, generator=draw, dtype=torch.float64)
    matrix, g = a @ a.T + torch.eye(6), torch.randn(6, generator=draw, dtype=torch.float64)
    x = torch.linalg.solve(matrix, g)
    wanted = (2 * 0.01 / (x @ g)).sqrt() * x
    torch.testing.assert_close(natural_step(lambda v: matrix @ v, g, delta=0.01), wanted, rtol=0, atol=1e-9)
