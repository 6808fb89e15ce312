"""What a reader can check by eye: VADER's verdict on a text, and whether the text is still a sentence.

The embedded task calls VADER its gold reward: a human-rated lexicon with some forty rules (Hutto & Gilbert 2014). It
labels the pairs that the reward model learns from, and it tells whether the policy got better or only better liked.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from .corpus.grammar import is_grammatical
from .tokens import join


@cache
def _analyzer() -> Any:
    from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer

    return SentimentIntensityAnalyzer()


def vader(prompts: Sequence[str], responses: Sequence[str], **columns: Any) -> Tensor:
    r"""Compound sentiment of prompt and response together, ``(B,)`` in [-1, 1].

    :math:`s / \sqrt{s^2 + 15}`, s the sum of the word valences after rules for negation, degree and "but". Raising s
    further helps ever less: two words of praise give about 0.8.

    Source: Hutto & Gilbert 2014, VADER: A Parsimonious Rule-based Model for Sentiment Analysis of Social Media Text.

    >>> vader(["the cast", "the cast"], ["is lovely .", "is not lovely ."])
    tensor([ 0.5859, -0.4717])
    """
    texts = map(join, prompts, responses)
    return torch.tensor([_analyzer().polarity_scores(text)["compound"] for text in texts])


def grammatical_share(texts: Sequence[str], *, sentences: int | tuple[int, int] = 1) -> float:
    """Share of texts that the grammar could have written, in exactly so many sentences; 0 of 0 texts is NaN.

    Where the number is a range, a text may have been cut at the cap: what it finished is judged, however little.

    >>> grammatical_share(["the cast of this film is lovely and it is long .", "lovely lovely lovely"])
    0.5
    """
    if not texts:
        return float("nan")
    if isinstance(sentences, int):
        return sum(is_grammatical(text, sentences=sentences) for text in texts) / len(texts)
    whole = [text[: text.rfind(".") + 1] for text in texts]
    return sum(is_grammatical(text, sentences=max(1, text.count("."))) for text in whole) / len(texts)
