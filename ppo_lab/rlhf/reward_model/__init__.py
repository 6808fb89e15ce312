"""A reward model from pairs: who prefers what, training, how good it is on pairs it has not seen, asking it."""

from __future__ import annotations

from .pairs import Pair, Pairs, answers_of, preference_pairs
from .quality import Fit, Quality, measure, read_quality, require_quality
from .score import ScoreReader, score_texts, score_tokens
from .train import train_reward_model

__all__ = [
    "Fit",
    "Pair",
    "Pairs",
    "Quality",
    "ScoreReader",
    "answers_of",
    "measure",
    "preference_pairs",
    "read_quality",
    "require_quality",
    "score_texts",
    "score_tokens",
    "train_reward_model",
]
