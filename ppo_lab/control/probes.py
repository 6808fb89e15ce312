"""Environments whose answers are known: when a run fails on one, its name says which part is broken.

==============  ==========================================================  =========================================
probe           the world (γ 0.9)                                           what must come out
==============  ==========================================================  =========================================
value           one state, one action, pays 1, ends                         V = 1: the critic fits a constant
observation     one of two states is shown, pays -1 or 1, ends              V = (-1, 1): the critic sees its input
discount        two states in a row, pays 1 at the end                      V = (γ, 1): value flows back through time
time_limit      one state, pays 1 for ever, cut after 10 steps              V = 1/(1-γ) = 10: a cut is no end
policy          one state, two actions that pay 0 and 1, ends               π = (0, 1): the policy climbs
choice          two states, the action that matches the state pays 1        π(s) = s: the policy sees its input
bandit          one state, arms of a normal pay each, ends                  the best arm
==============  ==========================================================  =========================================

``probe/chain`` is no test of a part but a place where plain PPO fails: states in a row; one wrong step starts over and
pays a little, and only the far end pays 1 (`exact.mdp.chain`). It is cut after twice as many steps.

The answers are those of `exact.mdp.solve`, which the tests compare with; a state is observed as a row of 0 and one 1.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from ppo_lab.config import ConfigError
from ppo_lab.exact.mdp import MDP, bandit, chain

from .envs import Transition

GAMMA = 0.9
CHAIN, SLACK = 12, 0.001  # states, and what starting over pays, of probe/chain unless env.options says otherwise
ARMS = (0.1, 0.5, 0.2, 0.8)  # what the bandit's arms pay unless env.options says otherwise


class TabularEnvs:
    """An `MDP` as environments: all N step at once, and an episode that ends starts anew at once.

    Args:
        mdp: the world; its ``limit`` cuts episodes.
        count: N.
        noise: deviation of what is added to each reward.
    """

    def __init__(self, mdp: MDP, count: int, *, noise: float = 0.0):
        self.mdp, self.count, self.noise = mdp, count, noise
        self.observation_space = spaces.Box(0.0, 1.0, (mdp.states,), np.float32)
        self.action_space = spaces.Discrete(mdp.actions)
        self.move, self.reward = mdp.transition.cumsum(-1).numpy(), mdp.reward.numpy()
        self.start, self.rows = mdp.start.cumsum(-1).numpy(), np.eye(mdp.states + 1, mdp.states, dtype=np.float32)
        self.draw = np.random.default_rng(0)

    def reset(self, seed: int) -> np.ndarray:
        """Start all anew."""
        self.draw = np.random.default_rng(seed)
        self.state, self.age = self._begin(self.count), np.zeros(self.count, dtype=int)
        return self.rows[self.state]

    def step(self, action: np.ndarray) -> Transition:
        """One step of all; state S stands for the end."""
        mass = self.move[self.state, action]
        there = (self.draw.random(self.count)[:, None] >= mass - 1e-12).sum(-1)
        there = np.where(mass[:, -1] > 1 - 1e-9, np.minimum(there, self.mdp.states - 1), there)
        reward = self.reward[self.state, action] + self.noise * self.draw.standard_normal(self.count)
        self.age += 1
        terminated = there == self.mdp.states
        truncated = ~terminated & (self.age == (self.mdp.limit or -1))
        ended = terminated | truncated
        self.state, self.age = np.where(ended, self._begin(self.count), there), np.where(ended, 0, self.age)
        obs, final = self.rows[self.state], self.rows[there]
        return Transition(obs, final, reward, terminated, truncated, np.ones(self.count, dtype=bool))

    def close(self) -> None:
        """Nothing is open."""

    def _begin(self, count: int) -> np.ndarray:
        first = (self.draw.random(count)[:, None] >= self.start).sum(-1)
        return np.minimum(first, self.mdp.states - 1)


def world(transition: list, reward: list, start: list, *, limit: int | None = None) -> MDP:
    """Tables as an `MDP` with γ 0.9.

    >>> world([[[0.0]]], [[1.0]], [1.0]).states
    1
    """
    tables = [torch.tensor(table, dtype=torch.float64) for table in (transition, reward, start)]
    return MDP(transition=tables[0], reward=tables[1], start=tables[2], gamma=GAMMA, limit=limit)


PROBES: dict[str, MDP] = {
    "value": world([[[0.0]]], [[1.0]], [1.0]),
    "observation": world([[[0.0, 0.0]], [[0.0, 0.0]]], [[-1.0], [1.0]], [0.5, 0.5]),
    "discount": world([[[0.0, 1.0]], [[0.0, 0.0]]], [[0.0], [1.0]], [1.0, 0.0]),
    "time_limit": world([[[1.0]]], [[1.0]], [1.0], limit=10),
    "policy": world([[[0.0], [0.0]]], [[0.0, 1.0]], [1.0]),
    "choice": world([[[0.0, 0.0]] * 2] * 2, [[1.0, 0.0], [0.0, 1.0]], [0.5, 0.5]),
    "bandit": bandit(torch.tensor(ARMS)),
}
OPTIONS = {"bandit": {"arms", "noise"}, "chain": {"states", "slack"}}


def make_probe(name: str, count: int, options: dict[str, Any], limit: int | None) -> TabularEnvs:
    """A probe by name. The bandit takes ``arms`` (what each pays) and ``noise`` (its deviation, 1 if left out); the
    chain ``states`` and ``slack`` (what starting over pays).

    Raises:
        ConfigError: no such probe, or options that it does not take.
    """
    if name not in PROBES.keys() | OPTIONS.keys():
        near = get_close_matches(name, PROBES, n=1, cutoff=0.4)
        hint = f"did you mean probe/{near[0]}?" if near else f"known: {', '.join(PROBES)}, chain"
        raise ConfigError(f"env.id must name a probe, got probe/{name}; {hint}")
    known = OPTIONS.get(name, set())
    if limit is not None or options.keys() - known:
        raise ConfigError(
            f"env.options of probe/{name} must be among {sorted(known) or 'none'} and env.time_limit unset, got "
            f"{options} and {limit}; remove them"
        )
    if name == "bandit":
        return _bandit(count, **options)
    return TabularEnvs(_chain(**options) if name == "chain" else PROBES[name], count)


def _bandit(count: int, *, arms: Any = ARMS, noise: Any = 1.0) -> TabularEnvs:
    if not isinstance(arms, list | tuple) or len(arms) < 2 or not all(isinstance(x, int | float) for x in arms):
        raise ConfigError(f"env.options.arms must be at least two numbers, got {arms}; try {list(ARMS)}")
    if not isinstance(noise, int | float) or not noise >= 0:
        raise ConfigError(f"env.options.noise must be a number of at least 0, got {noise}; try 1.0")
    return TabularEnvs(bandit(torch.tensor(arms)), count, noise=noise)


def _chain(*, states: Any = CHAIN, slack: Any = SLACK) -> MDP:
    if not isinstance(states, int) or states < 1:
        raise ConfigError(f"env.options.states must be a whole number of at least 1, got {states}; try {CHAIN}")
    if not isinstance(slack, int | float):
        raise ConfigError(f"env.options.slack must be a number, got {slack}; try {SLACK}")
    return chain(states, slack=slack, gamma=GAMMA, limit=2 * states)
