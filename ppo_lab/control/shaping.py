r"""What a learner is paid besides the environment's reward; logged returns and evaluations stay the environment's.

A `Bonus` sees a whole rollout as the environments gave it and pays every step. Shaping pays by a function of the
observation that a reader wrote; `ppo_lab.control.exploration` pays for what is new.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from ppo_lab.config import ConfigError
from ppo_lab.config.bonus import ShapingConfig
from ppo_lab.config.callables import load_callable
from ppo_lab.core.shaping import next_shaping_weight, potential_shaping, zero_share


class Visit(NamedTuple):
    """A rollout before anything is scaled, time first."""

    obs: np.ndarray  # (T, N, *O) raw
    final: np.ndarray  # (T, N, *O) what each step led to, before any reset
    terminated: np.ndarray  # (T, N) bool
    valid: np.ndarray  # (T, N) bool, False where a step only reset
    returns: np.ndarray  # (E,) base returns of the episodes that ended


class Bonus(Protocol):
    """Pays, remembers, and can be saved."""

    def pay(self, visit: Visit) -> np.ndarray:
        """What each step earns besides, (T, N)."""
        ...

    def state(self) -> dict[str, Any]:
        """Plain data for the checkpoint."""
        ...

    def load(self, state: dict[str, Any]) -> None:
        """What `state` gave."""
        ...


class Shaping:
    r"""Pays by a potential Φ(observations) -> (n,): the difference that keeps the optimum, or the level itself.

    Args:
        cfg: which, and its weight. ``adapt: zero_share`` moves the weight by the base returns of each rollout's
            episodes, *after* it was paid; it travels in the checkpoint.
        gamma: discount of the run; the potential telescopes under no other.

    Raises:
        ConfigError: there is no such function.
    """

    def __init__(self, cfg: ShapingConfig, gamma: float):
        self.cfg, self.gamma, self.weight = cfg, gamma, cfg.weight
        self.potential: Callable[..., Any] = load_callable(cfg.potential, "shaping.potential")

    def pay(self, visit: Visit) -> np.ndarray:
        """w·F, or w·Φ of where the step led (0 where it terminated)."""
        ahead = self._phi(visit.final)
        if self.cfg.kind == "level":
            paid = np.where(visit.terminated, 0.0, ahead)
        else:
            numbers = torch.from_numpy(self._phi(visit.obs)), torch.from_numpy(ahead)
            terminated = torch.from_numpy(visit.terminated)
            paid = potential_shaping(*numbers, terminated=terminated, gamma=self.gamma).numpy()
        weight = self.weight
        if self.cfg.adapt == "zero_share" and len(visit.returns):
            self.weight = next_shaping_weight(weight, zero_share(torch.from_numpy(visit.returns)))
        return weight * paid

    def state(self) -> dict[str, Any]:
        """The weight."""
        return {"weight": self.weight}

    def load(self, state: dict[str, Any]) -> None:
        """The weight."""
        self.weight = state["weight"]

    def _phi(self, obs: np.ndarray) -> np.ndarray:
        rows = obs.reshape(-1, *obs.shape[2:])
        found = np.asarray(self.potential(rows), dtype=np.float64)
        if found.shape != (len(rows),) or not np.isfinite(found).all():
            raise ConfigError(
                f"shaping.potential {self.cfg.potential} must give one finite number for each of {len(rows)} "
                f"observations, got shape {found.shape}; return an array of shape (n,)"
            )
        return found.reshape(obs.shape[:2])


def along_the_chain(obs: np.ndarray) -> np.ndarray:
    """A potential for worlds whose states stand in a row (``probe/chain``): how far along, in [0, 1).

    >>> along_the_chain(np.eye(4)).tolist()
    [0.0, 0.25, 0.5, 0.75]
    """
    return obs.argmax(-1) / obs.shape[-1]
