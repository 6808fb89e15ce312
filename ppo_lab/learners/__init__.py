"""Who owns the weights. A recipe talks to a `Learner` and cannot tell one process from many.

============  ==============================================================================================
`plain`       one process, the module as it is
`ddp`         several processes, each with everything
`zero`        several processes, each with its shard: DeepSpeed
`processes`   entering and leaving the group of processes
`sharding`    what code apart from DeepSpeed must do otherwise where weights are sharded
`watchdog`    a stuck or dead process becomes a named error
`unread`      weights that are still in their files, for whoever will own them
`groups`      which parameters are the actor's, and which the critic's
`states`      weights and moments that are never whole in memory, and their file (`tensorfile`)
`collectives` what processes tell each other, the same for every learner
============  ==============================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor, nn

R = TypeVar("R")
X = TypeVar("X", int, float, Tensor)


@runtime_checkable
class Learner(Protocol):
    r"""Owns one trained module θ (actor and critic in one) and any number of frozen ones.

    One optimizer step maximises nothing by itself: it minimises the sum of all losses handed to `accumulate` since the
    last step, over micro-batches :math:`m` and ranks :math:`r`,

    .. math:: g = \sum_r \sum_m \nabla_\theta \, loss_{r,m}, \qquad
              \hat g = g \cdot \min(1, max\_norm / \lVert g \rVert_2), \qquad
              \theta_k \leftarrow \mathrm{AdamW}(\theta_k, \hat g_k;\ rate_k \cdot multiplier_k),\quad
              k \in \{actor, critic\}.

    Sums, not means: the caller's weights (`core.masking.step_weights` of the *whole* minibatch) carry the denominator,
    which makes accumulation and ranks exact for any split. ``n`` processes and a rate give the run of one process and
    that rate: rates are a step, schedules count optimizer steps.
    """

    rank: int
    world: int
    device: torch.device
    optimizer_steps: int  # steps taken; the version of the policy that samples next
    skipped_steps: int  # steps refused since the gradient was not finite

    def forward(self, **inputs: Any) -> Any:
        """The trained module's answer, with gradients, under evaluation mode.

        Dropout is off: the ratio π/π_old compares two policies, and a dropout mask would be part of the policy. Every
        rank calls it equally often, with an empty share too.
        """
        ...

    def score(self, name: str, **inputs: Any) -> Any:
        """A frozen module's answer (reference, reward model): evaluation mode, no gradient."""
        ...

    def accumulate(self, loss: Tensor) -> None:
        r"""Add :math:`\nabla_\theta loss` to the gradient. ``loss`` is this micro-batch's share of one sum."""
        ...

    def step(self, actor: float = 1.0, critic: float = 1.0) -> float:
        r"""Clip, step, zero; returns :math:`\lVert g \rVert_2` before clipping.

        Args:
            actor, critic: multiply the base rate of their group (schedules, warm-up, early stop). At 0 the group's
                gradient is 0 before the norm is taken: its weights do not move, not even by momentum or decay, while
                its moments decay as under any zero gradient. A shared trunk belongs to the actor.

        A norm that is not finite is returned, and the step is left out: weights and moments stay as they were.
        """
        ...

    def keep_average(self) -> None:
        """From here on an average of the actor's weights is kept beside them, at first equal to them.

        It lies where Adam's moments lie, whole or in shards, in full precision, and costs half of what they do.
        """
        ...

    def average(self, decay: float) -> None:
        """Move the average towards the weights, see `core.averages.moving_average`."""
        ...

    def averaged(self) -> AbstractContextManager[None]:
        """Inside, the actor's weights are the average; afterwards they are themselves again, to the bit.

        No `step`, `state` or `load` inside. Every rank enters.
        """
        ...

    def total(self, x: X) -> X:
        """Sum over ranks, see `collectives.total`. A number that decides has gone through it."""
        ...

    def gather(self, record: R) -> R:
        """All ranks' rows in rank order, see `collectives.gather`."""
        ...

    def share(self, n: int) -> slice:
        """My rows of ``n``, see `collectives.share`."""
        ...

    def whole(self) -> AbstractContextManager[nn.Module]:
        """The trained module with all its weights and no hooks, to generate with: evaluation mode, no gradient.

        Every rank enters, even one without rows.
        """
        ...

    def state(self) -> Mapping[str, Tensor]:
        """Full weights and Adam moments by plain name, on the CPU: the same from every learner and world size.

        Every rank calls it, and rank 0, which writes, is given the tensors. Shards are gathered only when a name is
        asked for, so that no more than one whole tensor is in memory: then every rank asks for the same names in the
        mapping's own order, before the next `step` (see `states.Made`). Where nothing is sharded, rank 0 has a copy of
        all, and the others an empty dict.

        ``model.NAME`` trained parameters in full precision and persistent buffers · ``exp_avg.NAME``,
        ``exp_avg_sq.NAME``, ``step.NAME`` Adam's m, v and t · ``ema.NAME`` the actor's average, where one is kept ·
        ``count.optimizer_steps``, ``count.skipped_steps``.
        """
        ...

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Take over what `state` gave, on any number of processes; no name may be missing, none is left over.

        Every rank is given it, best as it lies in its file (`states.Stored`), of which it reads what it owns.

        Raises:
            ValueError: names the tensor, what it should be, what it is and what to do; nothing has been changed then.
        """
        ...
