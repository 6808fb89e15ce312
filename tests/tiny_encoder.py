"""A tiny real encoder in a folder, as reward models start from it."""

from __future__ import annotations

from typing import Any

from ppo_lab.rlhf.models.build import save_model


def save_encoder(folder: Any, tokenizer: Any) -> str:
    """A randomly initialised two-layer BERT for this tokenizer's vocabulary; returns the folder's path."""
    from transformers import BertConfig, BertModel

    config = BertConfig(vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
                        intermediate_size=32, max_position_embeddings=32)  # fmt: skip
    save_model(BertModel(config), tokenizer, folder)
    return str(folder)
