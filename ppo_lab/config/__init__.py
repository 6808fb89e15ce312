"""Configuration as data: `load_config` reads a YAML file, found by path or by name, with overrides."""

from __future__ import annotations

from pathlib import Path

from ppo_lab.paths import find_config

from .base import Config, ConfigError, build, dump, parse_yaml, read
from .language import RLHFConfig
from .ppo import OptimizerConfig, PPOConfig

__all__ = ["Config", "ConfigError", "OptimizerConfig", "PPOConfig", "RLHFConfig", "build", "dump", "load_config",
           "parse_yaml"]  # fmt: skip


def load_config(path_or_name: str | Path, overrides: list[str] | tuple[str, ...] = ()) -> RLHFConfig:
    """An RLHF config from a YAML file or a shipped name such as ``rlhf/demo``.

    Args:
        path_or_name: a file, or the name of one below ``configs/`` with or without ``.yaml``.
        overrides: ``key=value`` with dotted keys, for example ``ppo.clip=0.1``.

    Raises:
        ConfigError: a missing file, bad YAML, unknown or ill-typed keys, sizes that do not fit.
    """
    try:
        path = find_config(path_or_name)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    return read(RLHFConfig, path, list(overrides))
