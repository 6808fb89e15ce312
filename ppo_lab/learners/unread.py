"""Parameters whose values are still in a file, so that each process reads only what it will hold of them.

A model made of them can be copied, frozen, given adapters and joined with others before anything of it is in memory.
Whoever owns the weights then reads: ZeRO-3 a shard of each (`ppo_lab.learners.zero.loading`), `read_whole` all.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ppo_lab.learners.states import Stored, part

PIECE = 1 << 24  # elements read at a time


@dataclass(frozen=True)
class Entry:
    """One tensor of a safetensors file."""

    file: Stored
    name: str

    @property
    def shape(self) -> torch.Size:
        """Of the whole tensor."""
        return self.file.outline[self.name].shape

    def pieces(self, start: int = 0, stop: int | None = None) -> Iterator[tuple[int, Tensor]]:
        """Its elements, laid flat, at most `PIECE` at a time, each piece with the place of its first.

        In the file's dtype, so that nothing is copied on the way; float64 is rounded to float32, as models are loaded.
        """
        stop = self.shape.numel() if stop is None else stop
        for here in range(start, stop, PIECE):
            piece = part(self.file, self.name, here, min(here + PIECE, stop))
            yield here, piece.float() if piece.dtype == torch.float64 else piece


class Unread(nn.Parameter):
    """A float32 parameter that takes no memory: until it is read, all its elements are one and the same NaN.

    A deep copy is unread too.
    """

    entry: Entry

    def __new__(cls, entry: Entry, requires_grad: bool = True) -> Unread:
        """Of the entry's shape."""
        nothing = torch.tensor(torch.nan).expand(entry.shape)
        made: Unread = torch.Tensor._make_subclass(cls, nothing, requires_grad)  # type: ignore[assignment]
        made.entry = entry
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> Unread:
        if id(self) not in memo:
            memo[id(self)] = Unread(self.entry, self.requires_grad)
        return memo[id(self)]  # type: ignore[no-any-return]

    def claim(self) -> Entry:
        """Become an ordinary parameter, whose values the caller now puts in place."""
        entry: Entry = self.__dict__.pop("entry")
        self.__class__ = nn.Parameter  # type: ignore[assignment]
        return entry


def unread_in(*modules: nn.Module) -> list[Unread]:
    """The unread parameters of these modules, each once, in their order."""
    found = {id(p): p for module in modules for p in module.parameters() if isinstance(p, Unread)}
    return list(found.values())


def read_whole(module: nn.Module) -> nn.Module:
    """Read all that is unread."""
    for p in unread_in(module):
        entry = p.claim()
        whole = torch.empty(entry.shape)
        for start, piece in entry.pieces():
            whole.view(-1)[start : start + len(piece)] = piece
        p.data = whole
    return module


def whole_copy(module: nn.Module) -> nn.Module:
    """A copy that has been read, for work before anybody owns the weights; a module that is read stays itself."""
    return read_whole(copy.deepcopy(module)) if unread_in(module) else module


def pieces_of(x: Tensor) -> Iterator[Tensor]:
    """A tensor's elements, laid flat on the CPU: those of an unread parameter come from its file, a piece at a time."""
    if isinstance(x, Unread):
        yield from (piece.float() for _, piece in x.entry.pieces())
    else:
        yield x.detach().cpu().contiguous().reshape(-1)
