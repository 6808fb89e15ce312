"""Weights go from their files straight into ZeRO-3's shards: no rank ever holds a whole model.

DeepSpeed's own way is to make a parameter whole, have rank 0 send it to all, and cut it. Here a parameter that was not
read (`ppo_lab.learners.unread`) is given a shard of its final size, and only the rows which lie in it are read.
"""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import nn

from ppo_lab.learners.collectives import everywhere
from ppo_lab.learners.unread import Unread, unread_in

from .engine import import_deepspeed
from .shards import is_sharded


def take_shards(modules: list[nn.Module], settings: dict[str, Any], dtype: torch.dtype) -> None:
    """Make every unread parameter of these modules a sharded one; parameters that modules share stay shared.

    Raises:
        SharedError: on all ranks, where one could not read its part.
    """
    unread = unread_in(*modules)
    if not unread:
        return
    import_deepspeed()
    os.environ.setdefault("LOCAL_RANK", "0")
    from deepspeed.runtime.zero.partition_parameters import Init

    init = Init(module=nn.Module(), config_dict_or_path=settings)  # a module, so that linear layers drop weights too

    def shard_all() -> None:
        for p in unread:
            _shard(p, init, dtype)

    everywhere(shard_all)


def _shard(p: Unread, init: Any, dtype: torch.dtype) -> None:
    from deepspeed.runtime.zero.partition_parameters import PartitionedParamStatus

    entry = p.claim()
    p.data = torch.empty((), dtype=dtype, device=init.local_device).expand(entry.shape)  # its shape, without its memory
    init._convert_to_deepspeed_param(p)
    owned: Any = p  # has DeepSpeed's attributes now
    size, whole = owned.aligned_size() // owned.ds_zero_partition_world_size, entry.shape.numel()
    start = size * owned.ds_zero_partition_rank
    shard: Any = torch.zeros(size, dtype=dtype, device=init.remote_device)  # the last one may be longer than its part
    for place, piece in entry.pieces(start, min(start + size, whole)):
        shard[place - start : place - start + len(piece)] = piece
    shard.ds_numel, shard.status, shard.final_location = size, PartitionedParamStatus.AVAILABLE, None
    owned.ds_tensor, owned.ds_numel_aligned = shard, owned.aligned_size()
    owned.partition()  # there is a shard, so this only lets the whole go


def settle(model: nn.Module, dtype: torch.dtype, device: torch.device) -> None:
    """What `deepspeed.initialize` leaves undone where some parameters are shards before: the others' dtype, buffers."""
    if any(is_sharded(p) for p in model.parameters()):
        for p in model.parameters():
            if not is_sharded(p):
                p.data = p.data.to(device, dtype)
        for b in model.buffers():
            b.data = b.data.to(device)
