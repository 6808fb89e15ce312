r"""How far apart two policies are, exactly or from samples, and the controllers that act on it. In nats.

The direction is always said: ``categorical_kl(p, q)`` is KL(p‖q), and an estimator of KL(π‖ref) needs samples *from
π*. Of samples from the old policy, ``k(old_logp, logp)`` estimates KL(old‖new). Where an estimator may stand:

* in the reward: k1, unbiased; its row sum is the sequence's log ratio. (k3 there is allowed with a warning.)
* in the loss: k2 or the exact KL, of each token by itself. Over more than one token neither charges a token for the KL
  that it leads to later, so training ends at another policy than π* ∝ π_ref·exp(R/β); k1 in the reward ends at π*.
  k1 in the loss has zero expected gradient, k3 has the gradient of KL(ref‖π).
* in a log: k1 is unbiased and may be negative; k3 is unbiased, never negative and steadier near 0.

Sources: Schulman 2020, Approximating KL divergence; Tang & Munos 2025, On a few pitfalls in KL divergence gradient
estimation for RL.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ppo_lab.core._checks import check_choice, check_range, check_shapes
from ppo_lab.core.masking import select, upcast

RULES = ("double_or_halve", "step_1_5", "proportional")


def categorical_kl(logits_p: Tensor, logits_q: Tensor) -> Tensor:
    r"""Exact :math:`KL(p \| q) = \sum_k p_k (\log p_k - \log q_k)`. (..., K), (..., K) -> (...).

    Infinite where q rules out what p can do.

    >>> categorical_kl(torch.tensor([0.0, -math.inf]), torch.tensor([0.0, 0.0]))
    tensor(0.6931)
    """
    check_shapes(logits_p=logits_p, logits_q=logits_q)
    logp, logq = upcast(logits_p).log_softmax(-1), upcast(logits_q).log_softmax(-1)
    p = logp.exp()
    return _not_negative((p * (select(logp, p > 0) - select(logq, p > 0))).sum(-1))


def gaussian_kl(mean_p: Tensor, log_std_p: Tensor, mean_q: Tensor, log_std_q: Tensor) -> Tensor:
    r"""Exact KL(p‖q) of diagonal Gaussians. (..., A) -> (...).

    .. math:: \sum_i \log\frac{\sigma_q}{\sigma_p} + \frac{\sigma_p^2 + (\mu_p - \mu_q)^2}{2 \sigma_q^2} - \frac12

    Computed with expm1, which keeps small differences of the widths.

    >>> gaussian_kl(torch.ones(1), torch.zeros(1), torch.zeros(1), torch.zeros(1))
    tensor(0.5000)
    """
    check_shapes(mean_p=mean_p, mean_q=mean_q)
    log_std_p, log_std_q = upcast(log_std_p), upcast(log_std_q)
    z = (upcast(mean_p) - upcast(mean_q)) * torch.exp(-log_std_q)
    widths = 2 * (log_std_p - log_std_q)
    return _not_negative(((torch.expm1(widths) - widths + z.square()) / 2).sum(-1))


def k1(logp: Tensor, ref_logp: Tensor) -> Tensor:
    r"""Estimator :math:`\log \pi - \log \pi_{ref}` of KL(π‖ref) from samples of π: unbiased, either sign, noisy. (...).

    >>> k1(torch.tensor([-1.0, -2.0]), torch.tensor([-1.5, -1.0]))
    tensor([ 0.5000, -1.0000])
    """
    check_shapes(logp=logp, ref_logp=ref_logp)
    return upcast(logp) - upcast(ref_logp)


def k2(logp: Tensor, ref_logp: Tensor) -> Tensor:
    r"""Estimator :math:`\frac12 (\log \pi - \log \pi_{ref})^2` of KL(π‖ref) from samples of π: biased, steady. (...).

    In a loss its expected gradient is that of KL(π‖ref) of the *same token*, which no other estimator's is. A sum of it
    over T > 1 tokens leaves out what a token does to the KL of later ones; half the squared row sum of k1 has the
    gradient of the whole sequence's KL. Source: Tang & Munos 2025.

    >>> k2(torch.tensor([-1.0, -2.0]), torch.tensor([-1.5, -1.0]))
    tensor([0.1250, 0.5000])
    """
    return k1(logp, ref_logp).square() / 2


def k3(logp: Tensor, ref_logp: Tensor) -> Tensor:
    r"""Estimator :math:`e^{-D} - 1 + D` of KL(π‖ref) from samples of π, D the k1: unbiased, never negative. (...).

    Not clamped: where π makes likely what the reference hardly knew it stays finite and small, where π has given up
    what the reference would say it grows exponentially.

    >>> k3(torch.tensor([-1.0, -2.0]), torch.tensor([-1.5, -1.0]))
    tensor([0.1065, 0.7183])
    """
    d = k1(logp, ref_logp)
    return _not_negative(torch.expm1(-d) + d)


def next_beta(
    beta: float,
    kl: float,
    *,
    target: float,
    rule: str,
    horizon: float | None = None,
    n_steps: float | None = None,
    bounds: tuple[float, float] = (0.0, math.inf),
) -> float:
    r"""KL coefficient for the next rollout, from the KL of this one: more where it was too large, less where too small.

    =================  ==============================================================================================
    double_or_halve    ×2 above 1.5 · target, ÷2 below target / 1.5 (Schulman et al. 2017, PPO, sec. 4)
    step_1_5           ×1.5 above 2 · target, ÷1.5 below target / 2
    proportional       × (1 + clip(kl / target - 1, ±0.2) · n_steps / horizon) (Ziegler et al. 2019, sec. 2.2)
    =================  ==============================================================================================

    Args:
        beta, kl: coefficient and measured KL; ``kl`` and ``target`` in the same unit (nats a step, or a sequence).
        target: the KL to hold; raising it lets the policy go further.
        horizon, n_steps: of the proportional rule only: it takes about ``horizon`` / 0.2 steps (samples) to move β by a
            factor of e, and ``n_steps`` of them were just taken. Raising ``horizon`` makes it slower.
        bounds: β stays within these, whatever the rule.

    >>> next_beta(1.0, 0.02, target=0.01, rule="double_or_halve")
    2.0
    >>> round(next_beta(0.2, 9.0, target=6.0, rule="proportional", n_steps=100, horizon=1000), 6)
    0.204
    """
    check_choice("rule", rule, RULES)
    check_range("kl", kl, -math.inf, math.inf, fix="find where the log-probs became NaN")
    check_range("bounds[1]", bounds[1], bounds[0], math.inf, fix="give (low, high)")
    if not target > 0:
        raise ValueError(f"target must be > 0, got {target}; 0.01 nats a step for PPO, 6 a sequence for RLHF are usual")
    if rule == "double_or_halve":
        factor = 2 if kl > 1.5 * target else 0.5 if kl < target / 1.5 else 1
    elif rule == "step_1_5":
        factor = 1.5 if kl > 2 * target else 1 / 1.5 if kl < target / 2 else 1
    elif horizon is None or n_steps is None or not horizon > 0:
        raise ValueError(
            f"horizon and n_steps must be > 0 for rule proportional, got {horizon} and {n_steps}; "
            "try 10000 and the number of samples of a rollout"
        )
    else:
        factor = 1 + min(max(kl / target - 1, -0.2), 0.2) * n_steps / horizon
    return min(max(beta * factor, bounds[0]), bounds[1])


def next_clip(
    clip: float, kl: float, *, target: float, rate: float, bounds: tuple[float, float] = (0.02, 0.4)
) -> float:
    r"""Clip range for the next rollout, :math:`\epsilon\, e^{\alpha (target - KL)}`: narrower where KL was too large.

    The sign matters: written with :math:`KL - target` in the exponent, as it is sometimes printed, a policy that has
    gone too far is allowed to go further. A clip range does not bound the KL, so watch what comes out.

    Args:
        clip, kl: ε and the measured KL(old‖new), nats a step.
        target: the KL to hold.
        rate: α > 0, per nat. Raising it reacts faster.
        bounds: ε stays within these.

    >>> next_clip(0.2, 0.01, target=0.01, rate=10.0)
    0.2
    >>> next_clip(0.2, 0.03, target=0.01, rate=10.0) < 0.2 < next_clip(0.2, 0.0, target=0.01, rate=10.0)
    True
    """
    check_range("kl", kl, -math.inf, math.inf, fix="find where the log-probs became NaN")
    check_range("bounds[1]", bounds[1], bounds[0], math.inf, fix="give (low, high)")
    if not rate > 0:
        raise ValueError(f"rate must be > 0, got {rate}; below 0 the clip would widen where the KL is too large")
    return min(max(clip * math.exp(min(rate * (target - kl), 700.0)), bounds[0]), bounds[1])


def _not_negative(x: Tensor) -> Tensor:
    """Rounding may leave -1e-17 where 0 or a little more is right: the value becomes 0 and the gradient stays."""
    return torch.where(x < 0, x - x.detach(), x)
