"""Sampling a tabular world, and the real PPO update on it: to the exact optimum, with a first ratio of exactly 1."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from material import same

from ppo_lab.config.ppo import PPOConfig
from ppo_lab.core.kl import categorical_kl
from ppo_lab.core.returns import discounted_returns
from ppo_lab.exact.agent import TabularActorCritic, advantages, assess, sample, step_batch, train
from ppo_lab.exact.mdp import best_policy, corridor, grid, policy_gradient, random_mdp, solve
from ppo_lab.learners.plain import PlainLearner
from ppo_lab.records import StepBatch
from ppo_lab.update import ppo_update

CFG = PPOConfig(epochs=4, minibatches=4, lam=0.95, value_coef=0.5, value_clip=None, standardize="minibatch")
WORLD = random_mdp(2, ending=0.3, gamma=0.8, limit=6)
PROBS = torch.randn(5, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64).softmax(-1)


def learner_of(mdp, rate: float = 0.05, **options) -> PlainLearner:
    return PlainLearner(TabularActorCritic(mdp), actor_rate=rate, critic_rate=rate, device="cpu", **options)


# --- sampling --------------------------------------------------------------------------------------------------------


def test_a_rollout_is_the_seeds() -> None:
    one, same_one, other = (sample(WORLD, PROBS, episodes=4, steps=9, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(one.obs, same_one.obs) and torch.equal(one.action, same_one.action)
    assert not torch.equal(one.obs, other.obs)


def test_frequencies_are_the_worlds() -> None:
    """200 000 steps: actions, transitions, ends and starts within 4 standard errors of their probabilities."""
    got = sample(replace(WORLD, limit=None), PROBS, episodes=2000, steps=100, seed=0)

    def near(hits: torch.Tensor, p: torch.Tensor) -> bool:
        return abs(hits.double().mean() - p) < 4 * (p * (1 - p) / len(hits)).sqrt()

    for s in range(5):
        here = got.obs == s
        assert all(near(got.action[here] == a, PROBS[s, a]) for a in range(3))
        for a in range(3):
            taken = here & (got.action == a)
            taken[:, -1] = False
            led = torch.where(got.terminated, -1, got.obs.roll(-1, dims=1))[taken]
            assert all(near(led == z, WORLD.transition[s, a, z]) for z in range(5))
            assert near(led == -1, 1 - WORLD.transition[s, a].sum())
    assert all(near(got.obs[:, 0] == s, WORLD.start[s]) for s in range(5))


def test_a_cut_has_ended_without_terminating() -> None:
    """Ends in mid-row of both kinds; V of the state beyond a cut, 0 beyond a termination."""
    got, value = sample(WORLD, PROBS, episodes=64, steps=20, seed=3), solve(WORLD, PROBS).value
    cut = got.ended & ~got.terminated
    assert cut[:, :-1].any() and got.terminated[:, :-1].any() and got.ended[:, -1].all() and got.mask.all()
    assert bool((got.terminated <= got.ended).all()) and not got.next_value[got.terminated].any()
    going = ~got.ended[:, :-1]
    assert same(got.next_value[:, :-1][going], value[got.obs[:, 1:]][going]) and same(got.value, value[got.obs])
    assert bool((got.next_value[cut][:, None] == value).any(-1).all())
    age = torch.zeros(64, dtype=torch.long)
    for t in range(19):
        age += 1
        assert bool((cut[:, t] <= (age == 6)).all()) and bool((got.ended[:, t] | (age < 6)).all())
        age = torch.where(got.ended[:, t], 0, age)


def test_one_episode_a_row() -> None:
    got = sample(WORLD, PROBS, episodes=50, steps=8, seed=0, after_end="mask")
    assert same(got.mask.sum(-1), (got.ended.int().argmax(-1) + 1).double()) and got.mask[:, 0].all()
    assert bool((got.ended & got.mask).sum(-1).eq(1).all())


def test_never_cut_where_there_is_no_limit() -> None:
    got = sample(grid(limit=None), torch.full((12, 4), 0.25, dtype=torch.float64), episodes=3, steps=50, seed=0)
    assert not got.ended[:, :-1].any() and not got.terminated.any() and same(got.next_value, torch.full((3, 50), 10.0))


def test_logp_value_and_reward_are_looked_up() -> None:
    critic = torch.arange(5, dtype=torch.float64)
    got = sample(WORLD, PROBS, episodes=4, steps=9, seed=0, value=critic)
    assert same(got.logp.exp(), PROBS[got.obs, got.action]) and same(got.value, got.obs.double())
    assert same(got.reward, WORLD.reward[got.obs, got.action])


def test_bad_requests_are_refused() -> None:
    with pytest.raises(ValueError, match="after_end must be one of"):
        sample(WORLD, PROBS, episodes=1, steps=1, seed=0, after_end="stop")
    with pytest.raises(ValueError, match="episodes and steps must be at least 1"):
        sample(WORLD, PROBS, episodes=0, steps=1, seed=0)


def test_returns_estimate_the_exact_value() -> None:
    """Bootstrapped by the exact V, the return from every start averages to J, cuts or not: 4 standard errors."""
    got = sample(WORLD, PROBS, episodes=20000, steps=12, seed=5)
    g = discounted_returns(got.reward, got.next_value, terminated=got.terminated, ended=got.ended, gamma=0.8)[:, 0]
    assert abs(g.mean() - solve(WORLD, PROBS).J) < 4 * g.std() / 20000**0.5


# --- learning --------------------------------------------------------------------------------------------------------


def test_ppo_approaches_the_exact_optimum() -> None:
    """Corridor, slip and discount; five seeds each within 2 % of the best J, having begun far below it."""
    mdp = corridor(5, slip=0.1, gamma=0.9)
    best, start = solve(mdp, best_policy(mdp)).J, solve(mdp, TabularActorCritic(mdp).probs).J
    assert start < 0.6 * best
    for seed in range(5):
        steps = [*train(learner_of(mdp), mdp, CFG, episodes=16, steps=32, iterations=25, seed=seed)]
        assert 0.98 * best < steps[-1].J <= best + 1e-12
        assert steps[0].update.optimizer_steps == 16 and same(solve(mdp, steps[-1].probs).J, steps[-1].J)


@pytest.mark.parametrize("after_end", ["restart", "mask"])
def test_first_ratio_is_exactly_one(after_end: str) -> None:
    """The sampler's log-probs and the update's come from the same table: the first minibatch has not moved."""
    mdp, one = corridor(5, slip=0.1, gamma=0.9), replace_cfg(epochs=1, minibatches=1)
    steps = [*train(learner_of(mdp), mdp, one, episodes=8, steps=16, iterations=5, seed=0, after_end=after_end)]
    assert max(step.update.first_ratio_error for step in steps) < 1e-14 and steps[-1].J != steps[0].J


def replace_cfg(**changes) -> PPOConfig:
    return CFG.model_copy(update=changes)


def test_one_update_follows_the_exact_gradient() -> None:
    """Exact advantages on every (state, action) as often as it is visited: the step's gradient is the true one."""
    mdp = corridor(3, gamma=1.0)
    learner = learner_of(mdp)
    probs = learner.module.probs
    found = solve(mdp, probs)
    obs, action = (x.flatten() for x in torch.meshgrid(torch.arange(3), torch.arange(2), indexing="ij"))
    share = (found.visits[:, None] * probs).flatten()  # visits to each pair: weights, put into the advantages
    weighted = found.advantage.flatten() * share * len(obs)
    zero = torch.zeros_like(weighted)
    from ppo_lab.exact.agent import TabularInputs

    batch = StepBatch(inputs=TabularInputs(obs=obs, action=action), old_logp=probs.log()[obs, action], old_value=zero,
                      advantage=weighted, return_=zero, mask=torch.ones(6, dtype=torch.bool))  # fmt: skip
    seen: list[torch.Tensor] = []
    keep = learner.step
    learner.step = lambda **rates: (seen.append(learner.module.logits.grad.clone()), keep(**rates))[1]
    ppo_update(learner, batch, assess, replace_cfg(epochs=1, minibatches=1, standardize="none"), seed=0)
    assert same(-seen[0], policy_gradient(mdp, torch.zeros(3, 2, dtype=torch.float64)))


def test_penalty_sees_the_exact_kl() -> None:
    mdp, cfg = corridor(5, gamma=0.9), replace_cfg(objective="kl_penalty", penalty_beta=3.0)
    learner = learner_of(mdp)
    rollout = sample(mdp, learner.module.probs, episodes=4, steps=8, seed=0)
    old, moved = torch.zeros(5, 2, dtype=torch.float64), torch.randn(5, 2, dtype=torch.float64)
    batch = step_batch(rollout, *advantages(rollout, gamma=0.9, lam=0.9), old_logits=old)
    learner.module.logits.data = moved
    assert same(assess(learner, batch.inputs).old_kl.detach(), categorical_kl(old, moved)[rollout.obs.flatten()])
    free = [s.J for s in train(learner_of(mdp), mdp, CFG, episodes=8, steps=16, iterations=4, seed=0)]
    held = [s.J for s in train(learner_of(mdp), mdp, cfg, episodes=8, steps=16, iterations=4, seed=0)]
    assert held[-1] < free[-1] and held[-1] > held[0]


def test_the_critic_learns_the_exact_values() -> None:
    """Actor at rest, λ = 1 and a time limit: V comes to the infinite-horizon value, since a cut is no end."""
    mdp = grid(2, 2, gamma=0.8, slip=1.0, limit=5)
    learner = PlainLearner(TabularActorCritic(mdp, value=torch.full((4,), 4.0, dtype=torch.float64)), actor_rate=0.0,
                           critic_rate=0.05, device="cpu")  # fmt: skip
    for _ in train(learner, mdp, replace_cfg(epochs=2, lam=1.0), episodes=16, steps=20, iterations=60, seed=0):
        pass
    assert same(learner.module.value.detach(), torch.full((4,), 5.0), atol=0.02)  # Adam's last steps: rate 0.05
