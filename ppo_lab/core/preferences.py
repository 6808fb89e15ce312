"""Learning from pairs: the Bradley–Terry reward model, and policies trained on the pairs directly (DPO, IPO).

Losses are one term a pair, to be *minimised*; log-probabilities are sums over a response's tokens, in nats. All shapes
(B,).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from ppo_lab.core._checks import check_range, check_shapes, check_spreads
from ppo_lab.core.masking import upcast


def bradley_terry_loss(
    chosen: Tensor, rejected: Tensor, *, margin: float | Tensor = 0.0, label_smoothing: float = 0.0
) -> Tensor:
    r"""Negative log-likelihood of the choice, :math:`-\log \sigma(r_w - r_l - m)`, r the scores; log 2 at a tie.

    Args:
        chosen, rejected: scores (B,). margin: m, in units of the score, one for all or (B,); raising it asks for a
        wider gap. label_smoothing: s in [0, 1], the share of labels thought wrong: :math:`(1-s)` of this loss plus s
        of the swapped one.
            Raising it keeps scores small.

    Source: Bradley & Terry 1952; Ouyang et al. 2022, InstructGPT, eq. 1; Touvron et al. 2023, Llama 2, eq. 2 (margin).

    >>> bradley_terry_loss(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 0.0]))
    tensor([0.3133, 0.6931])
    """
    check_shapes(chosen=chosen, rejected=rejected)
    check_range("label_smoothing", label_smoothing, 0, 1, fix="it is the share of wrong labels, 0 for none")
    if isinstance(margin, Tensor):
        check_spreads(chosen=chosen, margin=margin)
    x = upcast(chosen) - upcast(rejected) - margin
    return -(1 - label_smoothing) * logsigmoid(x) - label_smoothing * logsigmoid(-x)


def score_centering(chosen: Tensor, rejected: Tensor) -> Tensor:
    r"""Penalty :math:`(r_w + r_l)^2` that pins the scores' zero point, which pairs leave free; its weight is small.

    Source: Eisenstein et al. 2023, Helping or herding?, eq. 2.

    >>> score_centering(torch.tensor([2.0]), torch.tensor([1.0]))
    tensor([9.])
    """
    check_shapes(chosen=chosen, rejected=rejected)
    return (upcast(chosen) + upcast(rejected)).square()


def implicit_reward(logp: Tensor, ref_logp: Tensor, *, beta: float) -> Tensor:
    r"""Reward for which π is optimal, up to a term of the prompt: :math:`\beta (\log \pi(y|x) - \log \pi_{ref}(y|x))`.

    Source: Rafailov et al. 2023, DPO, eq. 5.

    >>> implicit_reward(torch.tensor([-10.0]), torch.tensor([-12.0]), beta=0.5)
    tensor([1.])
    """
    check_shapes(logp=logp, ref_logp=ref_logp)
    return beta * (upcast(logp) - upcast(ref_logp))


def dpo_loss(
    chosen_logp: Tensor,
    rejected_logp: Tensor,
    ref_chosen_logp: Tensor,
    ref_rejected_logp: Tensor,
    *,
    beta: float,
    label_smoothing: float = 0.0,
) -> Tensor:
    r"""DPO: the Bradley–Terry loss of the implicit rewards.

    Raising ``beta`` keeps the policy nearer to the reference. Smoothing gives conservative DPO.
    Source: Rafailov et al. 2023, DPO, eq. 7.

    >>> dpo_loss(*(torch.tensor([x]) for x in (-10.0, -11.0, -10.5, -10.5)), beta=1.0)
    tensor([0.3133])
    """
    chosen = implicit_reward(chosen_logp, ref_chosen_logp, beta=beta)
    rejected = implicit_reward(rejected_logp, ref_rejected_logp, beta=beta)
    return bradley_terry_loss(chosen, rejected, label_smoothing=label_smoothing)


def ipo_loss(
    chosen_logp: Tensor, rejected_logp: Tensor, ref_chosen_logp: Tensor, ref_rejected_logp: Tensor, *, beta: float
) -> Tensor:
    r"""IPO: :math:`(h - \frac{1}{2\beta})^2`, h the gap of log ratios: it stops pushing once the gap is wide enough.

    Raising ``beta`` asks for a smaller gap. On summed log-probabilities, without length averaging.
    Source: Azar et al. 2024, A general theoretical paradigm to understand learning from human preferences, eq. 17.

    >>> ipo_loss(*(torch.tensor([x]) for x in (-10.0, -11.0, -10.5, -10.5)), beta=0.5)
    tensor([0.])
    """
    check_range("beta", beta, torch.finfo(torch.float32).tiny, float("inf"), fix="0.1 is usual")
    chosen = implicit_reward(chosen_logp, ref_chosen_logp, beta=1.0)
    rejected = implicit_reward(rejected_logp, ref_rejected_logp, beta=1.0)
    return (chosen - rejected - 1 / (2 * beta)).square()
