"""States that are never whole in memory: made a tensor at a time, or read from a file a piece at a time.

A dict of tensors does the same for a small model; `outline`, `part` and `finish` treat all of them alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor

NAMES = {  # of safetensors, in the order in which it lays tensors into a file: see `order`
    "U64": torch.uint64, "I64": torch.int64, "F64": torch.float64, "C64": torch.complex64, "F32": torch.float32,
    "U32": torch.uint32, "I32": torch.int32, "BF16": torch.bfloat16, "F16": torch.float16, "U16": torch.uint16,
    "I16": torch.int16, "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2, "I8": torch.int8,
    "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip
KINDS = {dtype: name for name, dtype in NAMES.items()}


class Made(Mapping[str, Tensor]):
    """A state whose tensors are made when they are asked for, and kept by nobody.

    Asking may be work of all ranks together: each asks for the same names in the same order, which is `order`, and
    rank 0 is given the tensors, the others empty ones. Whoever leaves early calls `finish`, or the others wait.

    Args:
        outline: name to a tensor of its shape and dtype, on the meta device.
        make: gives the tensor of a name, on the CPU.
    """

    def __init__(self, outline: Mapping[str, Tensor], make: Callable[[str], Tensor]) -> None:
        self.outline, self.make = dict(outline), make
        self.asked: set[str] = set()

    def __getitem__(self, name: str) -> Tensor:
        if name not in self.outline:
            raise KeyError(name)
        self.asked.add(name)
        return self.make(name)

    def __iter__(self) -> Iterator[str]:
        return iter(order(self.outline))

    def __len__(self) -> int:
        return len(self.outline)

    def __contains__(self, name: object) -> bool:
        return name in self.outline  # Mapping would make it


class Stored(Mapping[str, Tensor]):
    """The tensors of a safetensors file, read when they are asked for; nothing is ever unpickled.

    Raises:
        OSError, safetensors.SafetensorError: there is no such file, or it is none.
    """

    def __init__(self, path: Path) -> None:
        from safetensors import safe_open

        self.file = safe_open(path, framework="pt")
        self.outline = {name: self._outline(name) for name in self.file.keys()}  # noqa: SIM118 - it is no dict

    def __getitem__(self, name: str) -> Tensor:
        if name not in self.outline:
            raise KeyError(name)
        return self.file.get_tensor(name)

    def __iter__(self) -> Iterator[str]:
        return iter(order(self.outline))

    def __len__(self) -> int:
        return len(self.outline)

    def __contains__(self, name: object) -> bool:
        return name in self.outline

    def part(self, name: str, start: int, stop: int) -> Tensor:
        """Elements ``start … stop - 1`` of the tensor laid flat; only the rows that they lie in are read."""
        shape = self.outline[name].shape
        if not shape:
            return self[name].reshape(-1)[start:stop]
        row = max(1, math.prod(shape[1:]))
        first = min(start // row, shape[0])
        rows = self.file.get_slice(name)[first : -(-stop // row)]
        return rows.reshape(-1)[start - first * row : stop - first * row]

    def _outline(self, name: str) -> Tensor:
        found = self.file.get_slice(name)
        return torch.empty(found.get_shape(), dtype=NAMES[found.get_dtype()], device="meta")


def outline(state: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Name to a tensor of the shape and dtype; its values are not to be read."""
    return state.outline if isinstance(state, Made | Stored) else state


def order(outline: Mapping[str, Tensor]) -> list[str]:
    """Names as they follow each other in a safetensors file: wide dtypes first, each dtype's names sorted.

    >>> order({"b": torch.zeros(1), "a": torch.zeros(1), "n": torch.tensor(1), "m": torch.tensor(True)})
    ['n', 'a', 'b', 'm']
    """
    place = {dtype: i for i, dtype in enumerate(KINDS)}
    return sorted(outline, key=lambda name: (place.get(outline[name].dtype, -1), name))


def part(state: Mapping[str, Tensor], name: str, start: int, stop: int) -> Tensor:
    """Elements ``start … stop - 1`` of a tensor laid flat, fewer where it ends before.

    >>> part({"w": torch.arange(6.0).view(2, 3)}, "w", 2, 99)
    tensor([2., 3., 4., 5.])
    """
    return state.part(name, start, stop) if isinstance(state, Stored) else state[name].reshape(-1)[start:stop]


def finish(state: Mapping[str, Tensor]) -> None:
    """Take part in making whatever this rank has not asked for."""
    if isinstance(state, Made):
        for name in [name for name in state if name not in state.asked]:
            state[name]
