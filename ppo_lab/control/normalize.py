"""Running statistics of observations and rewards: they move between rollouts, travel in the checkpoint, and stand
still in an evaluation."""

from __future__ import annotations

from typing import Any

import numpy as np

from ppo_lab.config.control import NormalizeConfig


class Moments:
    """Mean and variance of all that was seen, float64, in batches that come one after the other.

    Source: Chan et al. 1979, Updating formulae and a pairwise algorithm for computing sample variances.

    >>> m = Moments(()); m.add(np.array([1.0, 3.0])); m.add(np.array([5.0])); float(m.mean), round(float(m.var), 4)
    (3.0, 2.6667)
    """

    def __init__(self, shape: tuple[int, ...]):
        self.count, self.mean, self.squares = 0, np.zeros(shape), np.zeros(shape)

    @property
    def var(self) -> np.ndarray:
        """Population variance; 1 before anything was seen."""
        return self.squares / self.count if self.count else np.ones_like(self.mean)

    def add(self, x: np.ndarray) -> None:
        """Rows ``(n, *shape)`` more."""
        n = len(x)
        if not n:
            return
        mean, total = x.mean(0, dtype=np.float64), self.count + n
        away = mean - self.mean
        self.squares = self.squares + np.square(x - mean).sum(0) + away**2 * self.count * n / total
        self.mean, self.count = self.mean + away * n / total, total

    def state(self) -> dict[str, Any]:
        """Plain data, without loss."""
        return {"count": self.count, "mean": self.mean.tolist(), "squares": self.squares.tolist()}

    def load(self, state: dict[str, Any]) -> None:
        """What `state` gave."""
        self.count, self.mean, self.squares = state["count"], np.array(state["mean"]), np.array(state["squares"])


class Normalizers:
    """What the policy sees of an observation, and what the learner sees of a reward.

    Args:
        cfg: which of them act, and their bounds.
        shape: of one observation.
        gamma: discount of the return whose deviation divides the reward.
    """

    def __init__(self, cfg: NormalizeConfig, shape: tuple[int, ...], gamma: float):
        self.cfg, self.gamma = cfg, gamma
        self.obs, self.returns = Moments(shape), Moments(())
        self.plain = not cfg.observation and cfg.observation_clip is None
        self._prepare()

    def see(self, obs: np.ndarray) -> np.ndarray:
        """Observations as the policy gets them, float32; changes no statistic."""
        if self.plain:
            return obs.astype(np.float32, copy=False)
        x = (obs - self._mean) * self._scale if self.cfg.observation else obs
        bound = self.cfg.observation_clip
        return (x if bound is None else np.clip(x, -bound, bound)).astype(np.float32, copy=False)

    def scale(self, reward: np.ndarray) -> np.ndarray:
        """Rewards as the learner gets them; changes no statistic."""
        x = reward / (self.returns.var + 1e-8) ** 0.5 if self.cfg.reward and self.returns.count else reward
        bound = self.cfg.reward_clip
        return x if bound is None else np.clip(x, -bound, bound)

    def learn_observations(self, obs: np.ndarray) -> None:
        """Raw observations (n, *shape) of a rollout that is over: the next one is seen with them."""
        if self.cfg.observation:
            self.obs.add(obs)
            self._prepare()

    def learn_rewards(self, running: np.ndarray) -> None:
        """Discounted returns so far (n,), one a step."""
        if self.cfg.reward:
            self.returns.add(running)

    @property
    def reward_scale(self) -> float | None:
        """What rewards are divided by; None where they are left alone."""
        return float((self.returns.var + 1e-8) ** 0.5) if self.cfg.reward else None

    def state(self) -> dict[str, Any]:
        """Plain data, without loss."""
        return {"observation": self.obs.state(), "returns": self.returns.state()}

    def load(self, state: dict[str, Any]) -> None:
        """What `state` gave."""
        self.obs.load(state["observation"])
        self.returns.load(state["returns"])
        self._prepare()

    def _prepare(self) -> None:
        self._mean, self._scale = self.obs.mean.astype(np.float32), ((self.obs.var + 1e-8) ** -0.5).astype(np.float32)
