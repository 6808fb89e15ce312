r"""Three rewards that differ in one thing: what another sentence is worth to them.

The *mood* of a sentence is VADER's compound sentiment, in [-1, 1]. A review of n sentences with moods m is worth

- `mean_mood`: the mean of m. Another sentence like the others changes nothing: length-neutral.
- `praise`: the sum of what is positive in m. Another sentence can only add: it grows with length.
- `blame`: the sum of what is negative in m. Another sentence can only cost: it shrinks with length.

All three are callables for ``reward.sources`` (kind ``callable``, path ``ppo_lab.rlhf.moods:praise``). The prompt
belongs to the first sentence; one that the cap cut off counts as it stands.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from .gold import vader
from .tokens import join


def sentences_of(text: str) -> list[str]:
    """The sentences of a text, each with its mark; what is left at the end is one too.

    >>> sentences_of("the cast is lovely . the plot is dull")
    ['the cast is lovely .', 'the plot is dull']
    """
    return [part.strip() for part in re.findall(r"[^.!?]*[.!?]+|[^.!?]+$", text) if part.strip()]


@lru_cache(maxsize=100_000)
def mood(sentence: str) -> float:
    """Sentiment of one sentence, in [-1, 1]; 0 says nothing."""
    return float(vader([""], [sentence])[0])


def moods(prompt: str, response: str) -> list[float]:
    """The mood of every sentence of prompt and response together.

    >>> [round(m, 2) for m in moods("the cast", "is lovely . the plot is dull . it is short .")]
    [0.59, -0.4, 0.0]
    """
    return [mood(sentence) for sentence in sentences_of(join(prompt, response))]


def mean_mood(prompts: Sequence[str], responses: Sequence[str], **columns: Any) -> Tensor:
    r"""Length-neutral: :math:`\frac1n \sum_i m_i`, ``(B,)`` in [-1, 1]; 0 of no sentence.

    >>> mean_mood(["the cast"], ["is lovely . the plot is dull . it is short ."])
    tensor([0.0613])
    """
    return _each(prompts, responses, lambda m: sum(m) / max(len(m), 1))


def praise(prompts: Sequence[str], responses: Sequence[str], **columns: Any) -> Tensor:
    r"""Grows with length: :math:`\sum_i \max(m_i, 0)`, ``(B,)`` ≥ 0.

    >>> praise(["the cast"], ["is lovely . the plot is dull . it is short ."])
    tensor([0.5859])
    """
    return _each(prompts, responses, lambda m: sum(max(x, 0.0) for x in m))


def blame(prompts: Sequence[str], responses: Sequence[str], **columns: Any) -> Tensor:
    r"""Shrinks with length: :math:`\sum_i \min(m_i, 0)`, ``(B,)`` ≤ 0.

    >>> blame(["the cast"], ["is lovely . the plot is dull . it is short ."])
    tensor([-0.4019])
    """
    return _each(prompts, responses, lambda m: sum(min(x, 0.0) for x in m))


def _each(prompts: Sequence[str], responses: Sequence[str], worth: Any) -> Tensor:
    return torch.tensor([float(worth(moods(p, r))) for p, r in zip(prompts, responses, strict=True)])
