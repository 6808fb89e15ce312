r"""Best-of-n: draw n answers to a prompt, keep the one with the highest proxy score. No training, and a clean curve.

Its distance from the policy that drew is known in closed form, so proxy and gold can be drawn over the KL as exactly as
the pool of answers allows. Sources: Stiennon et al. 2020, Learning to summarize from human feedback, app. G.3; Hilton
2023, KL divergence of max-of-n; Gao et al. 2023, Scaling laws for reward model overoptimization, sec. 3 and app. I.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def best_of_n_kl(n: int) -> float:
    r"""KL(best-of-n‖policy) in nats, :math:`\ln n - (n - 1)/n`.

    Exact where no two answers can have the same score; an upper bound wherever answers repeat or tie, since a tie gives
    the choice back to the policy (Beirami et al. 2024, theorem 1). It grows with the logarithm of n only: 64 answers
    are 3.17 nats.

    >>> best_of_n_kl(1), round(best_of_n_kl(4), 4), round(best_of_n_kl(64), 2)
    (0.0, 0.6363, 3.17)
    """
    if n != int(n) or n < 1:
        raise ValueError(f"n must be a whole number >= 1, got {n}; n is how many answers are drawn")
    return math.log(n) - (n - 1) / n


def best_of_n_weights(size: int, n: int) -> Tensor:
    r"""Probability that the i-th lowest of ``size`` scores is the highest of n of them, drawn without replacement.

    :math:`w_i = \binom{i-1}{n-1} / \binom{M}{n}` for i = 1 … M, ``(M,)`` float64: all n-subsets of the pool are used,
    none is drawn.

    >>> best_of_n_weights(4, 2) * 6
    tensor([0., 1., 2., 3.], dtype=torch.float64)
    """
    if not 1 <= n <= size:
        raise ValueError(f"n must lie between 1 and the {size} answers of the pool, got {n}; draw more, or lower n")
    total = math.comb(size, n)
    return torch.tensor([math.comb(i, n - 1) / total for i in range(size)], dtype=torch.float64)


def best_of_n(score: Tensor, value: Tensor, *, n: int) -> Tensor:
    r"""Expected ``value`` of the answer that has the highest ``score`` among n: unbiased, of each prompt's pool.

    :math:`\sum_i w_i\, v_{(i)}`, sorted by score, with the weights of `best_of_n_weights`: the mean over all
    :math:`\binom{M}{n}` subsets of the M answers. Tied answers are equally likely to be kept, so each has the mean
    weight of its tie. With ``value = score`` it is the expected best score.

    Args:
        score: proxy of M answers a prompt, ``(..., M)``; only its order matters.
        value: what to know of the kept one, in its own unit, ``(..., M)``.
        n: answers drawn; more of them lean harder on the proxy's order.

    Returns:
        ``(...)``, float64.

    Source: Gao et al. 2023, app. I, eq. 8 (after Nakano et al. 2021, app. I).

    >>> best_of_n(torch.tensor([1.0, 3.0, 2.0]), torch.tensor([0.0, 9.0, 6.0]), n=2)  # (6 + 9 + 9) / 3
    tensor(8., dtype=torch.float64)
    """
    if score.shape != value.shape or not score.dim():
        raise ValueError(
            f"score and value need one number an answer each, (..., M), got {tuple(score.shape)} and "
            f"{tuple(value.shape)}; give both for the same answers"
        )
    order = score.argsort(-1)
    weight = best_of_n_weights(score.shape[-1], n).expand(score.shape)
    score, value = score.gather(-1, order), value.gather(-1, order).double()
    tie = torch.nn.functional.pad((score.diff(dim=-1) != 0).cumsum(-1), (1, 0))  # its number in each row
    sums, sizes = torch.zeros_like(weight), torch.zeros_like(weight)
    sums = sums.scatter_add(-1, tie, weight)
    sizes = sizes.scatter_add(-1, tie, torch.ones_like(weight))
    return ((sums / sizes.clamp(min=1)).gather(-1, tie) * value).sum(-1)
