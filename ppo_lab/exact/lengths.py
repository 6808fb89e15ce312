r"""Length, exactly: a language of praise, blame and a stop, where every remedy's best policy can be written out.

Words are good or bad, and a stop may come at any token; the cap cuts what is left. A text with g good and b bad words
is worth one of `WORTHS`. What is best under a leash on the *summed* KL is :math:`\pi_{ref}\, e^{R/\beta}`, whatever the
length; `scaled_optimum` says where PPO ends when a nat's price depends on the length instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from ppo_lab.core._checks import check_range, check_shapes

from .language import Language, make_language
from .optimum import optimal_logp, positive

GOOD, BAD, STOP = 0, 1, 2
WORTHS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {  # of g good and b bad words
    "mean": lambda g, b: (g - b) / (g + b).clamp(min=1),
    "praise": lambda g, b: g,
    "blame": lambda g, b: -b,
    "same": lambda g, b: torch.ones_like(g),
}


def mood_language(cap: int, worth: str, *, scale: float = 1.0, stop: float = 0.05) -> Language:
    """Texts of at most ``cap`` tokens; the reference writes good and bad words alike and stops with a fixed chance.

    Prefixes of one length with as many good words share a state: neither reward nor reference tells them apart.

    Args:
        cap: T ≤ 16, the stop token counted.
        worth: ``mean`` (length-neutral), ``praise`` (grows with length), ``blame`` (shrinks), ``same`` (1 for all: the
            best policy is the reference, so any change of length is an artefact), see `WORTHS`.
        scale: multiplies the reward. Higher: the same as a lower β.
        stop: chance of a stop at each token. Higher: shorter texts; 0.05 fills a cap of 12 to three quarters.

    >>> three = mood_language(3, "mean")
    >>> len(three), round(float(three.ref_logp.exp() @ three.mask.sum(-1).double()), 4)  # 15 texts, mean length
    (15, 2.8525)
    """
    if worth not in WORTHS:
        raise ValueError(f"worth must be one of {', '.join(WORTHS)}, got {worth!r}; try mean")
    check_range("stop", stop, 1e-9, 1 - 1e-9, fix="0.05 fills the cap, 0.5 stops after two tokens")
    base = make_language(0, tokens=3, length=cap, stop=True)
    good, bad = (((base.sequence == word) & base.mask).sum(-1).double() for word in (GOOD, BAD))
    share = torch.tensor([(1 - stop) / 2, (1 - stop) / 2, stop], dtype=torch.float64)
    return replace(base, ref_logits=share.log().expand(len(base.child), 3).clone(),
                   reward=scale * WORTHS[worth](good, bad), state=_states(base))  # fmt: skip


def _states(language: Language) -> Tensor:
    """A number for each pair (length, good words) of a prefix, (P,)."""
    length = torch.zeros(len(language.child), dtype=torch.long)
    good = torch.zeros_like(length)
    for n, rows in enumerate(language.level):
        length[rows] = n
        for word in (GOOD, BAD):
            after = language.child[rows, word]
            inner = after >= 0
            good[after[inner]] = good[rows][inner] + (word == GOOD)
    return length * (length + 1) // 2 + good


def scaled_optimum(ref_logp: Tensor, reward: Tensor, price: Tensor) -> Tensor:
    r"""Where policy gradients end when a nat costs :math:`b(y)` in text y: log π of each, (S,) -> (S,).

    The reward of a sample is :math:`R - b(y) \log(\pi/\pi_{ref})`, and its expected push is 0 where that is one number
    λ for all texts:

    .. math:: \pi(y) = \pi_{ref}(y)\, e^{(R(y) - \lambda) / b(y)}, \qquad \sum_y \pi(y) = 1.

    λ is found by bisection. With one price for all it is `optimal_logp`. With :math:`b = \beta L_{ref} / L` the texts
    better than λ gain the more the longer they are, and those worse lose the more. (The maximum of
    :math:`E[R - b \log(\pi/\pi_{ref})]` itself is another policy: the price would have to be differentiated too, as in
    Tang & Munos 2025, On a few pitfalls in KL divergence gradient estimation for RL.)

    Args:
        price: b > 0 of each text, (S,).

    >>> half = torch.tensor([0.5, 0.5], dtype=torch.float64).log()
    >>> scaled_optimum(half, torch.tensor([1.0, 0.0]), torch.tensor([1.0, 1.0])).exp()  # as optimal_logp
    tensor([0.7311, 0.2689], dtype=torch.float64)
    """
    check_shapes(ref_logp=ref_logp, reward=reward, price=price)
    ref_logp, reward, price = ref_logp.double(), reward.double(), price.double()
    positive(float(price.min()))
    low, high = float(reward.min()), float(reward.max())
    for _ in range(70):  # at λ = max R the sum is at most 1, at λ = min R at least 1
        middle = (low + high) / 2
        total = float((ref_logp + (reward - middle) / price).logsumexp(-1))
        low, high = (middle, high) if total > 0 else (low, middle)
    return (ref_logp + (reward - (low + high) / 2) / price).log_softmax(-1)


def best_logp(language: Language, *, beta: float, remedy: str = "none", reference_length: float = 1.0) -> Tensor:
    """What the objective under a remedy is best served by, log-prob of every text, (S,).

    ``spread`` and ``sentences`` leave each row's sum as it is, and ``λ 1`` the reward: their best policy is that of
    ``none``; a controller changes β alone.

    Args:
        remedy: ``none``, ``L_ref/L`` (the KL of a text times L_ref/L), ``score/L`` (the score times L_ref/L).
        reference_length: L_ref in tokens.
    """
    ratio = reference_length / language.mask.sum(-1).double()
    if remedy == "L_ref/L":
        return scaled_optimum(language.ref_logp, language.reward, positive(beta) * ratio)
    if remedy == "score/L":
        return optimal_logp(language.ref_logp, language.reward * ratio, beta=beta)
    if remedy not in (known := ("none", "controller", "spread", "sentences", "λ 1")):
        raise ValueError(f"remedy must be L_ref/L, score/L or one of {', '.join(known)}, got {remedy!r}")
    return optimal_logp(language.ref_logp, language.reward, beta=beta)


def mean_length(language: Language, logp: Tensor) -> float:
    """Expected tokens of a text, the stop counted."""
    return float(logp.exp() @ language.mask.sum(-1).double())
