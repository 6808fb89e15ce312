"""What is broken on purpose in notebooks 01 and 02 shows the symptom that its entry promises, in the exact numbers."""

from __future__ import annotations

import pytest
import torch
from material import same

from ppo_lab import faults
from ppo_lab.config.ppo import PPOConfig
from ppo_lab.core.values import explained_variance
from ppo_lab.exact.agent import Progress, TabularActorCritic, advantages, sample, tables, train
from ppo_lab.exact.mdp import best_policy, corridor, solve
from ppo_lab.learners.plain import PlainLearner

PLAIN = PPOConfig(epochs=1, minibatches=1, lam=1.0, value_clip=None, standardize="none", value_coef=0.5)
DOORS = corridor(7, left=0.5, gamma=1.0, start=1)  # half the pay two steps away, all of it six steps away
SLIPPERY = corridor(5, slip=0.1, gamma=0.9)


def run(mdp, cfg: PPOConfig, seed: int, *, critic: float, iterations: int, size: int = 32,
        after_end: str = "restart") -> tuple[list[Progress], torch.Tensor]:  # fmt: skip
    learner = PlainLearner(TabularActorCritic(mdp), actor_rate=0.05, critic_rate=critic, device="cpu")
    steps = [*train(learner, mdp, cfg, episodes=16, steps=size, iterations=iterations, seed=seed, after_end=after_end)]
    return steps, tables(learner)[1]


def test_joined_episodes_change_the_returns_after_an_end_only() -> None:
    got = sample(DOORS, TabularActorCritic(DOORS).probs, episodes=8, steps=32, seed=0, value=torch.zeros(7))
    healthy, _ = advantages(got, gamma=1.0, lam=1.0)
    with faults.planted("episodes_joined"):
        joined, _ = advantages(got, gamma=1.0, lam=1.0)
    assert same(joined, got.reward.flip(-1).cumsum(-1).flip(-1)) and healthy.max() <= 1 < joined.max()
    last = got.ended.flip(-1).cumsum(-1).flip(-1) == 1  # the last episode of each row
    assert same(joined[last], healthy[last]) and bool((joined[~last] >= healthy[~last]).all())


@pytest.mark.parametrize("seed", range(3))
def test_joined_episodes_end_soon(seed: int) -> None:
    reinforce = PLAIN.model_copy(update={"objective": "reinforce", "value_coef": 0.0})
    healthy, _ = run(DOORS, reinforce, seed, critic=0.0, iterations=120)
    with faults.planted("episodes_joined"):
        broken, _ = run(DOORS, reinforce, seed, critic=0.0, iterations=120)
    assert healthy[-1].J > 0.9 and broken[-1].J < 0.6 and solve(DOORS, best_policy(DOORS)).J == 1
    assert broken[-1].rollout.ended.sum() > 2 * healthy[-1].rollout.ended.sum()


@pytest.mark.parametrize("seed", range(3))
def test_an_attached_baseline_settles_below_by_one_over_c1(seed: int) -> None:
    """The critic balances c1 (V - G) against the policy's pull of the ratio, which is 1: V = G - 1/c1."""
    whole = {"critic": 0.1, "iterations": 80, "size": 60, "after_end": "mask"}  # no cut, so nothing is bootstrapped
    healthy, value = run(SLIPPERY, PLAIN, seed, **whole)
    with faults.planted("baseline_attached"):
        broken, pulled = run(SLIPPERY, PLAIN, seed, **whole)
    visited = slice(2, 5)  # from the middle to the right exit: where the learned policy is
    exact, bent = (solve(SLIPPERY, steps[-1].probs).value[visited] for steps in (healthy, broken))
    assert same(value[visited], exact, atol=0.1)  # a critic that follows noisy returns
    assert same(pulled[visited], bent - 1 / PLAIN.value_coef, atol=0.1)
    (mean, explained), (_, usual) = (judged(steps[-1].rollout) for steps in (broken, healthy))
    assert mean > 1.8 and abs(explained - usual) < 0.15  # the light that a critic's bias does not switch on


def judged(rollout) -> tuple[float, float]:
    """Mean advantage and explained variance of what the last update learned from."""
    advantage, target = advantages(rollout, gamma=0.9, lam=1.0)
    mask = rollout.mask
    return advantage[mask].mean().item(), explained_variance(rollout.value, target, mask).item()
