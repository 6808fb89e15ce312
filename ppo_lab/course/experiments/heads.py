"""Traps of value and policy heads, measured on the shipped policy: who sees the future, what a new head forgets."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ppo_lab import seeding
from ppo_lab.core.kl import categorical_kl
from ppo_lab.course.figures.ribbon import PROMPT, model, review

POOLS = ("one value a token", "mean over the answer")


@torch.no_grad()
def states(ids: tuple[int, ...]) -> Tensor:
    """Hidden states of the shipped policy from which the answer's tokens are predicted, (T, D)."""
    policy = model("rotary (Llama)")
    out: Any = policy.base_model(input_ids=torch.tensor([ids]))
    return out.last_hidden_state[0, PROMPT - 1 : -1].double()


def values(ids: tuple[int, ...], pool: str) -> Tensor:
    """A random linear value head on them, (T,): token by token, or one number for the pooled answer."""
    h = states(ids)
    weight = torch.randn(h.shape[-1], generator=seeding.generator("heads"), dtype=torch.float64)
    if pool == POOLS[0]:
        return h @ weight
    return (h.mean(0) @ weight).expand(len(h))


def moved_by_the_future(pool: str) -> float:
    """Largest change of the values before the last two tokens when the last but one becomes another word."""
    ids, _, _ = review()
    other = (*ids[:-2], ids[PROMPT], ids[-1])
    before, after = (values(x, pool)[:-2] for x in (ids, other))
    return float((before - after).abs().max())


@torch.no_grad()
def forgotten_by_a_new_head() -> dict[str, float]:
    """KL(π‖new) a token where the output layer is drawn anew, and the entropy that is left, against ln V; nats."""
    policy = model("rotary (Llama)")
    h, weight = states(review().ids), policy.get_output_embeddings().weight
    fresh = 0.02 * torch.randn(weight.shape, generator=seeding.generator("heads", "new"), dtype=torch.float64)
    old, new = h @ weight.double().T, h @ fresh.T
    p = new.log_softmax(-1)
    return {"kl": float(categorical_kl(old, new).mean()), "entropy": float(-(p.exp() * p).sum(-1).mean()),
            "most": float(torch.tensor(float(weight.shape[0])).log())}  # fmt: skip
