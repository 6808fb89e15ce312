"""Tiny real reward models, encoders, corpora and pairs for tests."""

from __future__ import annotations

from typing import Any

import torch

from ppo_lab.config import RLHFConfig
from ppo_lab.config.base import build
from ppo_lab.config.language import PolicyConfig
from ppo_lab.rlhf.corpus import Corpus
from ppo_lab.rlhf.models.build import build_policy, build_reward_model, save_model
from ppo_lab.rlhf.reward_model import Pair
from ppo_lab.rlhf.tokens import word_tokenizer

WORDS = "the film is not very lovely great dull bad long and cast ."
TEXTS = [
    "the film is lovely .",
    "the cast is not very dull and the film is great .",
    "bad .",
    "not long and not dull .",
]


def judge(family: str = "llama", *, pad: str | None = "<pad>", dropout: float = 0.0, seed: int = 0):
    """An untrained reward model and its tokenizer."""
    tokenizer = word_tokenizer([WORDS], pad=pad)
    cfg = PolicyConfig(family=family, layers=2, width=16, heads=2, context=48, dropout=dropout)
    return build_reward_model(build_policy(cfg, tokenizer, seed), seed=seed), tokenizer


def save_encoder(folder: Any, tokenizer: Any) -> str:
    """A randomly initialised two-layer BERT for this tokenizer's vocabulary; returns the folder's path."""
    from transformers import BertConfig, BertModel

    config = BertConfig(vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
                        intermediate_size=32, max_position_embeddings=32)  # fmt: skip
    save_model(BertModel(config), tokenizer, folder)
    return str(folder)


def config(**reward_model) -> RLHFConfig:
    """A config with these settings of the reward model, small otherwise."""
    data = {
        "corpus": {"max_prompt_tokens": 8, "held_out": 4},
        "evaluation": {"prompts": 4},
        "reward_model": reward_model,
    }
    return build(RLHFConfig, data)


def corpus(n: int = 60) -> Corpus:
    """Half of ``n`` texts of random words to train on, half held out."""
    words, rng = WORDS.split(), torch.Generator().manual_seed(0)
    texts = [" ".join(words[i] for i in torch.randint(len(words), (6,), generator=rng)) for _ in range(n)]
    half = n // 2
    return Corpus(train_texts=texts[:half], train_prompts=["the film is", "the cast is", "the"] * 4,
                  held_out_prompts=["film", "cast is"] * 2, held_out_texts=texts[half:])  # fmt: skip


def learnable(n: int, seed: int) -> list[Pair]:
    """Praise is chosen over blame, whatever surrounds it."""
    rng, made = torch.Generator().manual_seed(seed), []
    for i in range(n):
        a, b, c, d = (int(k) for k in torch.randint(2, (4,), generator=rng))
        praise, blame = ["lovely", "great"][a], ["dull", "bad"][b]
        made.append(Pair(prompt=["the film", "the cast"][c], chosen=f"is {['very ', ''][d]}{praise} .",
                         rejected=f"is {blame} and long .", gap=1.0, group=i))  # fmt: skip
    return made
