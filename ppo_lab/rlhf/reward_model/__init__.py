"""A reward model from pairs: who prefers what, training, how good it is on pairs it has not seen, asking it."""

from __future__ import annotations

from .labels import LabelCheck, check_labels, cohens_kappa, expected_kappa, in_random_order, relabelled
from .pairs import Pair, Pairs, answers_of, preference_pairs
from .quality import Fit, Quality, measure, read_quality, require_quality
from .score import ScoreReader, score_texts, score_tokens
from .shift import Matched, compared, matched
from .train import train_reward_model

__all__ = [
    "Fit",
    "LabelCheck",
    "Matched",
    "Pair",
    "Pairs",
    "Quality",
    "ScoreReader",
    "answers_of",
    "check_labels",
    "cohens_kappa",
    "compared",
    "expected_kappa",
    "in_random_order",
    "matched",
    "measure",
    "preference_pairs",
    "read_quality",
    "relabelled",
    "require_quality",
    "score_texts",
    "score_tokens",
    "train_reward_model",
]
