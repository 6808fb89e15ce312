"""One number from several: scores of an ensemble of reward models, weights along a run."""

from __future__ import annotations

import torch
from torch import Tensor

from ppo_lab.core._checks import check_choice, check_range, check_shapes
from ppo_lab.core.masking import upcast

RULES = ("mean", "min", "mean_minus_std")


def ensemble_score(scores: Tensor, *, rule: str, k: float = 1.0) -> Tensor:
    r"""One score an answer from M members: :math:`\bar s`, :math:`\min_m s_m` or :math:`\bar s - k\,\sigma(s)`.

    The last two are pessimistic: an answer is worth what the members agree on, so what only one of them likes does not
    pay. They help as far as members err apart; what all of them get wrong stays wrong. The members must speak in one
    unit, for example each with mean 0 and deviation 1 on answers of the reference.

    Args:
        scores: (M, B), a row a member, in units of the score.
        rule: mean, min or mean_minus_std.
        k: of mean_minus_std, at least 0; σ is the deviation over the members, divisor M. Rising: more pessimistic, and
            answers that the members know well win over better ones that they do not.

    Source: Coste et al. 2024, Reward model ensembles help mitigate overoptimization: mean, worst-case and
    uncertainty-weighted optimisation (theirs takes the variance in place of σ); Eisenstein et al. 2023, Helping or
    herding?

    >>> scores = torch.tensor([[1.0, 3.0], [3.0, 3.0]])
    >>> ensemble_score(scores, rule="min"), ensemble_score(scores, rule="mean_minus_std", k=1.0)
    (tensor([1., 3.]), tensor([1., 3.]))
    """
    check_choice("rule", rule, RULES)
    check_range("k", k, 0, float("inf"), fix="1 is usual, 0 is the mean")
    scores = upcast(scores)
    if rule == "min":
        return scores.amin(0)
    mean = scores.mean(0)
    return mean if rule == "mean" else mean - k * ensemble_spread(scores)


def ensemble_spread(scores: Tensor) -> Tensor:
    r"""How far the members are apart on each answer, :math:`\sigma = \sqrt{\frac{1}{M}\sum_m (s_m - \bar s)^2}`.

    Args:
        scores: (M, B), a row a member, in units of the score. One member: 0.

    Source: Coste et al. 2024, as in `ensemble_score`.

    >>> ensemble_spread(torch.tensor([[1.0, 3.0], [3.0, 3.0]]))
    tensor([1., 0.])
    """
    scores = upcast(scores)
    return torch.sqrt((scores - scores.mean(0)).square().mean(0))


def moving_average(average: Tensor, x: Tensor, *, decay: float) -> Tensor:
    r"""Exponential moving average, :math:`\bar x \leftarrow d\,\bar x + (1 - d)\,x`.

    From :math:`\bar x_0` it is :math:`d^n \bar x_0 + (1 - d)\sum_{i=1}^{n} d^{\,n-i} x_i` after n of them: it remembers
    about :math:`1/(1-d)` values.

    Args:
        average, x: of one shape and unit. decay: d in [0, 1]. Rising: smoother, and later; at 1 it never moves.

    Source: Tarvainen & Valpola 2017, Mean teachers are better role models; iterates averaged: Polyak & Juditsky 1992.

    >>> moving_average(torch.tensor([1.0]), torch.tensor([2.0]), decay=0.75)
    tensor([1.2500])
    """
    check_shapes(average=average, x=x)
    check_range("decay", decay, 0, 1, fix="0.9 remembers about 10 values")
    return decay * average + (1 - decay) * x
