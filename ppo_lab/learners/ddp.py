"""Several processes that each hold everything: data parallel, the gradient summed once a step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ppo_lab.learners import collectives, processes
from ppo_lab.learners.plain import PlainLearner

BUCKET = 1 << 25  # elements sent at a time: 128 MiB in float32


class DDPLearner(PlainLearner):
    """A `Learner` in which every process owns a copy of the trained module and of its Adam state.

    It is `PlainLearner` with one sum over ranks, just before the norm: micro-batches are added up first, as under
    ``no_sync`` of torch's DistributedDataParallel, so a step costs one exchange however many there were. The sum comes
    back as the same bits on every rank, and with it norm, clip and step; the copies stay equal.

    Args:
        module: actor and critic in one; rank 0's weights are what all start from.
        settings: as of `PlainLearner`.
    """

    several = True

    def __init__(self, module: nn.Module, **settings: Any) -> None:
        super().__init__(module, **{"device": processes.device()} | settings)
        if self.world > 1:
            with torch.no_grad():
                for x in self._tensors().values():
                    sent = x.to(collectives.carrier(), copy=True)
                    dist.broadcast(sent, src=0)
                    x.copy_(sent)
            self._publish()

    def combine(self, gradients: list[Tensor]) -> None:
        """Sum the gradients over ranks, in place, a bucket at a time."""
        for bucket in _buckets(gradients) if self.world > 1 else ():
            flat = collectives.add(torch.cat([g.reshape(-1) for g in bucket]))
            for g, part in zip(bucket, flat.split([g.numel() for g in bucket]), strict=True):
                g.copy_(part.view_as(g))

    def state(self) -> dict[str, Tensor]:
        """See `Learner.state`: on rank 0, as the copies are equal."""
        return super().state() if self.rank == 0 else {}


def _buckets(gradients: list[Tensor]) -> Iterator[list[Tensor]]:
    """Neighbours of one dtype, together of about `BUCKET` elements at most."""
    bucket: list[Tensor] = []
    for g in gradients:
        full = bucket and sum(b.numel() for b in bucket) + g.numel() > BUCKET
        if full or (bucket and bucket[0].dtype != g.dtype):
            yield bucket
            bucket = []
        bucket.append(g)
    if bucket:
        yield bucket
