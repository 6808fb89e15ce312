"""Asking a reward model: one number a text, the same whatever the padding, the batch or the way in.

A causal model is read at the last valid token, found from lengths; transformers' own forward looks for the last
``id != pad``, which is the wrong token wherever EOS pads. Every text is closed by EOS (an encoder's by its own
separator), in training as in PPO, so a model never sees a text end in a way it was not trained on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ppo_lab import faults
from ppo_lab.core.masking import last_step
from ppo_lab.learners.plain import evaluating

from ..generate import positions
from ..models.build import head_layer, is_causal
from ..tokens import encode_texts, pad_id, pad_rows

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Ask = Callable[..., Tensor]


class ScoreReader(nn.Module):
    """A sequence-classification model as ``(tokens, attention) -> (B,)`` scores; what a learner keeps frozen."""

    def __init__(self, model: nn.Module):
        super().__init__()
        head_layer(model)  # refuses a model without a score
        self.model = model

    def forward(self, tokens: Tensor, attention: Tensor) -> Tensor:
        """Scores ``(B,)`` of rows ``(B, L)`` whose valid tokens stand together, padded on either side or both."""
        if not is_causal(self.model):
            return self.model(input_ids=tokens, attention_mask=attention.long()).logits[:, 0].float()
        trunk, score = self.model.base_model, self.model.score
        states = trunk(  # type: ignore[operator]
            input_ids=tokens, attention_mask=attention.long(), position_ids=positions(attention), use_cache=False
        ).last_hidden_state
        if faults.active("score_in_the_last_column"):
            return score(states[:, -1])[:, 0].float()  # type: ignore[operator]
        return score(states[last_step(attention)])[:, 0].float()  # type: ignore[operator]


@torch.no_grad()
def score_texts(
    ask: nn.Module | Ask, tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], *, batch: int = 64, calls: int = 0
) -> Tensor:
    """Scores of texts, read with the reward model's own tokenizer, in the order given; dropout off.

    Args:
        ask: a reward model, or what answers in its place: ``ask(tokens=(B, L), attention=(B, L)) -> (B,)``.
        tokenizer: the reward model's, not the policy's.
        texts: N whole texts, `ppo_lab.rlhf.tokens.join` of prompt and response.
        batch: texts in one forward; changes speed and memory, not scores.
        calls: ask at least so often, as a sharded model wants it of every rank; on a made-up text where there is none.

    Returns:
        ``(N,)`` float32 on the CPU.

    Raises:
        ValueError: an empty text, or one longer than the tokenizer's model allows.
    """
    rows = encode_texts(tokenizer, texts, close=True) if texts else []
    if rows:
        _check_lengths(rows, tokenizer.model_max_length)
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
    scores = torch.empty(len(rows))
    with _asking(ask) as read:
        for at in range(0, len(rows), batch):
            chosen = order[at : at + batch]
            tokens, attention = pad_rows([rows[i] for i in chosen], pad_id(tokenizer), side="right")
            scores[chosen] = read(tokens=tokens, attention=attention).detach().float().cpu()
        for _ in range(calls - -(-len(rows) // batch)):
            read(tokens=torch.zeros(1, 1, dtype=torch.long), attention=torch.ones(1, 1, dtype=torch.bool))
    return scores


@torch.no_grad()
def score_tokens(ask: nn.Module | Ask, tokens: Tensor, attention: Tensor, *, eos: int | None) -> Tensor:
    """Scores ``(B,)`` of rows of ids, for a reward model that shares the policy's tokenizer: nothing is decoded.

    Equal to `score_texts` of the decoded rows. A row that does not end in ``eos`` yet, cut at the cap, is closed.

    Args:
        tokens: ``(B, L)`` prompt and response; attention: ``(B, L)`` bool, its True together.
    """
    if eos is not None:
        column = attention.new_zeros(len(tokens), 1)
        tokens = torch.cat([tokens, tokens.new_full((len(tokens), 1), eos)], dim=-1)
        attention = torch.cat([attention, column], dim=-1)
        last = last_step(attention)
        after = last.roll(1, dims=-1) & (tokens[last] != eos)[:, None]
        tokens, attention = torch.where(after, eos, tokens), attention | after
    with _asking(ask) as read:
        return read(tokens=tokens, attention=attention)


@contextmanager
def _asking(ask: nn.Module | Ask) -> Iterator[Ask]:
    """A module is read with dropout off and its mode put back; anything else looks after itself."""
    if not isinstance(ask, nn.Module):
        yield ask
        return
    with evaluating(ask if isinstance(ask, ScoreReader) else ScoreReader(ask)) as reader:
        yield reader


def _check_lengths(rows: Sequence[Sequence[int]], limit: int) -> None:
    for i, row in enumerate(rows):
        if not row:
            raise ValueError(f"text {i} must have at least one token for the reward model, got none; drop empty texts")
        if len(row) > limit:
            raise ValueError(
                f"text {i} must have at most the {limit} tokens of the reward model, got {len(row)}; lower "
                "sampling.max_new_tokens or take a reward model with more positions"
            )
