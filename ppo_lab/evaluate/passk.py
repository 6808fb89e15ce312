"""pass@k: the chance that at least one of k answers is right, estimated from n ≥ k answers."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb


def pass_at_k(n: int, c: int, *, k: int) -> float:
    r"""Unbiased pass@k, :math:`1 - \binom{n-c}{k} / \binom{n}{k}`, from c right answers among n; exact integers inside.

    It is the share of all k-subsets of the n answers that hold a right one. The tempting :math:`1 - (1 - c/n)^k` draws
    with replacement and is biased downwards. Source: Chen et al. 2021, Evaluating large language models trained on
    code, eq. 1.

    >>> pass_at_k(5, 2, k=3), round(1 - (1 - 2 / 5) ** 3, 3)
    (0.9, 0.784)
    """
    for name, value, low, high in (("n", n, 1, None), ("c", c, 0, n), ("k", k, 1, n)):
        if value != int(value) or value < low or (high is not None and value > high):
            upper = "" if high is None else f" and ≤ {high}, the number of answers"
            raise ValueError(f"{name} must be a whole number ≥ {low}{upper}, got {value}; draw more or lower {name}")
    n, c, k = int(n), int(c), int(k)
    return (comb(n, k) - comb(n - c, k)) / comb(n, k)


def mean_pass_at_k(n: Sequence[int], c: Sequence[int], *, k: int) -> float:
    """Plain mean of `pass_at_k` over tasks, each with its own n and c.

    >>> mean_pass_at_k([4, 2], [1, 2], k=2)
    0.75
    """
    each = [pass_at_k(n_task, c_task, k=k) for n_task, c_task in zip(n, c, strict=True)]
    if not each:
        raise ValueError("n must hold at least one task, got none; evaluate some first")
    return sum(each) / len(each)
