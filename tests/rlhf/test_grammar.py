"""The embedded language: what is written is read back, what is spoilt is not, and prompts leave the verdict open."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from ppo_lab.rlhf.corpus.grammar import RULES, expansions, is_grammatical, vocabulary, write
from ppo_lab.rlhf.gold import vader

TEXTS = [write(random.Random(seed)) for seed in range(1500)]


def count(symbol: str) -> int:
    """How many texts a symbol stands for."""
    rows = set(expansions(symbol))
    total = 0 if rows else 1
    for row in rows:
        ways = 1
        for part in row:
            ways *= count(part)
        total += ways
    return total


def test_vocabulary_has_97_words_in_plain_small_letters():
    assert len(vocabulary()) == 97
    assert all(word == "." or word.isalpha() and word.islower() for word in vocabulary())
    assert {word for text in TEXTS for word in text.split()} == set(vocabulary()), "every word is used"


def test_everything_written_is_read_back():
    assert all(map(is_grammatical, TEXTS))
    assert {len(text.split()) for text in TEXTS} == set(range(11, 17))
    assert len(set(TEXTS)) == len(TEXTS) and count("SENTENCE") > 10**8


@pytest.mark.parametrize("spoil", ["drop", "double", "swap", "cut"])
def test_spoilt_texts_are_refused(spoil):
    optional = {"very", "really", "quite", "slightly", "not", "never"}  # a sentence stands without them
    for i, text in enumerate(TEXTS):
        words, rng = text.split(), random.Random(i)
        at = rng.choice([k for k, word in enumerate(words[:-1]) if word not in optional])
        if spoil == "drop":
            broken = words[:at] + words[at + 1 :]
        elif spoil == "double":
            broken = [*words[: at + 1], *words[at:]]
        elif spoil == "swap":
            at = next(k for k, pair in enumerate(pairwise(words)) if pair[0] == "the" or pair[1] == ".")
            broken = [*words[:at], words[at + 1], words[at], *words[at + 2 :]]
        else:
            broken = words[: max(1, at)]
        assert not is_grammatical(" ".join(broken)), f"{text!r} spoilt to {' '.join(broken)!r}"


def test_agreement_and_unknown_words():
    right = "the songs of this film are lovely and the cast is long ."
    assert is_grammatical(right)
    for old, new in [
        ("are", "is"),
        ("cast is", "cast are"),
        ("lovely", "lovley"),
        (" .", ""),
        (" .", "."),
        ("of", "and"),
    ]:
        assert not is_grammatical(right.replace(old, new)), (old, new)
    assert not is_grammatical("") and not is_grammatical("SENTENCE")


@pytest.mark.parametrize("sentences", [1, 2, 5])
def test_sentences_are_counted_exactly(sentences):
    text = write(random.Random(3), sentences=sentences)
    assert text.count(".") == sentences
    assert [is_grammatical(text, sentences=n) for n in range(1, 7)] == [n == sentences for n in range(1, 7)]


def test_the_first_four_words_fix_no_sentiment_and_the_whole_does():
    heads = [" ".join(text.split()[:4]) for text in TEXTS]
    assert vader(heads, [""] * len(heads)).abs().max() == 0
    gold = vader([""] * len(TEXTS), TEXTS)
    assert abs(float(gold.mean())) < 0.06 and float(gold.std()) > 0.5  # four standard errors of the mean
    assert float((gold > 0.7).double().mean()) > 0.1


def test_words_of_taste_are_in_the_lexicon_and_no_others():
    from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer

    lexicon = SentimentIntensityAnalyzer().lexicon
    good, bad = {*RULES["GOOD"], *RULES["LIKED"]}, {*RULES["BAD"], *RULES["LOATHED"]}
    assert all(lexicon[word] > 1 for word in good) and all(lexicon[word] < -1 for word in bad)
    assert len(RULES["GOOD"]) == len(RULES["BAD"]) and not (set(vocabulary()) - good - bad) & set(lexicon)
