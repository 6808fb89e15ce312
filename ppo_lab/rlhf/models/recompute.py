"""Recomputing blocks in the backward pass: less memory for activations, more operations.

transformers has this too, but only in training mode, where dropout would be on; the PPO update runs in evaluation mode.
What is here does not look at the mode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from ppo_lab.learners.plain import evaluating
from ppo_lab.learners.sharding import checkpoint_sharded, is_sharded

from .build import blocks_of

CACHES = ("past_key_values", "cache")  # a cache would be written a second time
KINDS = ("block", "selective")
LINEAR = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)  # what a linear layer computes, also GPT-2's
WATCHERS: list[Callable[[Tensor], object]] = []  # each is shown what is kept: autograd's own hooks do not see it


def recompute_blocks(model: nn.Module, *, every: int = 1, kind: str = "block") -> None:
    """Keep little of every k-th block; the rest is computed again when the gradient is wanted.

    Gradients are the same to the bit. Raising ``every``: fewer blocks, more memory, less time. Without gradients (as in
    sampling and scoring) and behind a key-value cache nothing changes. Calling it again replaces what was set.

    Args:
        model: any decoder of transformers.
        every: k; blocks 0, k, 2k, ….
        kind: "block" keeps the block's input alone and runs all of it again (Chen et al. 2016, Training deep nets with
            sublinear memory cost). "selective" also keeps what its linear layers compute: norms, activations and
            attention are run again, which is little work (Korthikanti et al. 2022, Reducing activation recomputation,
            sec. 5, where attention alone is).

    Raises:
        ValueError: ``every`` below 1, or another kind.
    """
    if every < 1:
        raise ValueError(f"every must be at least 1, got {every}; 1 recomputes each block")
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}; block keeps least")
    for i, block in enumerate(blocks_of(model)):
        block.__dict__.pop("forward", None)
        if i % every == 0:
            block.forward = partial(_recomputed, block, kind == "selective")  # a deep copy gets one of its own


def take_over_checkpointing(model: nn.Module) -> None:
    """Do here what transformers was told to do, since the update would silently leave it out."""
    asked = [part for part in model.modules() if getattr(part, "gradient_checkpointing", False)]
    for part in asked:
        part.gradient_checkpointing = False  # type: ignore[assignment]
    if asked:
        recompute_blocks(model)


class _Keep(TorchDispatchMode):
    """Keeps what linear layers compute."""

    def __init__(self, kept: list[tuple[Tensor, int] | None]):
        super().__init__()
        self.kept = kept

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func in LINEAR:
            mine = out.detach()
            self.kept.append((mine, mine._version))
            for watch in WATCHERS:
                watch(mine)
        return out


class _Give(TorchDispatchMode):
    """Gives back what was kept, in its order, in place of computing it: once, so that it can be let go."""

    def __init__(self, kept: list[tuple[Tensor, int] | None]):
        super().__init__()
        self.kept, self.at = kept, 0

    def __enter__(self) -> Any:
        self.at = 0
        return super().__enter__()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func not in LINEAR:
            return func(*args, **(kwargs or {}))
        entry, self.kept[self.at] = self.kept[self.at], None
        self.at += 1
        if entry is None or entry[0]._version != entry[1]:
            why = "an earlier backward pass" if entry is None else "a change in place"
            raise RuntimeError(f"learner.recompute selective lost a linear layer's result to {why}; use block")
        return entry[0]


def _keep_and_give() -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
    kept: list[tuple[Tensor, int] | None] = []
    return _Keep(kept), _Give(kept)


@contextmanager
def watched(seen: Callable[[Tensor], object]) -> Iterator[None]:
    """Show every kept result to ``seen``, to count it."""
    WATCHERS.append(seen)
    try:
        yield
    finally:
        WATCHERS.remove(seen)


def _recomputed(block: nn.Module, selective: bool, *args: Any, **kwargs: Any) -> Any:
    training, forward = block.training, type(block).forward

    def again(*args: Any, **kwargs: Any) -> Any:  # the backward pass may come when the module is in training mode again
        with nullcontext() if training else evaluating(block):
            return forward(block, *args, **kwargs)

    if not torch.is_grad_enabled() or any(kwargs.get(name) is not None for name in CACHES):
        return forward(block, *args, **kwargs)
    if not is_sharded(block):
        how: dict[str, Any] = {"context_fn": _keep_and_give} if selective else {}
        return checkpoint(again, *args, use_reentrant=False, **how, **kwargs)
    hidden, *rest = args
    keep, give = _keep_and_give() if selective else (nullcontext(), nullcontext())

    def either(x: Tensor) -> Any:  # this kind of checkpoint runs first without gradients, then with them
        with give if torch.is_grad_enabled() else keep:
            return again(x, *rest, **kwargs)

    return checkpoint_sharded(either, hidden)
