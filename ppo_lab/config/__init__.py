"""Configuration as data: `load_config` reads a YAML file, found by path or by name, with overrides."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar, overload

from ppo_lab.paths import find_config

from .base import Config, ConfigError, build, diff_view, difference, dump, parse_yaml, read
from .control import ControlConfig
from .language import RLHFConfig
from .ppo import OptimizerConfig, PPOConfig

__all__ = ["Config", "ConfigError", "ControlConfig", "OptimizerConfig", "PPOConfig", "RLHFConfig", "build",
           "diff_view", "difference", "dump", "load_config", "parse_yaml"]  # fmt: skip
Overrides = list[str] | tuple[str, ...]
RunConfig = TypeVar("RunConfig", RLHFConfig, ControlConfig)


@overload
def load_config(path_or_name: str | Path, overrides: Overrides = ()) -> RLHFConfig | ControlConfig: ...


@overload
def load_config(path_or_name: str | Path, overrides: Overrides = (), *, world: type[RunConfig]) -> RunConfig: ...


def load_config(path_or_name: str | Path, overrides: Overrides = (), *, world: type[Config] | None = None) -> Config:
    """The config of a run from a YAML file or a shipped name such as ``rlhf/demo`` or ``control/cartpole``.

    A file that names an environment (``env``) is a `ControlConfig`, any other an `RLHFConfig`.

    Args:
        path_or_name: a file, or the name of one below ``configs/`` with or without ``.yaml``.
        overrides: ``key=value`` with dotted keys, for example ``ppo.clip=0.1``.
        world: the one of the two that it has to be.

    Raises:
        ConfigError: a missing file, bad YAML, unknown or ill-typed keys, sizes that do not fit, the other world.
    """
    try:
        path = find_config(path_or_name)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    data = read(path, list(overrides))
    found = ControlConfig if "env" in data else RLHFConfig
    if world is not None and found is not world:
        other, has = ("a language", "no env") if found is RLHFConfig else ("a control", "env")
        raise ConfigError(f"{path.name} must be a {world.__name__}, got {other} run ({has} in it); choose another file")
    return build(found, data, where=path.name)
