"""The fault `episodes_joined` in the control recipe: the same switch, and the same numbers, as in tabular worlds."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from material import same

from ppo_lab import faults
from ppo_lab.config.ppo import PPOConfig
from ppo_lab.control.steps import credit
from ppo_lab.exact.agent import advantages, sample
from ppo_lab.exact.mdp import random_mdp

WORLD = random_mdp(2, ending=0.4, gamma=0.9, limit=5)
ROLLOUT = sample(WORLD, torch.full((5, 3), 1 / 3, dtype=torch.float64), episodes=8, steps=20, seed=0)


@pytest.mark.parametrize("lam", [0.0, 0.7, 1.0])
def test_both_trainers_credit_alike_healthy_and_broken(lam: float) -> None:
    ppo = PPOConfig(gamma=0.9, lam=lam)
    spoiled = replace(ROLLOUT, next_value=torch.where(ROLLOUT.terminated, 7.0, ROLLOUT.next_value))
    healthy = credit(spoiled, ppo, "gae")[0]
    assert same(healthy, advantages(ROLLOUT, gamma=0.9, lam=lam)[0])
    with faults.planted("episodes_joined"):
        broken = credit(spoiled, ppo, "gae")[0]
        assert same(broken, advantages(ROLLOUT, gamma=0.9, lam=lam)[0])
    assert same(broken, healthy) == (lam == 0)  # a single step looks across nothing


def test_returns_run_on_into_the_next_episode() -> None:
    """Without a discount the broken return of the first step is all that the row ever earns, and what comes after."""
    with faults.planted("episodes_joined"):
        total, target = credit(ROLLOUT, PPOConfig(gamma=1.0), "return")
    beyond = torch.where(ROLLOUT.terminated, 0.0, ROLLOUT.next_value)[:, -1]
    assert same(total[:, 0], ROLLOUT.reward.sum(-1) + beyond) and total is target
