"""Trunks as compiled graphs: what stands between two matrix products, such as norms and gates, becomes one loop.

The products are the same, and so is float32; sums are taken in another order, so numbers agree to rounding and a
resumed run equals the whole one to rounding, not to the bit. Sampling stays as it is: its cache grows every token.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import nn

from ppo_lab.config import ConfigError


def check_compiler(*, wanted: bool = True) -> None:
    """Compile one line, where that is wanted.

    Raises:
        ConfigError: nothing can be compiled here, as where there is no C++ compiler.
    """
    if not wanted:
        return
    try:
        torch.compile(_probe)(torch.ones(2))
    except Exception as error:  # whatever a toolchain may say
        said = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ConfigError(
            f"compile needs a C++ compiler that torch.compile can call, and it said: {said}; install one (g++ or "
            "clang) or set compile: false"
        ) from error


def compile_trunks(trunks: Iterable[nn.Module]) -> None:
    """Let `torch.compile` make the graph of each trunk at its first forward, and a general one at the next length."""
    for trunk in trunks:
        trunk.compile()


def _probe(x: torch.Tensor) -> torch.Tensor:
    return x * 2 + 1


def uncompiled(trunk: nn.Module) -> AbstractContextManager[object]:
    """Inside, a compiled trunk runs as it was written; nothing where it was never compiled."""
    compiled = getattr(trunk, "_compiled_call_impl", None) is not None
    return torch.compiler.set_stance("force_eager") if compiled else nullcontext()
