"""Environments side by side, whichever way they start anew: one `Transition` a step says what a learner must know.

An episode ends in one of two ways. *Terminated*: there is no future. *Truncated*: a time limit cut it, and the future
still counts, so the observation that the last step led to is needed, which the next episode's first one replaces:

==============  ======================================================================================
`next-step`     the step after an end ignores the action, resets and pays 0: that row is not valid
`same-step`     the step that ends an episode already shows the next one's start; the final observation
                lies in the info
`disabled`      nothing resets by itself: we reset the rows that ended
==============  ======================================================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

from ppo_lab.config import ConfigError


@dataclass(frozen=True, slots=True)
class Transition:
    """What one step of N environments did, as NumPy arrays."""

    obs: np.ndarray  # (N, *O) to act on next
    final: np.ndarray  # (N, *O) what this step led to, before any reset
    reward: np.ndarray  # (N,)
    terminated: np.ndarray  # (N,) bool
    truncated: np.ndarray  # (N,) bool
    valid: np.ndarray  # (N,) bool, False where the step only reset


class Envs(Protocol):
    """N environments of one kind."""

    count: int
    observation_space: spaces.Space
    action_space: spaces.Space

    def reset(self, seed: int) -> np.ndarray:
        """Start all anew from this seed; first observations (N, *O)."""
        ...

    def step(self, action: np.ndarray) -> Transition:
        """One step of all."""
        ...

    def close(self) -> None:
        """Let go of windows and processes."""
        ...


class VectorEnvs:
    """A Gymnasium vector environment of any autoreset mode; the mode is read from it.

    Raises:
        ConfigError: it does not say its mode.
    """

    def __init__(self, envs: VectorEnv):
        mode = envs.metadata.get("autoreset_mode")
        if not isinstance(mode, AutoresetMode):
            raise ConfigError(f"a vector environment must say its metadata['autoreset_mode'], got {mode!r}; set it")
        self.envs, self.mode, self.count = envs, mode, envs.num_envs
        self.observation_space, self.action_space = envs.single_observation_space, envs.single_action_space
        self.over = np.zeros(self.count, dtype=bool)  # ended at the step before

    def reset(self, seed: int) -> np.ndarray:
        """Start all anew."""
        self.over = np.zeros(self.count, dtype=bool)
        return self.envs.reset(seed=seed)[0]

    def step(self, action: np.ndarray) -> Transition:
        """One step of all."""
        obs, reward, terminated, truncated, info = self.envs.step(action)
        ended, valid, final = terminated | truncated, np.ones(self.count, dtype=bool), obs
        if self.mode is AutoresetMode.NEXT_STEP:
            valid, self.over = ~self.over, ended
        elif ended.any():
            final = obs.copy()
            if self.mode is AutoresetMode.SAME_STEP:
                final[ended] = np.stack([*info["final_obs"][ended]])
            else:
                obs, _ = self.envs.reset(options={"reset_mask": ended})
        return Transition(obs, final, reward, terminated, truncated, valid)

    def close(self) -> None:
        """Close it."""
        self.envs.close()


class LoopEnvs:
    """Single environments, stepped one after the other in this process: less work than `SyncVectorEnv`."""

    def __init__(self, envs: list[gym.Env]):
        self.envs, self.count = envs, len(envs)
        self.observation_space, self.action_space = envs[0].observation_space, envs[0].action_space
        self.discrete = isinstance(self.action_space, spaces.Discrete)

    def reset(self, seed: int) -> np.ndarray:
        """Environment i starts from ``seed + i``."""
        return np.stack([env.reset(seed=seed + i)[0] for i, env in enumerate(self.envs)])

    def step(self, action: np.ndarray) -> Transition:
        """One step of all; an environment that ends starts anew at once."""
        actions = action.tolist() if self.discrete else action
        seen, rewards, dead, cut = [], [], [], []
        for env, act in zip(self.envs, actions, strict=True):
            obs, reward, terminated, truncated, _ = env.step(act)
            seen.append(obs)
            rewards.append(reward)
            dead.append(terminated)
            cut.append(truncated)
        terminated, truncated, final = np.array(dead), np.array(cut), np.stack(seen)
        obs = final
        if (ended := terminated | truncated).any():
            obs = final.copy()
            for i in ended.nonzero()[0]:
                obs[i] = self.envs[i].reset()[0]
        reward = np.array(rewards, dtype=np.float64)
        return Transition(obs, final, reward, terminated, truncated, np.ones(self.count, dtype=bool))

    def close(self) -> None:
        """Close them all."""
        for env in self.envs:
            env.close()
