"""What processes tell each other: sums, rows and shares. On one process each of these is the identity.

Every rank must call the same functions in the same order. So whatever decides a branch (an early stop, β) has gone
through `total` first, and every rank runs the same number of forward passes (`rounds`).
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from ppo_lab.records import walk

R = TypeVar("R")
T = TypeVar("T")
X = TypeVar("X", int, float, Tensor)
EXCUSES: list[tuple[str, bool]] = []  # why this process may stand still at present
SENT = [0]  # messages begun by this process
ALONE: list[bool] = []  # not empty: rank 0 works for all and must call nobody


def rank() -> int:
    """This process's number, 0 … `world` - 1."""
    return dist.get_rank() if _launched() else 0


def world() -> int:
    """How many processes work together; 1 where nothing was launched."""
    return dist.get_world_size() if _launched() else 1


def total(x: X) -> X:
    """Sum over ranks, :math:`\\sum_r x_r`, the same bits on every rank; no gradient flows through it.

    A token mean over all ranks is ``total(sum) / total(count)``: the mean of the ranks' means would weigh a token on a
    rank with few tokens more. Floats travel as float64, whole numbers and bools (counted) as int64.

    Args:
        x: a number, or a tensor of the same shape on every rank.

    Returns:
        As ``x``: a float, an int, or a tensor of its dtype (int64 for bool) on its device.

    >>> total(3.0)
    3.0
    """
    if isinstance(x, Tensor):
        wide = torch.float64 if x.is_floating_point() else torch.int64
        narrow = torch.int64 if x.dtype == torch.bool else x.dtype
        return _sum(x.detach().to(wide)).to(narrow) if world() > 1 else x.detach().to(narrow)
    number, wide = (float, torch.float64) if isinstance(x, float) else (int, torch.int64)
    return number(_sum(torch.tensor(x, dtype=wide)).item() if world() > 1 else x)  # type: ignore[return-value]


def add(x: Tensor) -> Tensor:
    """Sum over ranks in the tensor's own dtype, in place of ``x`` and returned: for whole gradients and weights."""
    return x.copy_(_sum(x)) if world() > 1 else x


def first_sum(x: Tensor) -> Tensor:
    """Sum over ranks in place, on rank 0 only, of float32 that all ranks but one hold as 0.0: bits stay as they are.

    What other ranks hold afterwards is undefined.
    """
    SENT[0] += 1
    if world() > 1:
        dist.reduce(x.view(torch.int32), dst=0)  # as numbers, -0.0 + 0.0 is 0.0
    return x


def most(n: int) -> int:
    """The largest ``n`` of all ranks: how often each has to call a sharded model for all to call it equally often.

    >>> most(3)
    3
    """
    if world() == 1:
        return n
    largest = torch.tensor(n, device=carrier())
    dist.all_reduce(largest, op=dist.ReduceOp.MAX)
    return int(largest)


def texts(mine: Sequence[str]) -> list[str]:
    """All ranks' texts in rank order."""
    return [text for some in _exchange(list(mine)) for text in some]


class SharedError(RuntimeError):
    """What one rank raised, raised on all of them; they are still in step, and may go on to save what they have."""


def everywhere(work: Callable[[], T]) -> T:
    """Each rank does it, calling no other, or all the same; what fails on one is then raised on all.

    One process raises its error as it is.

    Raises:
        SharedError: names the first rank that failed, and its error.
    """
    if world() == 1:
        return work()
    error: Exception | None = None
    try:
        done = work()
    except Exception as found:  # the others must hear of it before they wait for what will not come
        error = found
        traceback.clear_frames(found.__traceback__)  # their tensors, which memory may have run out for
    said = _exchange(None if error is None else f"{type(error).__name__}: {error}")
    failed = [r for r, what in enumerate(said) if what is not None]
    if failed:
        raise SharedError(f"rank {failed[0]}: {said[failed[0]]}") from error
    return done


def once(work: Callable[[], T]) -> T:
    """Rank 0 does it, alone, while the others wait; all get its answer, or raise its error.

    For what may happen only once, as training a model that all ranks load afterwards. ``work`` sees one process: it
    calls no other rank. The answer is pickled.
    """
    if world() == 1:
        return work()
    outcome: list[Any] = [None, None]
    if rank() == 0:
        ALONE.append(True)
        try:
            outcome[0] = work()
        except Exception as error:  # it has to reach every rank, or they wait for ever
            outcome[1] = error
        finally:
            ALONE.pop()
    with standing("rank 0 works for all"):
        dist.broadcast_object_list(outcome, src=0)
    if outcome[1] is not None:
        raise outcome[1]
    return outcome[0]  # type: ignore[no-any-return]


@contextmanager
def standing(reason: str, *, busy: bool = False) -> Iterator[None]:
    """Standing still that is meant, and may be long; `ppo_lab.learners.watchdog` lets it be.

    Args:
        reason: for a reader.
        busy: something outside the main thread works for it; otherwise it waits for another rank, which must move.
    """
    excuse = (reason, busy)
    EXCUSES.append(excuse)
    try:
        yield
    finally:
        EXCUSES.remove(excuse)


def gather(record: R) -> R:
    """All ranks' rows in rank order, bit for bit and of any dtype, the same on every rank.

    Ranks may hold different numbers of rows, also none; a rank without rows need not know how wide the others' rows
    are. Nested records are walked; ``None`` and plain values stay as they are here. No gradient flows through it.

    Raises:
        ValueError: on all ranks alike, where the ranks' records do not match or a tensor has no row dimension.
    """
    tensors = dict(_leaves(record, "record"))
    layout = {name: (str(x.dtype), tuple(x.shape)) for name, x in tensors.items()}
    layouts = _exchange(layout)
    _check(layouts)
    if len(layouts) == 1:
        return record
    shards = _bytes_of_all([x.detach() for x in tensors.values()], layouts)
    rows: Iterator[Tensor] = iter(_unpack(list(tensors.values()), shards, layouts))
    return walk(record, lambda _: next(rows))


def share(n: int, rank: int, world: int) -> slice:
    """My rows of ``n``: contiguous, in rank order, sizes that differ by at most one.

    >>> [share(5, r, 3) for r in range(3)]
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    if world < 1 or not 0 <= rank < world:
        raise ValueError(f"rank must lie in 0 … world - 1, got rank {rank} of {world}; pass the learner's own")
    size, longer = divmod(n, world)
    start = rank * size + min(rank, longer)
    return slice(start, start + size + (rank < longer))


def rounds(n: int, world: int, rank: int, micro: int) -> list[slice]:
    """My rows of a minibatch of ``n`` in micro-batches, as slices of the whole minibatch.

    The list is equally long on every rank, so that all run the same number of forward passes; a rank that has run out
    gets empty slices, whose weight in the loss is 0. Raising ``micro`` trades memory for speed, never the result.

    >>> [rounds(5, 2, r, 2) for r in range(2)]
    [[slice(0, 2, None), slice(2, 3, None)], [slice(3, 5, None), slice(5, 5, None)]]
    """
    if micro < 1:
        raise ValueError(f"micro-batch must be at least 1 row, got {micro}; lower it only as far as memory asks")
    mine = share(n, rank, world)
    longest = -(-n // world)
    starts = range(mine.start, mine.start + longest, micro)
    return [slice(min(start, mine.stop), min(start + micro, mine.stop)) for start in starts]


def _launched() -> bool:
    return not ALONE and dist.is_available() and dist.is_initialized()


def carrier() -> torch.device:
    """Where the backend takes tensors: nccl alone moves only CUDA memory."""
    return torch.device("cuda", torch.cuda.current_device()) if dist.get_backend() == "nccl" else torch.device("cpu")


def _sum(x: Tensor) -> Tensor:
    SENT[0] += 1
    sent = x.to(carrier(), copy=True)
    dist.all_reduce(sent)
    return sent.to(x.device)


def _exchange(value: Any) -> list[Any]:
    """This small value of every rank, in rank order."""
    if world() == 1:
        return [value]
    SENT[0] += 1
    values: list[Any] = [None] * world()
    dist.all_gather_object(values, value)
    return values


def _leaves(record: Any, name: str) -> Iterator[tuple[str, Tensor]]:
    """Tensors of a record with their names, in the order in which `walk` meets them."""
    if isinstance(record, Tensor):
        yield name, record
    elif is_dataclass(record) and not isinstance(record, type):
        for field in fields(record):
            yield from _leaves(getattr(record, field.name), f"{name}.{field.name}")


def _check(layouts: Sequence[dict[str, tuple[str, tuple[int, ...]]]]) -> None:
    """Same names everywhere, same dtypes and widths wherever there are rows."""
    names = list(layouts[0])
    for r, layout in enumerate(layouts):
        if list(layout) != names:
            odd = sorted(set(layout) ^ set(names))
            raise ValueError(f"gather needs the same tensors on every rank, but {odd} differ between ranks 0 and {r}")
        for name, (_, shape) in layout.items():
            if not shape:
                raise ValueError(f"{name} must have one row a sample, got a scalar on rank {r}; make it a plain number")
    for name in names:
        kinds = {(layout[name][0], layout[name][1][1:]) for layout in layouts if layout[name][1][0]}
        if len(kinds) > 1:
            shapes = [layout[name] for layout in layouts]
            raise ValueError(f"{name} must have rows of one dtype and width on all ranks, got {shapes}; pad them first")


def _bytes_of_all(tensors: list[Tensor], layouts: Sequence[Any]) -> list[Tensor]:
    """Every rank's tensors as one flat uint8 tensor a rank: one collective a record, and bits stay as they are."""
    parts = [x.contiguous().reshape(-1).view(torch.uint8).to(carrier()) for x in tensors]
    mine = torch.cat(parts) if parts else torch.empty(0, dtype=torch.uint8, device=carrier())
    sizes = _exchange(len(mine))
    padded = torch.zeros(max(sizes), dtype=torch.uint8, device=mine.device)
    padded[: len(mine)] = mine
    received = [torch.empty_like(padded) for _ in layouts]
    dist.all_gather(received, padded)
    return [shard[:size] for shard, size in zip(received, sizes, strict=True)]


def _unpack(mine: list[Tensor], shards: list[Tensor], layouts: Sequence[Any]) -> Iterator[Tensor]:
    """The tensors again, rank after rank, on the device where this rank's own lie."""
    offsets = [0] * len(shards)
    for i, name in enumerate(layouts[0]):
        pieces = []
        for r, (shard, layout) in enumerate(zip(shards, layouts, strict=True)):
            dtype, shape = getattr(torch, layout[name][0].removeprefix("torch.")), layout[name][1]
            size = torch.Size(shape).numel() * dtype.itemsize
            piece = shard[offsets[r] : offsets[r] + size].clone()  # aligned, as view() asks
            offsets[r] += size
            if shape[0]:
                pieces.append(piece.view(dtype).reshape(shape))
        yield torch.cat(pieces).to(mine[i].device) if pieces else mine[i]
