"""Imitation at many rates: the range test on a small policy, and what its advice is worth, seed by seed."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from ppo_lab import seeding
from ppo_lab.config.language import CorpusConfig, PolicyConfig, SFTConfig
from ppo_lab.core.schedules import periodic_restart, warmup_cosine
from ppo_lab.rlhf.corpus import Corpus, load_corpus
from ppo_lab.rlhf.models.build import build_policy
from ppo_lab.rlhf.sft import Imitation, token_loss
from ppo_lab.rlhf.tokens import encode_texts, pad_id, pad_rows, word_tokenizer
from ppo_lab.scale.range_test import RangeTest, range_test

LOW, HIGH = 1e-7, 1e-1
STEPS = 100
POLICY = PolicyConfig(layers=2, width=48, heads=4, context=32)
SFT = SFTConfig(steps=STEPS, batch=32)
Schedule = Callable[[int, int], float]  # step and total to a multiplier of the peak rate
SCHEDULES: dict[str, Schedule] = {
    "constant": lambda step, total: 1.0,
    "warm-up, cosine": lambda step, total: warmup_cosine(step, total=total, warmup=total / 10, start=0.01, floor=0.01),
    "restarts": lambda step, total: periodic_restart(step, period=total / 4, decay=0.5),
}


@functools.cache
def corpus() -> Corpus:
    """Four thousand film reviews."""
    return load_corpus(CorpusConfig(size=4000), seed=0)


def beginner(seed: int) -> tuple[Any, Any]:
    """An untrained policy that knows the words, and its tokenizer."""
    texts = corpus().train_texts + corpus().held_out_texts
    tokenizer = word_tokenizer(texts)
    return build_policy(POLICY, tokenizer, seed=seeding.key(seed, "policy")), tokenizer


def find_rate(seed: int, *, steps: int = STEPS) -> RangeTest:
    """The range test on a beginner: 1e-7 to 1e-1, a fresh batch each step."""
    model, tokenizer = beginner(seed)
    model.train()
    step = Imitation(model, tokenizer, corpus().train_texts, SFT.model_copy(update={"steps": steps}), seed=seed)
    return range_test(lambda rate: float(step(rate)), steps=steps, low=LOW, high=HIGH)


def trained(seed: int, rate: float, schedule: str, *, steps: int = STEPS) -> tuple[float, list[float]]:
    """Held-out loss, nats a token, after so many steps under a schedule of this peak, and the losses on the way."""
    model, tokenizer = beginner(seed)
    model.train()
    cfg = SFT.model_copy(update={"steps": steps})
    step, multiplier = Imitation(model, tokenizer, corpus().train_texts, cfg, seed=seed), SCHEDULES[schedule]
    losses = [float(step(rate * multiplier(i, steps))) for i in range(steps)]
    model.eval()
    rows = encode_texts(tokenizer, corpus().held_out_texts[:256], close=True)
    with torch.no_grad():
        return float(token_loss(model, *pad_rows(rows, pad_id(tokenizer), side="right"))), losses
