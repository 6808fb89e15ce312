r"""From one score a response to one reward a token: clip, missing stop token, KL, placement.

The order is fixed: the score is clipped, then the missing stop token is charged, then the score is placed on the
response. A constant part of the score shifts every return alike; the KL part is what keeps the policy near the
reference.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ppo_lab.core import kl
from ppo_lab.core._checks import check_bool, check_choice, check_range, check_shapes
from ppo_lab.core.masking import last_step, masked_count, select, upcast

MISSING_EOS = ("none", "subtract", "replace")
PLACEMENTS = ("last", "spread")


def final_score(
    score: Tensor,
    stopped: Tensor,
    *,
    clip: float | tuple[float, float] | None = None,
    missing_eos: str = "none",
    penalty: float = 0.0,
) -> Tensor:
    r"""The score as it enters the reward: clipped, then charged where the response was cut at its cap. (B,) -> (B,).

    Args:
        score: the reward model's opinion, (B,). stopped: (B,) bool, True where the response has its stop token. clip:
        c for [-c, c], or (low, high), in units of the score; it tames outliers, and hides differences beyond it.
        missing_eos: ``subtract`` takes ``penalty`` off the score, ``replace`` puts ``-penalty`` in its place (an
        answer that
            never ends is worth the same, however good its start), ``none`` leaves it. The penalty is not clipped.
        penalty: ≥ 0; raising it makes answers stop sooner.

    Source: Ziegler et al. 2019; Huang et al. 2024, The N+ implementation details of RLHF with PPO.

    >>> score, stopped = torch.tensor([12.0, 1.0]), torch.tensor([True, False])
    >>> final_score(score, stopped, clip=5.0, missing_eos="subtract", penalty=2.0)
    tensor([ 5., -1.])
    """
    check_bool(stopped=stopped)
    check_shapes(score=score, stopped=stopped)
    check_choice("missing_eos", missing_eos, MISSING_EOS)
    check_range("penalty", penalty, 0, math.inf, fix="it is taken off the score, so give it as a positive number")
    score = upcast(score)
    if clip is not None:
        low, high = (-clip, clip) if isinstance(clip, (int, float)) else clip
        check_range("clip[1]", high, low, math.inf, fix="give c > 0, or (low, high)")
        score = score.clamp(low, high)
    if missing_eos == "subtract":
        return torch.where(stopped, score, score - penalty)
    if missing_eos == "replace":
        return torch.where(stopped, score, -penalty)
    return score


def length_normalized(score: Tensor, length: Tensor) -> Tensor:
    """Score a token, ``score / length``; 0 for an empty response. Shapes (B,).

    With a sum of log-probabilities as the score this is SimPO's reward (Meng et al. 2024, eq. 4). Of a reward model's
    score it *lowers* what long answers get, so it is no neutral scaling.

    >>> length_normalized(torch.tensor([3.0, -2.0]), torch.tensor([4, 0]))
    tensor([0.7500, 0.0000])
    """
    check_shapes(score=score, length=length)
    return select(upcast(score), length > 0) / length.clamp(min=1)


def kl_price(beta: float, length: Tensor, *, reference_length: float) -> Tensor:
    r"""Price of a nat in an answer of L tokens, :math:`\beta L_{ref} / L`. (B,) -> (B,), in units of the score.

    An answer then pays for its *mean* KL a token, as if it had L_ref tokens. That is not neutral: with the summed KL
    the best policy is :math:`\pi_{ref}\, e^{R/\beta}` whatever the length, here long answers are on a longer leash
    (`ppo_lab.exact.lengths.scaled_optimum`). Higher ``reference_length``: every nat costs more.

    >>> kl_price(0.1, torch.tensor([4, 16]), reference_length=4.0)
    tensor([0.1000, 0.0250])
    """
    check_range("reference_length", reference_length, 0, math.inf, fix="give the reference's mean length")
    return beta * reference_length / length.clamp(min=1)


def token_rewards(
    score: Tensor,
    logp: Tensor,
    ref_logp: Tensor,
    mask: Tensor,
    *,
    beta: float | Tensor,
    estimator: str = "k1",
    placement: str = "last",
) -> Tensor:
    r"""Reward of each token, :math:`r_t = -\beta\, \mathrm{kl}_t + [t\ \text{last}]\, R(x, y)`. (B,), (B, T) -> (B, T).

    With k1 the row's sum is the sequence's objective :math:`R - \beta (\log \pi(y|x) - \log \pi_{ref}(y|x))`, so at γ
    = 1 the token and the sequence view agree. Raising ``beta`` keeps the policy nearer to the reference.

    Args:
        score: finished scores (B,), see `final_score`; of a row without a valid token it is dropped.
        logp, ref_logp: (B, T), of the policy *at rollout* and of the reference.
        mask: (B, T) bool, the response's tokens, stop token included.
        beta: price of a nat of KL, in units of the score; (B,) where answers pay differently, see `kl_price`.
        estimator: k1, k2 or k3 of `ppo_lab.core.kl`; k3 in the reward can point the wrong way.
        placement: ``last`` puts the score on the last valid token, ``spread`` an equal share on every one.

    Source: Ouyang et al. 2022, InstructGPT, eq. 2; Ziegler et al. 2019, eq. 2.

    >>> zero, mask = torch.zeros(1, 3), torch.tensor([[True, True, False]])
    >>> token_rewards(torch.tensor([1.0]), zero + 0.5, zero, mask, beta=0.1)
    tensor([[-0.0500,  0.9500,  0.0000]])
    """
    check_choice("estimator", estimator, ("k1", "k2", "k3"))
    check_choice("placement", placement, PLACEMENTS)
    check_shapes(logp=logp, ref_logp=ref_logp, mask=mask)
    check_shapes(**{"mask[:, 0]": mask[..., 0], "score": score})
    estimate = {"k1": kl.k1, "k2": kl.k2, "k3": kl.k3}[estimator]
    price = beta[..., None] if isinstance(beta, Tensor) else beta
    penalty = price * estimate(select(logp, mask), select(ref_logp, mask))
    score = upcast(score)[..., None].expand(mask.shape)
    if placement == "last":
        return select(score, last_step(mask)) - penalty
    return select(score, mask) / masked_count(score, mask, dim=-1, keepdim=True).clamp(min=1) - penalty
