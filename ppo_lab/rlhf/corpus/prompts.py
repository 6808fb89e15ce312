"""Prompts as token ids: exactly one BOS, left-padded, short enough; checked before anything is trained."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ppo_lab.config import ConfigError
from ppo_lab.records import Prompts
from ppo_lab.rlhf.tokens import chat_text, encode_texts, pad_id, pad_rows, starts_with_bos

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def encode_prompts(
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[str],
    *,
    max_tokens: int,
    overlong: str,
    context: int,
    max_new_tokens: int,
    chat: bool = False,
    index: Tensor | None = None,
) -> Prompts:
    """Left-padded ids of every prompt, all as wide as the longest.

    The attention comes from lengths, never from ``id == pad``, so the pad token may be the EOS token. A prompt may have
    ``min(max_tokens, context - max_new_tokens)`` tokens, BOS included.

    Args:
        prompts: B strings; an empty one starts from BOS.
        max_tokens: ``corpus.max_prompt_tokens``.
        overlong: "error", "drop" (the record's ``index`` tells which rows stayed) or "truncate" (the end is kept, and
            BOS before it); the last two say in one warning how many.
        context: positions of the model.
        max_new_tokens: T, the response cap.
        chat: put each prompt through the chat template as the user's turn.
        index: ``(B,)`` corpus row of each prompt; 0 … B-1 if left out.

    Raises:
        ConfigError: an empty prompt without a BOS to start from, a prompt too long, none left, no room for any.
    """
    limit, bound = _limit(max_tokens, context, max_new_tokens)
    rows = encode_texts(tokenizer, [chat_text(tokenizer, p) for p in prompts] if chat else prompts)
    rows = [row or _start(tokenizer, i) for i, row in enumerate(rows)]
    index = torch.arange(len(rows)) if index is None else index
    long = [i for i, row in enumerate(rows) if len(row) > limit]
    if long and overlong == "error":
        raise ConfigError(
            f"corpus.max_prompt_tokens allows {limit} tokens ({bound}), got {len(rows[long[0]])} in prompt "
            f"{long[0]} ({len(long)} of {len(rows)} prompts are too long); raise it, or set corpus.overlong: truncate "
            "or drop"
        )
    if long:
        done = "dropped" if overlong == "drop" else "cut to their end"
        told = f"corpus.overlong: {len(long)} of {len(rows)} prompts longer than {limit} tokens ({bound}) {done}"
        warnings.warn(told, stacklevel=2)
    if overlong == "drop":
        kept = [i for i in range(len(rows)) if len(rows[i]) <= limit]
        rows, index = [rows[i] for i in kept], index[kept]
    else:
        rows = [_end(tokenizer, row, limit) for row in rows]
    if not rows:
        raise ConfigError(
            f"corpus.max_prompt_tokens must leave at least one prompt, got {limit} ({bound}) for {len(prompts)} "
            "prompts, all longer; raise it or set corpus.overlong: truncate"
        )
    tokens, attention = pad_rows(rows, pad_id(tokenizer), side="left")
    return Prompts(tokens=tokens, attention=attention, index=index)


def _limit(max_tokens: int, context: int, max_new_tokens: int) -> tuple[int, str]:
    room = context - max_new_tokens
    if room < 1:
        raise ConfigError(
            f"sampling.max_new_tokens must leave room for a prompt in a context of {context} tokens, got "
            f"{max_new_tokens}; use at most {context - 1}, or a model with more positions"
        )
    if max_tokens <= room:
        return max_tokens, f"corpus.max_prompt_tokens {max_tokens}"
    return room, f"context {context} less sampling.max_new_tokens {max_new_tokens}"


def _start(tokenizer: PreTrainedTokenizerBase, row: int) -> list[int]:
    if tokenizer.bos_token_id is None:
        raise ConfigError(
            f"corpus prompts must not be empty where the tokenizer has no BOS token to start from, got an empty prompt "
            f"in row {row}; remove it, or give the tokenizer a bos_token"
        )
    return [tokenizer.bos_token_id]


def _end(tokenizer: PreTrainedTokenizerBase, row: list[int], limit: int) -> list[int]:
    if len(row) <= limit:
        return row
    head = row[:1] if starts_with_bos(tokenizer, row) and limit > 1 else []
    return head + row[len(row) - limit + len(head) :]
