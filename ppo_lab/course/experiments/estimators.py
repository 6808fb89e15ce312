r"""Which estimator of KL(π‖π_ref) may stand in the reward, and which in the loss: gradients by enumeration.

Over a `Language` every answer can be listed, so the expected push of each choice is exact. With D_t = log π − log π_ref
of token t: k1 = D, k2 = ½ D², k3 = e^{−D} − 1 + D. What training should push along is :math:`\nabla KL(\pi\|\pi_{ref})`
of whole answers. Everything float64, in the policy's logits (P, V).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ppo_lab import seeding
from ppo_lab.core.kl import categorical_kl, k1, k2, k3
from ppo_lab.core.masking import masked_sum, select
from ppo_lab.exact.language import Language, make_language

ESTIMATORS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"k1": k1, "k2": k2, "k3": k3}
AWAY = 1.0  # deviation of the policy's logits from the reference's


@dataclass(frozen=True, slots=True)
class Push:
    """A push beside the true gradient: cosine of their angle (None where the push vanishes), ratio of lengths."""

    cosine: float | None
    length: float


@dataclass(frozen=True, slots=True)
class Tokens:
    """Log-probs of every token of every answer, (S, T), under policy and reference, and the policy's logits."""

    language: Language
    logits: Tensor  # (P, V), with a gradient
    logp: Tensor
    ref_logp: Tensor
    prefix: Tensor  # (S, T) which row each token was drawn from

    @property
    def probs(self) -> Tensor:
        """π of each answer (S,), without a gradient."""
        return masked_sum(self.logp, self.language.mask, dim=-1).exp().detach()


def tokens_of(seed: int, *, length: int = 4, stop: bool = False) -> Tokens:
    """A language of 4 tokens and a policy that has left its reference, both drawn by ``seed``."""
    language = make_language(seed, length=length, stop=stop)
    draw = seeding.generator(seed, "estimators")
    moved = torch.randn(language.ref_logits.shape, generator=draw, dtype=torch.float64)
    logits = (language.ref_logits + AWAY * moved).requires_grad_()
    prefix = language.walk(language.sequence)[:, :-1].clamp(min=0)

    def read(table: Tensor) -> Tensor:
        return table.log_softmax(-1)[prefix, language.sequence]

    return Tokens(language, logits, read(logits), read(language.ref_logits), prefix)


def sums(at: Tokens, name: str) -> Tensor:
    """Σ_t k(log π, log π_ref) of each answer, (S,)."""
    mask = at.language.mask
    return masked_sum(ESTIMATORS[name](select(at.logp, mask), select(at.ref_logp, mask)), mask, dim=-1)


def mean_value(at: Tokens, name: str) -> float:
    """E_π[Σ_t k], nats a sequence."""
    return float(at.probs @ sums(at, name).detach())


def true_kl(at: Tokens) -> Tensor:
    """KL(π‖π_ref) of whole answers, a number with a gradient."""
    mask = at.language.mask
    logp, ref_logp = masked_sum(at.logp, mask, dim=-1), masked_sum(at.ref_logp, mask, dim=-1)
    return categorical_kl(logp, ref_logp)


def in_reward(at: Tokens, name: str) -> Tensor:
    """E[∇log π(y) Σ_t k_t]: what the policy gradient makes of −k as a reward, as a gradient to descend, (P, V)."""
    whole = masked_sum(at.logp, at.language.mask, dim=-1)
    return _gradient((at.probs * sums(at, name).detach() * whole).sum(), at)


def in_loss(at: Tokens, name: str) -> Tensor:
    """E[Σ_t ∇k_t]: what a step on the loss does, answers held fixed, (P, V). ``exact`` sums the vocabulary."""
    if name != "exact":
        return _gradient(at.probs @ sums(at, name), at)
    kl = categorical_kl(at.logits, at.language.ref_logits)[at.prefix]
    return _gradient(at.probs @ masked_sum(kl, at.language.mask, dim=-1), at)


def against(push: Tensor, truth: Tensor) -> Push:
    """Angle and length of a push beside the true gradient."""
    length = float(push.norm() / truth.norm())
    return Push(None if length < 1e-12 else float((push * truth).sum() / (push.norm() * truth.norm())), length)


def judged(seed: int, *, length: int = 4) -> dict[str, Push]:
    """Every choice on one language: ``k1 reward``, ``k2 reward``, … ``exact loss``."""
    at = tokens_of(seed, length=length)
    truth = _gradient(true_kl(at), at)
    found = {f"{name} reward": against(in_reward(at, name), truth) for name in ESTIMATORS}
    return found | {f"{name} loss": against(in_loss(at, name), truth) for name in (*ESTIMATORS, "exact")}


def _gradient(x: Tensor, at: Tokens) -> Tensor:
    (gradient,) = torch.autograd.grad(x, at.logits, retain_graph=True)
    return gradient
