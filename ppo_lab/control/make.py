"""From a config to environments: the native vector form where there is one, ours, or Gymnasium's."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

import gymnasium as gym
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from ppo_lab.config import ConfigError
from ppo_lab.config.control import EnvConfig

from .envs import Envs, LoopEnvs, VectorEnvs
from .probes import PROBES, make_probe


def make_envs(cfg: EnvConfig, count: int | None = None) -> Envs:
    """The environments that a config names, ``count`` of them in place of ``cfg.count``.

    Raises:
        ConfigError: no such environment, options it does not take, or spaces that our policies cannot serve.
    """
    count = count or cfg.count
    envs: Envs
    if cfg.id.startswith("probe/"):
        envs = make_probe(cfg.id.removeprefix("probe/"), count, cfg.options, cfg.time_limit)
    else:
        envs = _gymnasium(cfg, count)
    _check_spaces(cfg.id, envs)
    return envs


def _gymnasium(cfg: EnvConfig, count: int) -> Envs:
    spec = _spec(cfg.id)
    limit = {} if cfg.time_limit is None else {"max_episode_steps": cfg.time_limit}
    vector = cfg.vector
    if vector == "auto":
        vector = "native" if spec.vector_entry_point is not None else "loop"
    if vector == "native" and spec.vector_entry_point is None:
        raise ConfigError(f"env.vector native needs an environment with a vector form, got {cfg.id}; use auto")
    try:
        if vector == "native":
            return VectorEnvs(gym.make_vec(cfg.id, count, vectorization_mode="vector_entry_point", **limit,
                                           **cfg.options))  # fmt: skip
        makers = [lambda: gym.make(cfg.id, disable_env_checker=True, **limit, **cfg.options)] * count
        if vector == "loop":
            return LoopEnvs([make() for make in makers])
        mode = {"same_step": AutoresetMode.SAME_STEP, "next_step": AutoresetMode.NEXT_STEP,
                "disabled": AutoresetMode.DISABLED}[cfg.autoreset]  # fmt: skip
        return VectorEnvs(SyncVectorEnv(makers, autoreset_mode=mode))
    except TypeError as error:  # an argument the environment does not know
        raise ConfigError(f"env.options must be arguments of {cfg.id}, got {cfg.options} ({error}); fix them") from None
    except gym.error.Error as error:
        raise ConfigError(f"env.id {cfg.id} could not be made: {error}") from error


def _spec(name: str) -> Any:
    try:
        return gym.spec(name)
    except gym.error.Error:
        known = [*gym.registry, *(f"probe/{probe}" for probe in PROBES)]
        near = get_close_matches(name, known, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]}?" if near else "CartPole-v1 is one; import the package that registers yours"
        raise ConfigError(f"env.id must be a Gymnasium environment, got {name!r}; {hint}") from None


def _check_spaces(name: str, envs: Envs) -> None:
    obs, act = envs.observation_space, envs.action_space
    if not isinstance(obs, spaces.Box):
        raise ConfigError(f"env.id must observe numbers (Box), got {name} with {obs}; wrap it in FlattenObservation")
    if not isinstance(act, spaces.Discrete) and not (isinstance(act, spaces.Box) and len(act.shape) == 1):
        raise ConfigError(f"env.id must take one choice or a row of numbers, got {name} with {act}; wrap it")
