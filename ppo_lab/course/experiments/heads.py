"""Traps of value and policy heads, planted into the real module: who sees the future, what a new head forgets."""

from __future__ import annotations

import copy
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ppo_lab import faults, seeding
from ppo_lab.config import RLHFConfig, load_config
from ppo_lab.core.kl import categorical_kl
from ppo_lab.course.figures.ribbon import PROMPT, model, review
from ppo_lab.rlhf import Run
from ppo_lab.rlhf.models.actor_critic import ActorCritic, ValueHead
from ppo_lab.rlhf.models.traps import redraw_output

POOLS: dict[str, str | None] = {  # what a value head reads -> the fault that makes it
    "one state a token": None,
    "the mean over the answer": "value_pooled_mean",
    "an attention-weighted mean": "value_pooled_attention",
}


def _planted(fault: str | None) -> AbstractContextManager[None]:
    return nullcontext() if fault is None else faults.planted(fault)


@torch.no_grad()
def values(ids: tuple[int, ...], pool: str) -> Tensor:
    """What a random value head on the shipped policy says of an answer, (T,)."""
    policy = model("rotary (Llama)")
    head = ValueHead(policy.config.hidden_size, std=1.0, generator=seeding.generator("heads"))
    tokens = torch.tensor([ids])
    with _planted(POOLS[pool]):
        seen = ActorCritic(policy, head)(tokens, torch.ones_like(tokens).bool(), tokens[:, PROMPT:])
    return seen["value"][0].double()


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
    broken: Any = copy.deepcopy(policy)
    with faults.planted("policy_head_redrawn"):
        redraw_output(broken)
    ids = torch.tensor([review().ids])
    old, new = (m(input_ids=ids).logits[0, PROMPT - 1 : -1].double() for m in (policy, broken))
    p = new.log_softmax(-1)
    return {"kl": float(categorical_kl(old, new).mean()), "entropy": float(-(p.exp() * p).sum(-1).mean()),
            "most": float(torch.tensor(float(new.shape[-1])).log())}  # fmt: skip


def gap_to_the_sampler(fault: str | None, folder: Path, *, seed: int = 0) -> list[float]:
    """``sampler_mismatch`` of two steps of the shipped short run, small; nats."""
    given = ["steps=2", f"seed={seed}", "sampling.prompts=16", "reward.references=16", "evaluation.every=9",
             "corpus.size=400", "corpus.held_out=16", "evaluation.prompts=8"]  # fmt: skip
    with _planted(fault):
        run = Run(load_config("rlhf/start", given, world=RLHFConfig), folder=folder)
        return [step.sampler_mismatch for step in run]
