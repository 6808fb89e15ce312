"""Tiny real transformers models and prompts for tests."""

from __future__ import annotations

import torch

from ppo_lab.records import Prompts

VOCABULARY, PAD, STOP = 23, 0, 1


def tiny(family: str = "llama", *, dropout: float = 0.0, seed: int = 0, vocabulary: int = VOCABULARY):
    """A randomly initialised two-layer causal model with sharp enough logits to be worth sampling from."""
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        if family == "llama":
            model = LlamaForCausalLM(LlamaConfig(
                vocab_size=vocabulary, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
                num_attention_heads=4, max_position_embeddings=96, initializer_range=0.3, pad_token_id=PAD,
                bos_token_id=2, eos_token_id=STOP, attention_dropout=dropout, tie_word_embeddings=False,
            ))  # fmt: skip
        else:
            model = GPT2LMHeadModel(GPT2Config(
                vocab_size=vocabulary, n_embd=32, n_layer=2, n_head=4, n_positions=96, initializer_range=0.3,
                resid_pdrop=dropout, embd_pdrop=dropout, attn_pdrop=dropout, bos_token_id=2, eos_token_id=STOP,
            ))  # fmt: skip
    return model.eval()


def prompts_of(rows: list[list[int]], *, width: int | None = None, blank: int | None = None) -> Prompts:
    """Left-padded prompts; row ``blank`` gets no token at all."""
    width = width or max(map(len, rows))
    tokens, attention = torch.zeros(len(rows), width, dtype=torch.long), torch.zeros(len(rows), width, dtype=torch.bool)
    for i, row in enumerate(rows):
        if i != blank:
            tokens[i, width - len(row) :] = torch.tensor(row)
            attention[i, width - len(row) :] = True
    return Prompts(tokens=tokens, attention=attention, index=torch.arange(len(rows)))
