"""Exercises of notebook 12: best-of-n from a pool, distinct n-grams. (The ensemble is in `pessimist.py`.)"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb

import torch
from torch import Tensor

from ppo_lab.core.masking import length_mask
from ppo_lab.course.exercises.exercise import Case, Exercise, Wrong
from ppo_lab.course.exercises.toys import Toys
from ppo_lab.evaluate.best_of_n import best_of_n, best_of_n_weights
from ppo_lab.rlhf.assess import distinct

NOTEBOOK = "12_reward_hacking"
best = Wrong()


def _sorted(score: Tensor, value: Tensor) -> Tensor:
    return value[score.argsort()]


@best("That is the best of the whole pool: n = M. With fewer draws the best is often not among them.")
def best_of_all(score: Tensor, value: Tensor, *, n: int) -> Tensor:
    """Argmax."""
    return value[score.argmax()]


@best("The values are weighed in the order in which they came. Sort them by their score first.")
def not_sorted(score: Tensor, value: Tensor, *, n: int) -> Tensor:
    """No argsort."""
    return (best_of_n_weights(len(score), n) * value).sum()


@best("The values are sorted by themselves. It is the proxy's order that decides who is kept.")
def sorted_by_value(score: Tensor, value: Tensor, *, n: int) -> Tensor:
    """Chooses by gold."""
    return (best_of_n_weights(len(score), n) * value.sort().values).sum()


@best("This is the lowest of n: the weight must rise with the score.")
def worst_kept(score: Tensor, value: Tensor, *, n: int) -> Tensor:
    """Descending order."""
    return (best_of_n_weights(len(score), n) * value[score.argsort(descending=True)]).sum()


@best("You draw with replacement, (i/M)^n − ((i−1)/M)^n. The answers of the pool are different ones: count subsets.")
def with_replacement(score: Tensor, value: Tensor, *, n: int) -> Tensor:
    """Biased downwards."""
    level = torch.arange(len(score) + 1, dtype=torch.float64) / len(score)
    return ((level**n).diff() * _sorted(score, value)).sum()


@best("One off: the i-th lowest (i from 1) is the best of subsets whose other n − 1 come from the i − 1 below it.")
def one_off(score: Tensor, value: Tensor, *, n: int) -> Tensor:
    """comb(i, n) in place of comb(i − 1, n − 1)."""
    weight = torch.tensor([comb(i, n) for i in range(1, len(score) + 1)], dtype=torch.float64)
    return (weight / weight.sum() * _sorted(score, value)).sum()


@best("You take the first n of the pool. All n-subsets count alike, and using all of them costs nothing.")
def first_n(score: Tensor, value: Tensor, *, n: int) -> Tensor:
    """One subset."""
    return value[score[:n].argmax()]


@best("The weights do not add up to 1: divide by the number of subsets, M over n.")
def not_divided(score: Tensor, value: Tensor, *, n: int) -> Tensor:
    """Counts, not shares."""
    return best_of_n(score, value, n=n) * comb(len(score), n)


@best("This is the mean score of the kept answer. You were asked for its value.")
def score_for_value(score: Tensor, value: Tensor, *, n: int) -> Tensor:
    """Proxy returned."""
    return best_of_n(score, score, n=n)


def best_cases(seed: int) -> Sequence[Case]:
    """A pool of five answers, one drawn; and seven with three drawn. No two scores are equal."""
    toys = Toys("best_of_n", seed)
    made = []
    for name, size, n in (("one of five", 5, 1), ("three of seven", 7, 3)):
        ranks = toys.normal(size).argsort()
        if bool((ranks.argsort()[:n].max() == size - 1) | (ranks.diff() > 0).all()):
            ranks = torch.arange(size).flip(0).roll(-n)  # the best of the first n is not the best of all
        score = ranks.argsort().double() + 0.3 * toys.normal(size).sigmoid()
        made.append(Case(name, {"score": score, "value": toys.away(size) + 0.1 * score.flip(0)}, {"n": n}))
    return made


BEST_OF_N = Exercise(
    name="best_of_n",
    notebook=NOTEBOOK,
    minutes=12,
    lines=4,
    task="A pool of M answers has a proxy score and a value (gold) each, both (M,); no two scores are equal. Draw n of "
    "them and keep the one with the highest score: return its expected value, exactly, over all n-subsets. The i-th "
    "lowest score is the highest in comb(i − 1, n − 1) of the comb(M, n) subsets.",
    answer="""\
def best_of_n(score, value, *, n):
    from math import comb
    size = len(score)
    weight = torch.tensor([comb(i, n - 1) / comb(size, n) for i in range(size)])
    return (weight * value[score.argsort()]).sum()
""",
    reference=best_of_n,
    parts=(best_of_n_weights,),
    cases=best_cases,
    hints=(
        "Sort by score. In how many subsets is the lowest of all the best? And the highest?",
        "The i-th lowest wins with n − 1 companions chosen among the i − 1 below it.",
        "weight[i] = comb(i, n − 1) / comb(M, n) for i = 0 … M − 1; value[score.argsort()] is in that order.",
    ),
    mutants=tuple(best),
)

# --- distinct-n ------------------------------------------------------------------------------------------------------

repeating = Wrong()


def distinct_n(tokens: Tensor, mask: Tensor, *, n: int) -> float:
    """Different n-grams over all n-grams of the answers."""
    return distinct(tokens, mask, n)


def _grams(tokens: Tensor, mask: Tensor, n: int) -> list[list[tuple[int, ...]]]:
    """The n-grams of each row."""
    rows = [row[keep].tolist() for row, keep in zip(tokens, mask, strict=True)]
    return [[tuple(row[i : i + n]) for i in range(len(row) - n + 1)] for row in rows]


@repeating("Padding makes n-grams too. Cut each answer at its mask before you count.")
def padding_counts(tokens: Tensor, mask: Tensor, *, n: int) -> float:
    """No mask."""
    return distinct(tokens, torch.ones_like(mask), n)


@repeating("You count each answer for itself and average. What all answers share goes unnoticed: collapse hides.")
def a_row_at_a_time(tokens: Tensor, mask: Tensor, *, n: int) -> float:
    """Mean of the rows' own."""
    shares = [len({*row}) / len(row) for row in _grams(tokens, mask, n) if row]
    return sum(shares) / len(shares)


@repeating("N-grams run across the end of one answer into the next. Nobody wrote those.")
def across_answers(tokens: Tensor, mask: Tensor, *, n: int) -> float:
    """One long row."""
    whole = tokens[mask][None]
    return distinct(whole, torch.ones_like(whole, dtype=torch.bool), n)


@repeating("You count single tokens whatever n is. A policy can use every word and still write one sentence.")
def single_tokens(tokens: Tensor, mask: Tensor, *, n: int) -> float:
    """n = 1."""
    return distinct(tokens, mask, 1)


@repeating("You divide by the number of tokens. An answer of L tokens has L − n + 1 n-grams.")
def over_tokens(tokens: Tensor, mask: Tensor, *, n: int) -> float:
    """Denominator off."""
    grams = [gram for row in _grams(tokens, mask, n) for gram in row]
    return len({*grams}) / int(mask.sum())


@repeating("The last n-gram of each answer is missing: there are L − n + 1 of them.")
def last_one_missing(tokens: Tensor, mask: Tensor, *, n: int) -> float:
    """range(L − n)."""
    grams = [gram for row in _grams(tokens, mask, n) for gram in row[:-1]]
    return len({*grams}) / len(grams)


@repeating("You cut answers into blocks of n. N-grams overlap: one starts at every token.")
def blocks(tokens: Tensor, mask: Tensor, *, n: int) -> float:
    """Stride n."""
    grams = [gram for row in _grams(tokens, mask, n) for gram in row[::n]]
    return len({*grams}) / len(grams)


@repeating("That is the share of n-grams that come once. Distinct-n counts every kind once, also those said often.")
def only_once(tokens: Tensor, mask: Tensor, *, n: int) -> float:
    """Hapaxes."""
    grams = [gram for row in _grams(tokens, mask, n) for gram in row]
    return sum(grams.count(gram) == 1 for gram in grams) / len(grams)


@repeating("That is the share of whole answers that differ. Answers can all differ and be made of the same few pieces.")
def whole_answers(tokens: Tensor, mask: Tensor, *, n: int) -> float:
    """Unique rows."""
    rows = {tuple(row[keep].tolist()) for row, keep in zip(tokens, mask, strict=True)}
    return len(rows) / len(tokens)


def distinct_cases(seed: int) -> Sequence[Case]:
    """Four answers that share pieces, with nonsense in the padding."""
    name = Toys("distinct_n", seed).normal(60).argsort()[:8].tolist()  # eight different tokens
    a, b, c, d, e, f, g, h = name
    rows = [[a, b, c, a, b, h, g], [a, b, d, e, a, b, d], [c, a, b, f, e, h, a], [d, e, d, e, d, f, c]]
    tokens, mask = torch.tensor(rows), length_mask(torch.tensor([5, 7, 4, 6]), steps=7)
    given = {"tokens": torch.where(mask, tokens, tokens + 100), "mask": mask}
    return [Case(f"n = {n}", dict(given), {"n": n}) for n in (2, 3)]


DISTINCT_N = Exercise(
    name="distinct_n",
    notebook=NOTEBOOK,
    minutes=8,
    lines=6,
    task="Return distinct-n of all answers together, one number: different n-grams over all n-grams. tokens (B, T) "
    "ids, mask (B, T) True on the answer's tokens; n-grams stay inside one answer.",
    answer="""\
def distinct_n(tokens, mask, *, n):
    grams = []
    for row, keep in zip(tokens, mask):
        said = row[keep].tolist()
        for i in range(len(said) - n + 1):
            grams.append(tuple(said[i:i + n]))
    return len(set(grams)) / len(grams)
""",
    reference=distinct_n,
    parts=(distinct,),
    cases=distinct_cases,
    hints=(
        "Collect the n-grams of all answers in one list, then compare its length with that of a set.",
        "row[keep].tolist() gives the tokens that count; an n-gram starts at each of the first L − n + 1.",
        "Lists cannot stand in a set: make tuples.",
    ),
    mutants=tuple(repeating),
)
