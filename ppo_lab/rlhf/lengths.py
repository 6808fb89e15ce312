"""Monitoring by length: what short, middling and long answers earn, pay and learn, in one step.

A mean over all answers hides what happens to the long ones. Answers are sorted into three buckets by thirds of the cap
(not of the batch: a bucket then means the same in every step), and each has its share of the answers, its reward and KL
a token, and the share of its tokens that the update pushes down.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ppo_lab.core._checks import check_shapes
from ppo_lab.core.importance import log_ratio
from ppo_lab.core.masking import masked_mean, select
from ppo_lab.records import BUCKETS, LengthMetrics, TextRollout


def buckets_of(length: Tensor, *, cap: int) -> Tensor:
    """0, 1 or 2 for an answer in the first, second or last third of the cap. (B,) -> (B,).

    >>> import torch
    >>> buckets_of(torch.tensor([1, 4, 5, 8, 9, 12]), cap=12)
    tensor([0, 0, 1, 1, 2, 2])
    """
    return (3 * length > cap).long() + (3 * length > 2 * cap).long()


def bucket_mean(x: Tensor, mask: Tensor, bucket: Tensor) -> list[float | None]:
    """Mean of ``x`` over the tokens that count of each bucket's answers; None where a bucket is empty.

    Args:
        x: (B, T). mask: (B, T) bool. bucket: (B,), see `buckets_of`.

    >>> import torch
    >>> bucket_mean(torch.tensor([[1.0, 3.0], [5.0, 0.0]]), torch.tensor([[True, True], [True, False]]),
    ...             torch.tensor([2, 0]))
    [5.0, None, 2.0]
    """
    check_shapes(x=x, mask=mask)
    total, count = select(x, mask).double().sum(-1), mask.sum(-1)
    found = []
    for i in range(len(BUCKETS)):
        here = bucket == i
        tokens = int(count[here].sum())
        found.append(float(total[here].sum()) / tokens if tokens else None)
    return found


def of_lengths(rollout: TextRollout, reward: Tensor, advantage: Tensor, *, cap: int, centred: bool) -> LengthMetrics:
    """The figures of a step by length.

    Args:
        reward, advantage: (B, T); the advantage before standardising.
        cap: most tokens of an answer.
        centred: whether the update takes the mean off the advantages, which decides their sign.
    """
    mask = rollout.responses.mask
    bucket = buckets_of(mask.sum(-1), cap=cap)
    seen = advantage - masked_mean(advantage, mask) if centred else advantage
    kl = log_ratio(rollout.forward_logp, rollout.ref_logp, mask)
    figures: dict[str, Any] = {}
    for i, name in enumerate(BUCKETS):
        figures[f"answers_{name}"] = float((bucket == i).double().mean())
    for key, x in (("reward_token", reward), ("ref_kl_token", kl), ("pushed_down", (seen < 0).double())):
        figures |= {f"{key}_{name}": x for name, x in zip(BUCKETS, bucket_mean(x, mask, bucket), strict=True)}
    return LengthMetrics(**figures)
