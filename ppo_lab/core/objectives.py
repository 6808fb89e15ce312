"""Policy objectives, to be *maximised*: one term a step. The sign flips once, where the loss is made:

    loss = -(terms * step_weights(mask)).sum()

No function here takes a mask for its terms: ``log_ratio(logp, old_logp, mask)`` and advantages that are 0 in padding
have selected the inputs already. An advantage of 0 gives a term and a gradient of exactly 0, whatever the ratio.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ppo_lab.core._checks import check_range, check_spreads
from ppo_lab.core.masking import masked_mean, select, upcast

Clip = float | tuple[float, float]


def reinforce(logp: Tensor, weight: Tensor) -> Tensor:
    r"""Score-function term :math:`\log \pi(a_t|s_t)\, G_t`: its gradient is the policy's, its value means nothing.

    ``weight`` is a return, or an advantage for less variance; it is a constant here. Shapes (..., T).
    Source: Williams 1992, Simple statistical gradient-following algorithms.

    >>> reinforce(torch.tensor([-1.0, -2.0]), torch.tensor([3.0, 0.5]))
    tensor([-3., -1.])
    """
    check_spreads(logp=logp, weight=weight)
    weight = upcast(weight)
    return select(upcast(logp), weight != 0) * weight


def surrogate(log_ratio: Tensor, advantage: Tensor) -> Tensor:
    r"""Unconstrained surrogate :math:`r_t \hat A_t`, with :math:`r_t` the importance ratio.

    At ratio 1 its gradient is REINFORCE's; far from it nothing holds it back, so few steps can be taken on one batch.
    Shapes (..., T). Source: Schulman et al. 2015, TRPO, eq. 14; called :math:`L^{CPI}` in PPO, eq. 6.

    >>> surrogate(torch.tensor([0.0, math.log(2.0)]), torch.tensor([1.0, -1.0]))
    tensor([ 1., -2.])
    """
    check_spreads(log_ratio=log_ratio, advantage=advantage)
    advantage = upcast(advantage)
    return select(upcast(log_ratio), advantage != 0).exp() * advantage


def kl_penalized(log_ratio: Tensor, advantage: Tensor, kl: Tensor, *, beta: float) -> Tensor:
    r"""Penalised surrogate :math:`r_t \hat A_t - \beta\, KL[\pi_{old} \| \pi](s_t)`.

    Raising ``beta`` takes smaller steps; `next_beta` adapts it to the KL that came out. ``kl`` in nats, shapes (...,
    T).
    Source: Schulman et al. 2017, PPO, eq. 8.

    >>> kl_penalized(torch.zeros(1), torch.ones(1), torch.tensor([0.5]), beta=0.2)
    tensor([0.9000])
    """
    check_spreads(log_ratio=log_ratio, kl=kl)
    return surrogate(log_ratio, advantage) - beta * upcast(kl)


def clipped_surrogate(log_ratio: Tensor, advantage: Tensor, *, clip: Clip, dual_clip: float = math.inf) -> Tensor:
    r"""PPO's pessimistic term :math:`\min(r_t \hat A_t,\ \mathrm{clip}(r_t, 1-\epsilon, 1+\epsilon) \hat A_t)`.

    The minimum only ever bounds the ratio on the side where moving further would pay: above ``1 + high`` for a good
    step, below ``1 - low`` for a bad one. So the log ratio is bounded there and exponentiated afterwards: a clipped
    step has a gradient of exactly 0 even where the ratio itself overflows. On the other side the gradient stays whole,
    to come back.

    ``dual_clip`` c bounds a bad step's ratio by c from above as well, :math:`\max(\cdot, c \hat A_t)`: it stops a
    single unlucky step with a huge ratio. Raising ``clip`` lets a batch move the policy further; at infinity this is
    `surrogate`. Clipping a step's ratio does not bound the KL.

    Args:
        log_ratio, advantage: (..., T).
        clip: ε, or (low, high) for :math:`1 - low` and :math:`1 + high`; 0.2 is usual.
        dual_clip: c ≥ 1, infinite for none; 3 is usual.

    Sources: Schulman et al. 2017, PPO, eq. 7; Ye et al. 2020, Mastering Complex Control in MOBA Games.

    >>> clipped_surrogate(torch.tensor([2.0, 0.5, 2.0, 0.5]).log(), torch.tensor([1.0, 1.0, -1.0, -1.0]), clip=0.2)
    tensor([ 1.2000,  0.5000, -2.0000, -0.8000])
    """
    check_spreads(log_ratio=log_ratio, advantage=advantage)
    check_range("dual_clip", dual_clip, 1, math.inf, fix="3 is usual; leave it out for none")
    low, high = log_band(clip)
    x, bad = upcast(log_ratio), advantage < 0
    floor = torch.full_like(x, -math.inf).masked_fill(bad, low)
    ceiling = torch.full_like(x, high).masked_fill(bad, math.log(dual_clip))
    return surrogate(x.clamp(floor, ceiling), advantage)


def clip_fraction(log_ratio: Tensor, mask: Tensor | None = None, *, clip: Clip) -> Tensor:
    r"""Share of valid steps whose ratio is outside :math:`[1 - \epsilon, 1 + \epsilon]`, on whichever side.

    This is the figure most libraries log; it also counts steps that still have a gradient, see `active_clip_fraction`.
    Healthy near 0.1 to 0.3; near 1 the steps are too large or the old log-probs are wrong.

    >>> clip_fraction(torch.tensor([2.0, 1.1, 0.5, 1.0]).log(), clip=0.2)
    tensor(0.5000)
    """
    low, high = log_band(clip)
    x = upcast(log_ratio)
    return masked_mean(((x < low) | (x > high)).to(x.dtype), mask)


def active_clip_fraction(
    log_ratio: Tensor, advantage: Tensor, mask: Tensor | None = None, *, clip: Clip
) -> Tensor:
    r"""Share of valid steps that clipping silenced: ratio above the band with A > 0, or below it with A < 0.

    >>> active_clip_fraction(torch.tensor([2.0, 2.0]).log(), torch.tensor([1.0, -1.0]), clip=0.2)
    tensor(0.5000)
    """
    check_spreads(log_ratio=log_ratio, advantage=advantage)
    low, high = log_band(clip)
    x = upcast(log_ratio)
    silenced = ((advantage > 0) & (x > high)) | ((advantage < 0) & (x < low))
    return masked_mean(silenced.to(x.dtype), mask)


def log_band(clip: Clip) -> tuple[float, float]:
    r"""The band of the ratio in log space, :math:`\log(1 - low), \log(1 + high)`; ``low >= 1`` bounds nothing.

    >>> log_band((1.0, math.inf))
    (-inf, inf)
    """
    low, high = (clip, clip) if isinstance(clip, (int, float)) else clip
    for side in (low, high):
        check_range("clip", side, 0, math.inf, fix="0.2 is usual, or (low, high)")
    return math.log1p(-low) if low < 1 else -math.inf, math.log1p(high)
