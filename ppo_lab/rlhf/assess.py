"""The seam between the PPO update and language: how answers are looked at again, and what four models say of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ppo_lab import faults
from ppo_lab.core.importance import log_ratio
from ppo_lab.core.masking import masked_mean, masked_sum, select
from ppo_lab.learners import Learner
from ppo_lab.learners.collectives import most
from ppo_lab.records import Assessment, Responses, TextInputs, take


@dataclass(frozen=True)
class Lens:
    """What every forward over answers shares: the sampler's temperature and suppressed tokens, rows at a time."""

    temperature: float = 1.0
    suppress: Tensor | None = None
    batch: int | None = None
    exact_kl: bool = False

    @property
    def options(self) -> dict[str, Any]:
        """Keyword arguments of a forward."""
        return {"temperature": self.temperature, "suppress": self.suppress}


def inputs_of(responses: Responses) -> TextInputs:
    """What the trained module needs of an answer."""
    return TextInputs(tokens=responses.tokens, attention=responses.attention, response=responses.response)


def arguments(inputs: TextInputs) -> dict[str, Tensor]:
    """The record as keyword arguments of a forward."""
    return {"tokens": inputs.tokens, "attention": inputs.attention, "response": inputs.response}


def made_up(inputs: TextInputs) -> TextInputs:
    """One row of token 0, as wide as the others, for a rank that has none of its own; nobody reads what comes of it."""
    width, steps = inputs.tokens.shape[-1], inputs.response.shape[-1]
    device = inputs.tokens.device
    return TextInputs(
        tokens=torch.zeros(1, width, dtype=torch.long, device=device),
        attention=torch.ones(1, width, dtype=torch.bool, device=device),
        response=torch.zeros(1, steps, dtype=torch.long, device=device),
    )


def make_assess(lens: Lens) -> Callable[[Learner, TextInputs], Assessment]:
    """``assess(learner, inputs)`` for `ppo_update`: present log-probs, entropies, values of answers."""

    def assess(learner: Learner, inputs: TextInputs) -> Assessment:
        extra = {}
        if lens.exact_kl:
            extra["reference"] = learner.score("reference", **arguments(inputs), **lens.options, logits=True)
        seen = learner.forward(**arguments(inputs), **lens.options, **extra)
        return Assessment(
            logp=seen["logp"], entropy=seen["entropy"], value=seen["value"], ref_kl=seen.get("ref_kl")
        )

    return assess


@torch.no_grad()
def opinions(learner: Learner, responses: Responses, lens: Lens) -> dict[str, Tensor]:
    """Policy, critic and reference on answers, some rows at a time: ``logp, entropy, value, ref_logp``, each (B, T).

    Padding holds 0 in all of them. Every rank runs as many forwards as the one with most rows, on a made-up row where
    it has run out: under ZeRO-3 they share each layer.
    """
    inputs, parts, rows = inputs_of(responses), [], most(len(responses))
    for start in range(0, rows, lens.batch or max(rows, 1)):
        few = take(inputs, slice(start, start + (lens.batch or rows)))
        some = arguments(few if len(few.tokens) else made_up(few))
        seen = learner.forward(**some, **lens.options)
        seen["ref_logp"] = _reference(learner, some, lens)
        if len(few.tokens):
            parts.append(seen)
    if not parts:
        empty = torch.zeros(responses.mask.shape)
        return dict.fromkeys(("logp", "entropy", "value", "ref_logp"), empty)
    return {
        name: select(torch.cat([p[name] for p in parts]), responses.mask)
        for name in ("logp", "entropy", "value", "ref_logp")
    }


def _reference(learner: Learner, answers: dict[str, Tensor], lens: Lens) -> Tensor:
    """log π_ref of each token under the sampler's temperature, (B, T)."""
    options = lens.options
    if faults.active("reference_temperature_lost"):
        options["temperature"] = 1.0
    logp = learner.score("reference", **answers, **options)
    return logp.roll(1, -1) if faults.active("reference_shifted") else logp


def ref_kl_sum(logp: Tensor, ref_logp: Tensor, mask: Tensor) -> Tensor:
    """Σ_t (log π - log π_ref) per answer, nats: k1 of KL(π‖π_ref) from samples of π, ``(B,)``."""
    return masked_sum(log_ratio(logp, ref_logp, mask), mask, dim=-1)


def sampler_gap(sampler: Tensor, forward: Tensor, mask: Tensor) -> float:
    """Largest |log π_sampler - log π_forward| over valid tokens, nats."""
    return float(log_ratio(sampler, forward, mask).abs().max()) if mask.any() else 0.0


def distinct(tokens: Tensor, mask: Tensor, n: int) -> float:
    """Distinct n-grams over all n-grams in the answers (Li et al. 2016). 1: nothing is said twice.

    >>> distinct(torch.tensor([[5, 5, 6], [5, 5, 0]]), torch.tensor([[True] * 3, [True, True, False]]), 2)
    0.6666666666666666
    """
    grams, total = set(), 0
    for row, length in zip(tokens.tolist(), mask.sum(-1).tolist(), strict=True):
        found = [tuple(row[i : i + n]) for i in range(length - n + 1)]
        grams.update(found)
        total += len(found)
    return len(grams) / total if total else 0.0


def mean_length(mask: Tensor) -> float:
    """Mean number of response tokens, the stop token included."""
    return float(masked_mean(mask.sum(-1).double()))
