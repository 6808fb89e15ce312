"""A whole copy of sharded weights without DeepSpeed's hooks, to generate with.

Under the hooks every layer of every token is gathered anew, and ranks whose answers end at different lengths wait for
each other for ever. A copy that was gathered once is as fast as a plain model, and each rank may stop when it likes.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import nn

CHUNK = 1 << 26  # elements gathered at a time


class Replica:
    """The skeleton of a module: its structure and buffers, parameters without elements until they are gathered.

    Make it before DeepSpeed puts its hooks on the module. Raising nothing, it costs no memory between uses.

    Args:
        module: what will be sharded.
        part: the submodule that generates; only its weights are gathered. "" gathers all.
    """

    def __init__(self, module: nn.Module, *, part: str) -> None:
        self.module, self.part = module, part
        empty = {id(p): nn.Parameter(p.detach().new_empty(0), requires_grad=False) for p in module.parameters()}
        shared = {id(b): b for b in module.buffers()}
        self.copy = copy.deepcopy(module, {**empty, **shared})
        self.pairs = [(p, empty[id(p)]) for p in module.get_submodule(part).parameters()]

    @contextmanager
    def filled(self) -> Iterator[nn.Module]:
        """The copy with all weights of its part; every rank enters."""
        self._buffers()
        try:
            for chunk in _chunks(self.pairs):
                _gather(chunk)
            yield self.copy
        finally:
            for _, mine in self.pairs:
                mine.data = mine.data.new_empty(0)

    def _buffers(self) -> None:
        """The buffers are the module's own, wherever it was moved to."""
        own = dict(self.copy.named_modules())
        for name, part in self.module.named_modules():
            own[name]._buffers.update(part._buffers)


def _gather(pairs: Sequence[tuple[nn.Parameter, nn.Parameter]]) -> None:
    from deepspeed.runtime.zero.partition_parameters import GatheredParameters

    with GatheredParameters([p for p, _ in pairs], modifier_rank=None), torch.no_grad():
        for p, mine in pairs:
            mine.data = p.data.clone()


def _chunks(pairs: Sequence[tuple[nn.Parameter, nn.Parameter]]) -> Iterator[list[tuple[nn.Parameter, nn.Parameter]]]:
    chunk: list[tuple[nn.Parameter, nn.Parameter]] = []
    for pair in pairs:
        chunk.append(pair)
        if sum(p.ds_numel for p, _ in chunk) >= CHUNK:  # type: ignore[attr-defined, misc]
            yield chunk
            chunk = []
    if chunk:
        yield chunk
