"""Worlds whose answers are known: the real recipe finds them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from control.small_control import run

from ppo_lab import faults
from ppo_lab.control.probes import PROBES, TabularEnvs
from ppo_lab.exact.mdp import random_mdp, solve

SETTINGS = (
    "env.count=256", "rollout=32", "ppo.gamma=0.9", "ppo.epochs=4", "ppo.minibatches=4", "optimizer.max_norm=null",
    "optimizer.critic_rate=1e-2", "optimizer.actor_rate=1e-2", "checkpoint.every=1000", "evaluation.every=1000",
    "ppo.standardize=none", "net.hidden=[16]",
)  # fmt: skip
ANSWERS = {"value": [1.0], "observation": [-1.0, 1.0], "discount": [0.9, 1.0], "time_limit": [10.0], "policy": [0.5],
           "choice": [0.5, 0.5]}  # fmt: skip  # of a policy that takes all actions alike


def uniform(name: str) -> torch.Tensor:
    mdp = PROBES[name]
    return torch.full((mdp.states, mdp.actions), 1 / mdp.actions, dtype=torch.float64)


def learn(tmp_path, name: str, iterations: int, *changes: str):
    made = run(tmp_path / name, *SETTINGS, f"env.id=probe/{name}", f"total_steps={8192 * iterations}", *changes)
    list(made)
    return made


def tables(made, name: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Values and probabilities of every state."""
    states = torch.eye(PROBES[name].states)
    with torch.no_grad():
        head, value = made.learner.module(states)
    return value.double(), head.double().softmax(-1)


@pytest.mark.parametrize("name", ANSWERS)
def test_the_critic_finds_the_value_of_the_resting_policy(tmp_path, name):
    """V to 1e-2; and the advantage of every action, from one step and that critic, to 1e-2 of the exact one."""
    assert solve(PROBES[name], uniform(name)).value.tolist() == pytest.approx(ANSWERS[name], abs=1e-9)
    iterations = 80 if name == "time_limit" else 40
    made = learn(tmp_path, name, iterations, f"critic_warmup={iterations}", "ppo.lam=0.0")
    value, probs = tables(made, name)
    exact = solve(PROBES[name], probs)  # the untrained network is nearly uniform, not quite
    torch.testing.assert_close(value, exact.value, rtol=0, atol=1e-2)
    rollout, batch = made.last.rollout, made.last_batch
    state, action = rollout.obs.argmax(-1).flatten(), rollout.action.flatten()
    mine = torch.zeros_like(exact.advantage)
    for s in range(len(mine)):
        for a in range(mine.shape[1]):
            mine[s, a] = batch.advantage[(state == s) & (action == a)].double().mean()
    torch.testing.assert_close(mine, exact.advantage, rtol=0, atol=1e-2)


@pytest.mark.parametrize(("name", "best"), [("policy", [1]), ("choice", [0, 1])])
def test_the_policy_finds_the_best_action(tmp_path, name, best):
    made = learn(tmp_path, name, 20, "ppo.standardize=minibatch")
    _, probs = tables(made, name)
    assert probs.argmax(-1).tolist() == best and probs.amax(-1).min() > 0.9


def test_a_limit_taken_for_an_end_is_found_by_the_probe(tmp_path):
    with faults.planted("limit_is_end"):
        value, _ = tables(learn(tmp_path, "time_limit", 60, "critic_warmup=60"), "time_limit")
    assert value.item() < 9  # 10 with the future that a cut does not take away


def test_tabular_environments_follow_their_tables():
    mdp = random_mdp(3, states=3, actions=2, ending=0.5)
    envs, n = TabularEnvs(mdp, 4000), 4000
    obs = envs.reset(0)
    first = obs.mean(0)
    assert np.abs(first - mdp.start.numpy()).max() < 4 * 0.5 / n**0.5
    state, action = obs.argmax(-1), np.arange(n) % 2
    step = envs.step(action)
    np.testing.assert_allclose(step.reward, mdp.reward.numpy()[state, action], rtol=0, atol=1e-12)
    for s in range(3):
        for a in range(2):
            here = (state == s) & (action == a)
            wide = 4 * 0.5 / here.sum() ** 0.5
            ended = 1 - mdp.transition[s, a].sum().item()
            assert abs(step.terminated[here].mean() - ended) < wide
            led = np.where(step.terminated[here, None], 0.0, step.final[here]).mean(0)
            assert np.abs(led - mdp.transition[s, a].numpy()).max() < wide
