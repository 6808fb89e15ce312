"""Best-of-n over sequences that can be listed: its distribution, and so its KL, without drawing anything."""

from __future__ import annotations

import torch
from torch import Tensor


def best_of_n_logp(logp: Tensor, score: Tensor, *, n: int) -> Tensor:
    r"""log-prob of each sequence when the one of highest score is kept out of n independent draws. (S,), (S,) -> (S,).

    .. math:: P_n(y) = \frac{\pi(y)}{\pi(s)} \left[ F(s)^n - F(s^-)^n \right],

    s the score of y, F(s) the probability of a score of at most s, F(s⁻) of less, π(s) of exactly s: of tied sequences
    each is kept as often as the policy says it. Rising n: the mass goes to the best sequence, as β → 0 does, but with
    KL(P_n‖π) ≤ ln n − (n − 1)/n whatever the scores. float64, nats.

    Source: Beirami et al. 2024, Theoretical guarantees on the best-of-n alignment policy, lemma 1.

    >>> best_of_n_logp(torch.tensor([0.5, 0.5]).log(), torch.tensor([0.0, 1.0]), n=2).exp()
    tensor([0.2500, 0.7500], dtype=torch.float64)
    """
    if logp.shape != score.shape or logp.dim() != 1:
        raise ValueError(f"logp and score need one number a sequence, (S,), got {tuple(logp.shape)} and "
                         f"{tuple(score.shape)}; give both over all sequences")  # fmt: skip
    if n != int(n) or n < 1:
        raise ValueError(f"n must be a whole number >= 1, got {n}; n is how many sequences are drawn")
    levels, place = score.double().unique(return_inverse=True)
    mass = torch.zeros(len(levels), dtype=torch.float64).index_add(0, place, logp.double().exp())
    upto = mass.cumsum(0).clamp(max=1.0)
    below = (upto - mass).clamp(min=0.0)
    # log(F^n - F₋^n) = n log F + log(1 - (F₋/F)^n), which does not cancel where n is large
    gained = n * upto.log() + torch.log(-torch.expm1(n * (below.log() - upto.log())))
    return logp.double() + (gained - mass.log())[place]
