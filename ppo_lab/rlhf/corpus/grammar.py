"""A small language of movie reviews: a grammar as data, a writer that draws from it, a reader that tells what is in it.

Words in capitals stand for one of their expansions, all equally likely; one written twice is twice as likely. The first
four words of a sentence say nothing about taste, so a prompt made of them leaves every verdict open. Praise and blame
are words of VADER's lexicon, and "not", "never", "but" and "very" are words its rules know: a reward model has to learn
them. Subject and verb agree in number, which is what a model that has lost its grammar gets wrong first.
"""

from __future__ import annotations

import random
from functools import cache

RULES: dict[str, tuple[str, ...]] = {
    "SENTENCE": ("OPENING LINK CLAUSE .",),
    "OPENING": (
        "the ASPECT PREP THAT FILM IS QUALITY",
        "the ASPECT PREP THAT FILM IS QUALITY",
        "the ASPECTS PREP THAT FILM ARE QUALITY",
        "in THAT FILM the ASPECT IS QUALITY",
        "in THAT FILM WHO FELT the ASPECTS",
        "THAT FILM HAS a DEGREE THING",
        "to WHOM it IS a DEGREE FILM",
        "to WHOM it IS not a TASTE FILM",
        "WHO THOUGHT the ASPECT IS QUALITY",
        "WHO THOUGHT the ASPECTS ARE QUALITY",
    ),
    "CLAUSE": (
        "it IS QUALITY",
        "it HAS a TASTE THING",
        "the ASPECT IS VERDICT",
        "the ASPECTS ARE VERDICT",
        "WHO FELT it",
        "WHO FELT the ASPECT",
    ),
    "QUALITY": ("VERDICT", "VERDICT", "VERDICT", "HOW TASTE", "not very TASTE"),
    "VERDICT": ("TASTE", "TASTE", "TASTE", "NOT TASTE"),
    "DEGREE": ("TASTE", "TASTE", "HOW TASTE"),
    "TASTE": ("GOOD", "GOOD", "BAD", "BAD", "PLAIN"),
    "FELT": ("LIKED", "LIKED", "LOATHED", "LOATHED", "SAW"),
    "GOOD": tuple(
        "wonderful great lovely brilliant perfect superb delightful beautiful fantastic charming funny clever".split()
    ),
    "BAD": tuple("terrible horrible dreadful boring weak poor stupid pathetic dull bad ugly lame".split()),
    "PLAIN": ("long", "short", "quiet", "slow", "simple", "modern", "familiar", "plain"),
    "LIKED": ("loved", "liked", "enjoyed", "admired"),
    "LOATHED": ("hated", "disliked", "despised", "regretted"),
    "SAW": ("saw", "noticed", "remembered"),
    "HOW": ("very", "really", "quite", "slightly"),
    "NOT": ("not", "never"),
    "LINK": ("and", "and", "but", "while"),
    "ASPECT": ("THING", "THING", "STUFF"),
    "ASPECTS": ("songs", "scenes", "actors", "characters", "effects", "costumes", "colours"),
    "THING": ("cast", "story", "script", "plot", "opening", "ending", "score"),
    "STUFF": ("music", "pacing", "acting", "dialogue", "photography"),
    "FILM": ("film", "movie", "picture", "drama", "sequel"),
    "THAT": ("this", "that", "the"),
    "PREP": ("of", "in"),
    "WHO": ("i", "we"),
    "WHOM": ("me", "us"),
    "THOUGHT": ("thought", "think"),
    "IS": ("is", "was"),
    "ARE": ("are", "were"),
    "HAS": ("has", "had"),
}


@cache
def expansions(symbol: str) -> tuple[tuple[str, ...], ...]:
    """The ways to write ``symbol``, each a row of symbols and words, none for a plain word."""
    return tuple(tuple(alternative.split()) for alternative in RULES.get(symbol, ()))


def vocabulary() -> tuple[str, ...]:
    """Every word and mark of the language, sorted.

    >>> len(vocabulary())
    97
    """
    symbols = {symbol for rule in RULES for row in expansions(rule) for symbol in row}
    return tuple(sorted(symbols - set(RULES)))


def write(rng: random.Random, *, sentences: int = 1) -> str:
    """A text of so many sentences, drawn by ``rng``.

    >>> write(random.Random(1))
    'i think the songs were slightly boring and the songs were not weak .'
    """
    return " ".join(word for _ in range(sentences) for word in _expand("SENTENCE", rng))


def _expand(symbol: str, rng: random.Random) -> list[str]:
    rows = expansions(symbol)
    return [word for part in rng.choice(rows) for word in _expand(part, rng)] if rows else [symbol]


def is_grammatical(text: str, *, sentences: int = 1) -> bool:
    """Whether `write` could have written ``text`` in exactly so many sentences.

    >>> is_grammatical("the songs of this film are lovely and it is never dull .")
    True
    >>> is_grammatical("the songs of this film is lovely and it is never dull .")
    False
    """
    words, reached = tuple(text.split()), {0}
    for _ in range(sentences):
        reached = {end for start in reached for end in _ends("SENTENCE", words, start)}
    return len(words) in reached


def _ends(symbol: str, words: tuple[str, ...], start: int) -> set[int]:
    """Where a ``symbol`` that begins at ``start`` can end."""
    rows = expansions(symbol)
    if not rows:
        return {start + 1} if words[start : start + 1] == (symbol,) else set()
    found: set[int] = set()
    for row in dict.fromkeys(rows):
        reached = {start}
        for part in row:
            reached = {end for middle in reached for end in _ends(part, words, middle)}
        found |= reached
    return found
