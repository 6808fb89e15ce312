"""Where a parameter's float32 weights and Adam moments lie in DeepSpeed's flat shards, for all three stages.

A rank owns one flat float32 tensor a parameter group (stages 1 and 2) or sub-group (stage 3), and in it one piece of
each parameter, or none. Everything that a checkpoint holds is read and written through these pieces, whatever the
sizes: DeepSpeed's own setters ask for sizes that the number of ranks divides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ppo_lab.core.averages import moving_average
from ppo_lab.learners import collectives

MOMENTS = ("exp_avg", "exp_avg_sq")
AVERAGE = "ema"
BLOCK = 1 << 24  # elements sent at a time: 64 MiB


@dataclass(frozen=True)
class Piece:
    """This rank's part of a parameter: ``size`` elements from ``inside`` of ``flat``, at ``start`` of the parameter."""

    flat: Tensor
    inside: int
    start: int
    size: int


def is_sharded(p: Tensor) -> bool:
    """Whether ZeRO-3 owns this parameter."""
    return hasattr(p, "ds_id")


def whole_size(p: Tensor) -> torch.Size:
    """Shape of the whole parameter, sharded or not."""
    return torch.Size(p.ds_shape) if is_sharded(p) else p.shape  # type: ignore[attr-defined]


def held_elements(model: nn.Module) -> tuple[int, int]:
    """Elements of a model's weights that lie on this rank, and all there are; each shared parameter once.

    A shard is padded to a length that all ranks have; the padding counts as held.
    """
    parameters = list(model.parameters())
    held = [p.ds_tensor if is_sharded(p) else p for p in parameters]  # type: ignore[attr-defined]
    here = sum(x.numel() for x in held)
    return here, sum(whole_size(p).numel() for p in parameters)


def piece_of(p: nn.Parameter, optimizer: Any) -> Piece | None:
    """Where this rank keeps its part of a trained parameter; None where it has none."""
    if is_sharded(p):
        group, inside, size = optimizer.grad_position[optimizer.get_param_id(p)]
        start = size * collectives.rank()
        return Piece(optimizer.fp32_partitioned_groups_flat[group], inside, start, size)
    mapping = p._hp_mapping  # type: ignore[attr-defined]
    if mapping is None:
        return None
    flat = optimizer.single_partition_of_fp32_groups[mapping.param_group_index]
    high, low = mapping.hp_fragment_address, mapping.lp_fragment_address
    return Piece(flat, high.start, low.start, high.numel)


def flats_of(optimizer: Any) -> list[Tensor]:
    """All flat float32 tensors of this rank."""
    stage3 = hasattr(optimizer, "fp32_partitioned_groups_flat")
    return list(optimizer.fp32_partitioned_groups_flat if stage3 else optimizer.single_partition_of_fp32_groups)


def begin(optimizer: Any) -> None:
    """Adam's state before its first step, as AdamW would make it then: the names of a checkpoint are always there."""
    for flat in flats_of(optimizer):
        optimizer.optimizer.state[flat] = {
            "step": torch.zeros((), dtype=torch.float32),
            **{name: torch.zeros_like(flat.detach()) for name in MOMENTS},
        }


def read(p: nn.Parameter, optimizer: Any, what: str) -> Tensor:
    """The whole float32 weight (``model``) or moment of a parameter, on rank 0; elsewhere an empty tensor.

    Every rank calls it. Pieces travel a block at a time: beside the tensor itself little memory is needed.
    """
    piece, shape = piece_of(p, optimizer), whole_size(p)
    size, first = shape.numel(), collectives.rank() == 0
    whole = torch.empty(shape if first else 0, dtype=torch.float32)
    for start in range(0, size, BLOCK):
        block = torch.zeros(min(BLOCK, size - start), dtype=torch.float32, device=collectives.carrier())
        if piece is not None:
            low, high = max(start, piece.start), min(start + len(block), piece.start + piece.size)
            if low < high:
                mine = _store(piece, optimizer, what).narrow(0, piece.inside + low - piece.start, high - low)
                block[low - start : high - start] = mine.detach()
        collectives.first_sum(block)
        if first:
            whole.view(-1)[start : start + len(block)] = block
    return whole


def write(p: nn.Parameter, optimizer: Any, what: str, part: Callable[[int, int], Tensor]) -> None:
    """This rank's piece goes into its place: ``part(start, stop)`` gives elements of the whole. Nothing is sent."""
    piece = piece_of(p, optimizer)
    if piece is None:
        return
    mine = part(piece.start, min(piece.start + piece.size, whole_size(p).numel()))  # the last shard may be padded
    store = _store(piece, optimizer, what).narrow(0, piece.inside, piece.size)
    store[: len(mine)].copy_(mine)
    if what == "model" and is_sharded(p):
        p.ds_tensor.data[: len(mine)].copy_(mine)  # type: ignore[attr-defined]  # what a forward gathers


def steps_of(p: nn.Parameter, optimizer: Any) -> Tensor:
    """How many steps Adam has taken with this parameter; the same on every rank, with or without a piece."""
    piece = piece_of(p, optimizer)
    states = [optimizer.optimizer.state[piece.flat]] if piece else optimizer.optimizer.state.values()
    return next(iter(states))["step"].detach().cpu().clone()


def keep_average(parameters: Iterable[nn.Parameter], optimizer: Any) -> None:
    """From here on beside the shards that hold these parameters: their moving average, at first equal to them."""
    for flat in _flats(parameters, optimizer):
        optimizer.optimizer.state[flat][AVERAGE] = flat.detach().clone()


def move_average(parameters: Iterable[nn.Parameter], optimizer: Any, decay: float) -> None:
    """One step of the average, on this rank's shards; nothing is sent."""
    for flat in _flats(parameters, optimizer):
        kept = optimizer.optimizer.state[flat][AVERAGE]
        kept.copy_(moving_average(kept, flat.detach(), decay=decay))


def exchange_average(p: nn.Parameter, optimizer: Any) -> None:
    """This rank's piece of a weight and of its average change places; a second time puts them back, to the bit."""
    piece = piece_of(p, optimizer)
    if piece is None:
        return
    weight, kept = (_store(piece, optimizer, what).narrow(0, piece.inside, piece.size) for what in ("model", AVERAGE))
    now = weight.clone()
    weight.copy_(kept)
    kept.copy_(now)
    if is_sharded(p):
        p.ds_tensor.data.copy_(weight)  # type: ignore[attr-defined]


def _flats(parameters: Iterable[nn.Parameter], optimizer: Any) -> list[Tensor]:
    """The flat tensors of this rank that hold a piece of one of them, each once."""
    pieces = [piece_of(p, optimizer) for p in parameters]
    return list({id(piece.flat): piece.flat for piece in pieces if piece is not None}.values())


def _store(piece: Piece, optimizer: Any, what: str) -> Tensor:
    return piece.flat.data if what == "model" else optimizer.optimizer.state[piece.flat][what]
