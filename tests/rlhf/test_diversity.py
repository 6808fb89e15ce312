"""Diversity of answers at a fixed length."""

from __future__ import annotations

import math

import pytest
import torch

from ppo_lab.core.masking import length_mask
from ppo_lab.rlhf.diversity import diversity, ngram_entropy


def test_by_hand() -> None:
    tokens = torch.tensor([[1, 2, 3, 9], [1, 2, 2, 9], [5, 6, 0, 0]])
    mask = length_mask(torch.tensor([4, 4, 2]), steps=4)
    found = diversity(tokens, mask, length=3)  # bigrams 12 23 | 12 22 | 56
    assert found.distinct_2 == pytest.approx(4 / 5)
    assert found.entropy_2 == pytest.approx(-(2 / 5 * math.log(2 / 5) + 3 / 5 * math.log(1 / 5)), abs=1e-4)
    assert found.unique == 1 and found.repeated == pytest.approx(1 / 8)


def test_what_lies_beyond_the_length_or_the_end_does_not_count() -> None:
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, 5, (20, 6), generator=generator)
    mask = length_mask(torch.randint(2, 7, (20,), generator=generator), steps=6)
    other = torch.where(mask & (torch.arange(6) < 4), tokens, tokens + 100)
    assert diversity(tokens, mask, length=4) == diversity(other, mask, length=4)


def test_unique_answers_can_be_made_of_few_bigrams() -> None:
    """Why the share of unique answers says little: here it is 1 while four bigrams serve for all."""
    rows = torch.cartesian_prod(*[torch.arange(2)] * 6)
    found = diversity(rows, torch.ones_like(rows, dtype=torch.bool), length=6)
    assert found.unique == 1 and found.distinct_2 == pytest.approx(4 / (64 * 5), abs=1e-5)


def test_entropy_of_even_and_of_no_ngrams() -> None:
    tokens = torch.arange(8)[:, None]
    assert ngram_entropy(tokens, torch.ones_like(tokens, dtype=torch.bool), 1) == pytest.approx(math.log(8))
    assert ngram_entropy(tokens, torch.ones_like(tokens, dtype=torch.bool), 2) == 0.0


def test_shapes_are_checked() -> None:
    with pytest.raises(ValueError, match="length >= 2"):
        diversity(torch.zeros(2, 3), torch.ones(2, 3, dtype=torch.bool), length=1)
