"""The plan's quantities counted on a live model: what autograd keeps, what a learner holds, what a forward computes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ppo_lab.rlhf.models.recompute import watched


@dataclass
class Saved:
    """What autograd kept for the backward pass: bytes of each storage once, weights left out."""

    storages: dict[int, Tensor] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """All of it."""
        return sum(x.untyped_storage().nbytes() for x in self.storages.values())


@contextmanager
def saved_bytes(*modules: nn.Module) -> Iterator[Saved]:
    """Count what the forwards inside keep, weights and buffers of ``modules`` left out.

    Views share a storage, which counts once. Of a recomputed block its inputs are seen, and what selective recomputing
    keeps besides.
    The count itself keeps every storage alive until it is dropped.
    """
    own = {x.untyped_storage().data_ptr() for m in modules for x in (*m.parameters(), *m.buffers())}
    saved = Saved()

    def pack(x: Tensor) -> Tensor:
        address = x.untyped_storage().data_ptr()
        if address not in own:
            saved.storages.setdefault(address, x.detach())
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x), watched(pack):
        yield saved


def tensor_bytes(tensors: Iterable[Tensor]) -> int:
    """Bytes of all storages, each once."""
    return sum({x.untyped_storage().data_ptr(): x.untyped_storage().nbytes() for x in tensors}.values())


def learner_bytes(learner: Any) -> dict[str, int]:
    """What a `PlainLearner` holds: trained weights, frozen weights, gradients (0 between steps) and Adam's moments.

    A float32 copy of half-precision weights counts as optimizer; frozen layers that models share count once.
    """
    trained, masters = list(learner.parameters.values()), list(learner.masters.values())
    copies = [m for m, p in zip(masters, trained, strict=True) if m is not p]
    mine = {id(p) for p in trained}
    everything = [p for m in (learner.module, *learner.frozen.values()) for p in m.parameters() if id(p) not in mine]
    moments = [x for s in learner.optimizer.state.values() for name, x in s.items() if name != "step"]
    return {
        "trained weights": tensor_bytes(trained),
        "frozen weights": tensor_bytes(everything),
        "gradients": tensor_bytes(m.grad for m in (*trained, *copies) if m.grad is not None),
        "optimizer": tensor_bytes([*moments, *copies]),
    }


def flops(function: Any, *args: Any, **kwargs: Any) -> int:
    """Floating-point operations of the matrix products in a call, attention's and those of backward passes included."""
    from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

    aten = torch.ops.aten  # torch knows the kernels of GPUs, not that of the CPU

    def fused(q: Any, k: Any, v: Any, *_: Any, out_shape: Any = None, **__: Any) -> int:
        return int(sdpa_flop_count(q, k, v))

    def fused_backward(grad: Any, q: Any, k: Any, v: Any, *_: Any, out_shape: Any = None, **__: Any) -> int:
        return int(sdpa_backward_flop_count(grad, q, k, v))

    mapping = {aten._scaled_dot_product_flash_attention_for_cpu: fused,
               aten._scaled_dot_product_flash_attention_for_cpu_backward: fused_backward}  # fmt: skip
    with FlopCounterMode(display=False, custom_mapping=mapping) as counter:
        function(*args, **kwargs)
    return counter.get_total_flops()
