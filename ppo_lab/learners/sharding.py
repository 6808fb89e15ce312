"""What code that knows nothing of DeepSpeed must do otherwise where ZeRO-3 owns the weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ppo_lab.config.scale import LearnerConfig

T = TypeVar("T")


def shards_weights(cfg: LearnerConfig) -> bool:
    """Whether no process will hold a whole model, so that none should read one."""
    return (cfg.kind, cfg.stage) == ("zero", 3)


def is_sharded(module: nn.Module) -> bool:
    """Whether ZeRO-3 owns a parameter of the module: what is not in use then has no elements."""
    return any(hasattr(p, "ds_id") for p in module.parameters())


def checkpoint_sharded(work: Callable[..., T], hidden: Tensor, *rest: Tensor) -> T:
    """Recompute ``work(hidden, ...)`` in the backward pass, with a backward pass of its own (torch's reentrant kind).

    The other kind recomputes in the middle of a layer's backward: ZeRO-3 lets the layer's weights go at the end of the
    second forward, and their gradient then finds a weight without elements. This kind sees no parameter among its
    inputs, so ``hidden`` must ask for a gradient, or the parameters inside would get none.
    """
    if not hidden.requires_grad:  # everything below is frozen
        hidden = hidden.detach().requires_grad_()
    return checkpoint(work, hidden, *rest, use_reentrant=True)  # type: ignore[no-any-return]
