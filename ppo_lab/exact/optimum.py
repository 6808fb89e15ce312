r"""The optimum of RLHF over sequences that can be listed, and how far a policy falls short of it.

RLHF with a KL leash maximises, over all policies π on the sequences y,

.. math:: J(\pi) = E_\pi[R(y)] - \beta\, KL(\pi \| \pi_{ref}).

Nothing has to be trained for its maximum: the best policy is known in closed form, and what any other lacks is a KL,

.. math:: \pi^*(y) = \pi_{ref}(y)\, e^{R(y)/\beta} / Z, \qquad J^* = \beta \log Z, \qquad
          J^* - J(\pi) = \beta\, KL(\pi \| \pi^*).

Everything is float64 and in nats; S sequences. Sources: Ziegler et al. 2019, Fine-tuning language models from human
preferences, eq. 2; Rafailov et al. 2023, DPO, eq. 4; Korbak et al. 2022, RL with KL penalties is better viewed as
Bayesian inference, sec. 3.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from ppo_lab.core._checks import check_shapes
from ppo_lab.core.kl import categorical_kl


def optimal_logp(ref_logp: Tensor, reward: Tensor, *, beta: float) -> Tensor:
    r"""log π* of each sequence, :math:`\log \pi_{ref}(y) + R(y)/\beta - \log Z`. (S,), (S,) -> (S,).

    Rising β: nearer to the reference; at 0 only the best sequence would be left. Source: Rafailov et al. 2023, eq. 4.

    >>> import torch
    >>> optimal_logp(torch.tensor([0.5, 0.5]).log(), torch.tensor([1.0, 0.0]), beta=1.0).exp()
    tensor([0.7311, 0.2689])
    """
    return (ref_logp + reward / positive(beta)).log_softmax(-1)


class Comparison(NamedTuple):
    """A policy held against the optimum; numbers in units of the reward and in nats."""

    objective: float  # J(π)
    best: float  # J*
    reference: float  # J(π_ref) = E_ref[R]
    regret: float  # (J* - J) / (J* - J_ref): 0 at the optimum, 1 at the reference
    reward: float  # E_π[R]
    kl_to_reference: float  # KL(π‖π_ref)
    kl_to_optimum: float  # KL(π‖π*) = (J* - J) / β


def compare(logp: Tensor, ref_logp: Tensor, reward: Tensor, *, beta: float) -> Comparison:
    r"""How far π is from the best that can be had, by enumeration.

    The regret is computed as :math:`\beta\,KL(\pi\|\pi^*) / (J^* - J_{ref})`: the same, without cancellation.

    Args:
        logp, ref_logp: log-prob of every sequence under π and π_ref, ``(S,)``; each a whole distribution.
        reward: ``(S,)``.
        beta: price of a nat, > 0.

    Raises:
        ValueError: the probabilities of one of the two do not sum to 1.

    >>> import torch
    >>> half, reward = torch.tensor([0.5, 0.5]).log(), torch.tensor([1.0, 0.0])
    >>> at_reference = compare(half, half, reward, beta=1.0)
    >>> at_reference.regret, round(at_reference.best, 4)  # log((e + 1) / 2)
    (1.0, 0.6201)
    """
    check_shapes(logp=logp, ref_logp=ref_logp, reward=reward)
    logp, ref_logp, reward = logp.double(), ref_logp.double(), reward.double()
    for name, x in (("logp", logp), ("ref_logp", ref_logp)):
        if abs((total := float(x.exp().sum())) - 1) > 1e-5:  # float32 models are off by about 1e-7 a token
            raise ValueError(
                f"{name} must hold the log-probs of all sequences, whose probabilities sum to 1, got {total:.6g}; list "
                "every sequence, and suppress the tokens that are not of the language"
            )
    optimum = optimal_logp(ref_logp, reward, beta=beta)
    best, start = float(beta * (ref_logp + reward / beta).logsumexp(-1)), float(ref_logp.exp() @ reward)
    mean, kl, short = float(logp.exp() @ reward), categorical_kl(logp, ref_logp), categorical_kl(logp, optimum)
    return Comparison(
        objective=mean - beta * float(kl),
        best=best,
        reference=start,
        regret=float(short / categorical_kl(ref_logp, optimum)),
        reward=mean,
        kl_to_reference=float(kl),
        kl_to_optimum=float(short),
    )


def positive(beta: float) -> float:
    """β itself, if the optimum exists."""
    if not beta > 0:
        raise ValueError(f"beta must be > 0 (at 0 the optimum is a single sequence), got {beta}; 0.05 to 0.5 are usual")
    return beta
