"""How much answers differ from each other: distinct n-grams and entropy, at a fixed length, so that neither length nor
the number of samples passes for diversity."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

from torch import Tensor

from .assess import distinct


@dataclass(frozen=True, slots=True)
class Diversity:
    """Of N answers, their first ``length`` tokens each; shorter answers count with what they have."""

    samples: int
    length: int
    distinct_2: float  # different bigrams / bigrams
    entropy_2: float  # nats, of the bigrams' frequencies
    unique: float  # share of answers whose first tokens no other has
    repeated: float  # share of tokens that the same answer has already said


def diversity(tokens: Tensor, mask: Tensor, *, length: int) -> Diversity:
    """Measure ``tokens`` ``(N, T)`` under ``mask``, cut at ``length``.

    Distinct-2 falls with N by itself, since words run out: compare at one N. Raising ``length`` lowers it too.

    >>> import torch
    >>> same = torch.tensor([[1, 2, 3, 1]]).repeat(4, 1)
    >>> diversity(same, torch.ones(4, 4, dtype=torch.bool), length=4)
    Diversity(samples=4, length=4, distinct_2=0.25, entropy_2=1.0986, unique=0.0, repeated=0.25)
    """
    if tokens.shape != mask.shape or tokens.dim() != 2 or length < 2:
        raise ValueError(f"diversity needs tokens and mask (N, T) and length >= 2, got {tuple(tokens.shape)}, "
                         f"{tuple(mask.shape)} and {length}")  # fmt: skip
    tokens, mask = tokens[:, :length], mask[:, :length]
    rows = [row[keep].tolist() for row, keep in zip(tokens, mask, strict=True)]
    count = Counter(map(tuple, rows))
    said = sum(len(row) for row in rows)
    again = sum(len(row) - len({*row}) for row in rows)
    return Diversity(
        samples=len(rows), length=length, distinct_2=round(distinct(tokens, mask, 2), 5),
        entropy_2=round(ngram_entropy(tokens, mask, 2), 4),
        unique=sum(count[tuple(row)] == 1 for row in rows) / len(rows), repeated=again / said if said else 0.0,
    )  # fmt: skip


def ngram_entropy(tokens: Tensor, mask: Tensor, n: int) -> float:
    r"""Entropy of the n-grams' frequencies over all answers, :math:`-\sum_g p_g \log p_g`, nats; 0 of no n-grams.

    The plain plug-in estimate, too low for few samples. Rising: more different things are said, more evenly.

    >>> import torch
    >>> tokens = torch.tensor([[1, 2, 3], [1, 2, 4]])
    >>> round(ngram_entropy(tokens, torch.ones(2, 3, dtype=torch.bool), 1), 4)
    1.3297
    """
    count: Counter[tuple[int, ...]] = Counter()
    for row, keep in zip(tokens, mask, strict=True):
        said = row[keep].tolist()
        count.update(tuple(said[i : i + n]) for i in range(len(said) - n + 1))
    total = sum(count.values())
    return -sum(c / total * math.log(c / total) for c in count.values()) if total else 0.0
