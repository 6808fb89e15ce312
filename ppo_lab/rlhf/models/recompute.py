"""Recomputing blocks in the backward pass: less memory for activations, one more forward of time (Chen et al. 2016).

transformers has this too, but only in training mode, where dropout would be on; the PPO update runs in evaluation mode.
What is here does not look at the mode.
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from ppo_lab.learners.plain import evaluating
from ppo_lab.learners.sharding import checkpoint_sharded, is_sharded

from .build import blocks_of

CACHES = ("past_key_values", "cache")  # a cache would be written a second time


def recompute_blocks(model: nn.Module, *, every: int = 1) -> None:
    """Keep only the input of every k-th block; what is inside is computed again when the gradient is wanted.

    Gradients are the same to the bit. Raising ``every``: fewer blocks, more memory, less time. Without gradients (as in
    sampling and scoring) and behind a key-value cache nothing changes. Calling it again replaces what was set.

    Source: Chen et al. 2016, Training deep nets with sublinear memory cost.
    """
    if every < 1:
        raise ValueError(f"every must be at least 1, got {every}; 1 recomputes each block")
    for i, block in enumerate(blocks_of(model)):
        block.__dict__.pop("forward", None)
        if i % every == 0:
            block.forward = partial(_recomputed, block)  # a deep copy of the model gets one of its own


def take_over_checkpointing(model: nn.Module) -> None:
    """Do here what transformers was told to do, since the update would silently leave it out."""
    asked = [part for part in model.modules() if getattr(part, "gradient_checkpointing", False)]
    for part in asked:
        part.gradient_checkpointing = False  # type: ignore[assignment]
    if asked:
        recompute_blocks(model)


def _recomputed(block: nn.Module, *args: Any, **kwargs: Any) -> Any:
    training, forward = block.training, type(block).forward

    def again(*args: Any, **kwargs: Any) -> Any:  # the backward pass may come when the module is in training mode again
        with nullcontext() if training else evaluating(block):
            return forward(block, *args, **kwargs)

    if not torch.is_grad_enabled() or any(kwargs.get(name) is not None for name in CACHES):
        return forward(block, *args, **kwargs)
    if not is_sharded(block):
        return checkpoint(again, *args, use_reentrant=False, **kwargs)
    hidden, *rest = args
    return checkpoint_sharded(lambda x: again(x, *rest, **kwargs), hidden)
