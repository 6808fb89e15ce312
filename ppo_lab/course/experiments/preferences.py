"""Reward models from few or many pairs, clean or noisy, again and again: when is one good, and when was it lucky?

Answers are the shipped policy's, the rater is VADER with noise. Within a draw, fewer pairs are the first of more, and
labels that are wrong at a little noise stay wrong at more.
"""

from __future__ import annotations

import functools
from typing import Any

from ppo_lab import seeding
from ppo_lab.config import RLHFConfig, load_config
from ppo_lab.config.language import PolicyConfig
from ppo_lab.rlhf.corpus import Corpus, load_corpus
from ppo_lab.rlhf.models.build import build_policy, build_reward_model, load_policy, load_tokenizer
from ppo_lab.rlhf.reward_model import (
    Fit,
    Pairs,
    Quality,
    answers_of,
    expected_kappa,
    preference_pairs,
    relabelled,
    train_reward_model,
)
from ppo_lab.rlhf.tokens import word_tokenizer

PAIRS = (500, 1000, 2000, 4000)
NOISES = (0.0, 0.15, 0.3, 0.6)
HELD_OUT = 400
HUMAN = PolicyConfig(layers=1, width=32, heads=4, context=128)  # 16,000 words and few pairs: more would only memorise


def config(pairs: int, *overrides: str) -> RLHFConfig:
    """The demo's reward model, eight answers a prompt, labels without noise (it comes later)."""
    made = load_config("rlhf/demo", [
        "reward_model.answers=8", f"reward_model.held_out_pairs={HELD_OUT}", "reward_model.noise=0",
        "reward_model.epochs=4", f"reward_model.pairs={pairs}", *overrides,
    ])  # fmt: skip
    assert isinstance(made, RLHFConfig)
    return made


@functools.cache
def shipped() -> tuple[Any, Any, Corpus]:
    """The SFT policy, its tokenizer and its corpus."""
    path = "shipped/sft"
    return load_policy(path), load_tokenizer(path), load_corpus(config(PAIRS[-1]).corpus, seed=0)


@functools.lru_cache(maxsize=2)
def pool(draw: int, pairs: int = PAIRS[-1]) -> Pairs:
    """As many correctly labelled pairs as a draw ever uses, and the held-out ones."""
    policy, tokenizer, corpus = shipped()
    cfg = config(pairs)
    return preference_pairs(cfg, corpus, seed=seeding.key(draw, "pool"), answer=answers_of(cfg, policy, tokenizer))


def labelled(clean: Pairs, pairs: int, noise: float, draw: int) -> Pairs:
    """The first so many training pairs and all held-out ones, seen by a rater of this noise."""
    return Pairs(train=relabelled(clean.train[:pairs], noise=noise, seed=draw),
                 held_out=relabelled(clean.held_out, noise=noise, seed=seeding.key(draw, "held out")))  # fmt: skip


def fitted(draw: int, pairs: int, noise: float) -> tuple[Any, Quality]:
    """A reward model on the shipped policy's trunk, trained in the real trainer, and what it is worth."""
    policy, tokenizer, _ = shipped()
    model = build_reward_model(policy, seed=seeding.key(draw, "reward model"))
    data = labelled(pool(draw), pairs, noise, draw)
    return model, train_reward_model(model, tokenizer, data, config(pairs).reward_model, seed=draw)


def kappa(draw: int, noise: float) -> float:
    """κ of two raters of this noise on a draw's pairs."""
    import torch

    return expected_kappa(torch.tensor([pair.gap for pair in pool(draw).train]), noise=noise)


def from_people(seed: int, pairs: int) -> tuple[Quality, float]:
    """A small model trained from nothing on pairs of human-rated snippets, and VADER's accuracy on the same pairs.

    Needs the snippets: ``ppo-lab fetch human-reviews``.
    """
    from ppo_lab.rlhf.gold import vader

    cfg = config(pairs, "corpus.kind=human-reviews", "corpus.overlong=drop", "reward_model.labels=ratings",
                 "reward_model.min_gap=0.5", "reward_model.epochs=2")  # fmt: skip
    people = preference_pairs(
        cfg,
        Corpus(train_texts=[], train_prompts=[], held_out_prompts=[], held_out_texts=[]),
        seed=seeding.key(seed, "people"),
    )
    tokenizer = word_tokenizer([text for pair in people.train for text in pair.texts])
    model = build_reward_model(build_policy(HUMAN, tokenizer, seed), seed=seed)
    quality = train_reward_model(model, tokenizer, people, cfg.reward_model, seed=seed)
    nothing = [""] * len(people.held_out)
    better, worse = (vader(nothing, [pair.texts[side] for pair in people.held_out]) for side in (0, 1))
    return quality, float((better > worse).double().mean())


def row(draw: int, pairs: int, noise: float) -> dict[str, Any]:
    """One reward model as a row of a recording."""
    _, quality = fitted(draw, pairs, noise)
    return {"draw": draw, "pairs": pairs, "noise": noise, "kappa": round(kappa(draw, noise), 4),
            "accuracy": quality.accuracy, "clean": quality.clean.accuracy, "train": quality.train_accuracy,
            "margin": round(quality.labels.margin, 4), "ece": round(quality.labels.ece, 4),
            "bins": packed(quality.labels)}  # fmt: skip


def packed(fit: Fit) -> str:
    """The bins of a calibration plot as text: confidence/accuracy/count."""
    return " ".join(f"{b.confidence:.3f}/{b.accuracy:.3f}/{b.count}" for b in fit.bins)


def unpacked(text: str) -> list[tuple[float, float, int]]:
    """What `packed` wrote.

    >>> unpacked("0.550/0.600/20 0.950/1.000/7")
    [(0.55, 0.6, 20), (0.95, 1.0, 7)]
    """
    bins = [part.split("/") for part in text.split()]
    return [(float(sure), float(right), int(count)) for sure, right, count in bins]
