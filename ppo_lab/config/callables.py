"""Functions named in a config: ``module:function`` or ``file.py:function``."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .base import ConfigError


def load_callable(path: str | None, where: str) -> Callable[..., Any]:
    """``module:function`` or ``file.py:function`` as a callable.

    Raises:
        ConfigError: it cannot be imported, has no such name, or is not callable.
    """
    module_name, colon, function = (path or "").rpartition(":")
    if not colon or not module_name or not function:
        raise ConfigError(f"{where} must read module:function or file.py:function, got {path!r}")
    try:
        if module_name.endswith(".py"):
            if not Path(module_name).is_file():
                raise ConfigError(f"{where} names the file {module_name}, which does not exist; give its full path")
            spec = importlib.util.spec_from_file_location(Path(module_name).stem, module_name)
            module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
            spec.loader.exec_module(module)  # type: ignore[union-attr]
        else:
            module = importlib.import_module(module_name)
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(f"{where}: importing {module_name} raised {type(error).__name__}: {error}") from error
    found = getattr(module, function, None)
    if not callable(found):
        raise ConfigError(f"{where}: {module_name} has no callable {function}; it has {', '.join(_public(module))}")
    return found


def _public(module: Any) -> list[str]:
    return [n for n in dir(module) if not n.startswith("_") and callable(getattr(module, n))][:8] or ["none"]
