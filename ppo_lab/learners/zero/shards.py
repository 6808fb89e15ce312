"""Where a parameter's float32 weights and Adam moments lie in DeepSpeed's flat shards, for all three stages.

A rank owns one flat float32 tensor a parameter group (stages 1 and 2) or sub-group (stage 3), and in it one piece of
each parameter, or none. Everything that a checkpoint holds is read and written through these pieces, whatever the
sizes: DeepSpeed's own setters ask for sizes that the number of ranks divides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ppo_lab.learners import collectives

MOMENTS = ("exp_avg", "exp_avg_sq")


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
    """The whole float32 weight (``model``) or moment of a parameter, on every rank: a sum of pieces and zeros."""
    piece, shape = piece_of(p, optimizer), whole_size(p)
    buffer = torch.zeros(shape.numel(), dtype=torch.float32, device=collectives.carrier())
    if piece is not None:
        real = max(0, min(piece.size, len(buffer) - piece.start))  # the rest of the last shard is padding
        source = _store(piece, optimizer, what).narrow(0, piece.inside, real)
        buffer[piece.start : piece.start + real] = source.detach()
    return collectives.add(buffer).view(shape)


def write(p: nn.Parameter, optimizer: Any, what: str, value: Tensor) -> None:
    """This rank's piece of ``value`` goes into its place; nothing is sent."""
    piece = piece_of(p, optimizer)
    if piece is None:
        return
    mine = value.reshape(-1)[piece.start : piece.start + piece.size]
    store = _store(piece, optimizer, what).narrow(0, piece.inside, piece.size)
    store[: len(mine)].copy_(mine)
    if what == "model" and is_sharded(p):
        p.ds_tensor.data[: len(mine)].copy_(mine)  # type: ignore[attr-defined]  # what a forward gathers


def steps_of(p: nn.Parameter, optimizer: Any) -> Tensor:
    """How many steps Adam has taken with this parameter; the same on every rank, with or without a piece."""
    piece = piece_of(p, optimizer)
    states = [optimizer.optimizer.state[piece.flat]] if piece else optimizer.optimizer.state.values()
    return next(iter(states))["step"].detach().cpu().clone()


def _store(piece: Piece, optimizer: Any, what: str) -> Tensor:
    return piece.flat.data if what == "model" else optimizer.optimizer.state[piece.flat][what]
