"""Review snippets that people rated: real text for prompts, real preferences for a reward model.

10,605 sentences about movies and 3,708 about products, each with the mean of some twenty people's ratings from -4
(extremely negative) to +4 (extremely positive); those of the same words are merged, which leaves 14,290. The ratings
are Hutto & Gilbert's (2014, VADER: A Parsimonious Rule-based Model for Sentiment Analysis of Social Media Text,
ICWSM-14), on text gathered by Pang & Lee 2004 and Hu & Liu 2004. `ppo_lab.rlhf.fetch` writes ``reviews.jsonl``.

A snippet is held out or not by its own words alone (`held_out`), so the split is the same for prompts and for pairs,
in every run and on every machine. The movie file has lost its hyphens ("well made"): what is gone cannot be put back.
"""

from __future__ import annotations

import html
import json
import random
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from itertools import accumulate, combinations, islice
from pathlib import Path

HELD_OUT = 0.1  # share of snippets nobody trains on
LOWEST, HIGHEST = -4.0, 4.0

# What the files did to the text, and what undoes it; in this order.
REPAIRS = [
    (r"[‘’]|`", "'"),
    (r"''|[“”]", '"'),
    (r"\s[–—]\s|\s?--\s?|(?<=\S)\s{3,}(?=\S)", " - "),  # the movie file left three spaces or more for a dash
    (r"\s+", " "),
    (r"^(?:[\s\-*)\]:>+]|\.{2,}|\.\s)+|^\(?\d{1,2}[.)]\s", ""),  # bullets, list numbers, what was cut before
    (r"^\(([\w']+)\)(?=\s)", r"\1"),  # an editor's first word: "(Shyamalan) turns"
    (r"\((\w)\)(?=\w)", r"\1"),  # an editor's capital: "(E)ventually"
    (r'(?<!\S)"\s([^"]*[^"\s])\s"(?!\w)', r'"\1"'),  # '" loud "'
    (r"(?<!\S)'\s([^']*[^'\s])\s'(?!\w)", r"'\1'"),
    (r"\*\s(\w+)\s\*", r"*\1*"),
    (r"\s?\.{3,}\s?(?=[\w\"'(])", "... "),
    (r"\s?\.{3,}", "..."),
    (r"\s+([,.;:!?)])", r"\1"),
    (r"([,;])\1+", r"\1"),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """One snippet. ``rating`` is a mean over raters, in [-4, 4]; ``source`` is "movie" or "product"."""

    id: str
    source: str
    rating: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewPair:
    """People rated ``chosen`` above ``rejected`` by ``gap`` points; both are whole snippets of one source.

    Pairs of one ``group`` compare snippets that were drawn together, so they share texts.
    """

    chosen: str
    rejected: str
    gap: float
    source: str
    group: int


Drawn = tuple[int, Review, Review]  # group, better, worse


def clean(text: str) -> str:
    """The snippet as its writer would have typed it: entities, quotes, dashes, bullets and stray spaces put right.

    Cleaning twice changes nothing.

    >>> clean("(E)ventually , the plot    putting ''Pauline &amp; Paulette'' aside ... drags.")
    'Eventually, the plot - putting "Pauline & Paulette" aside... drags.'
    >>> clean(' - the " loud " mode is * very * good !')
    'the "loud" mode is *very* good!'
    """
    text = html.unescape(html.unescape(text)).strip()  # some entities were escaped twice
    for pattern, repair in REPAIRS:
        text = re.sub(pattern, repair, text)
    return text.strip()


def words_of(text: str) -> tuple[str, ...]:
    """The words alone, in small letters: what makes two snippets the same."""
    return tuple(re.findall(r"\w+", text.casefold()))


def held_out(text: str) -> bool:
    """Whether nobody may train on this snippet: its words' hash, as a number in [0, 1), is below `HELD_OUT`.

    >>> held_out("A gem.") == held_out("a  gem !")
    True
    """
    return _order(words_of(text)) < HELD_OUT


def _order(words: Sequence[str]) -> float:
    return int.from_bytes(sha256(" ".join(words).encode()).digest()[:6], "big") / 2**48


def parse_ratings(text: str, source: str) -> list[Review]:
    """Rows of one of the published files: ``id <tab> mean rating <tab> snippet`` under a line of headings.

    Snippets of the same words become one, at the mean of their ratings; snippets without a word are dropped.
    """
    same: dict[tuple[str, ...], list[Review]] = {}
    for number, line in enumerate(text.removeprefix("\ufeff").strip("\r\n").split("\n"), start=1):
        cells = line.rstrip("\r").split("\t")
        if len(cells) != 3:
            raise ValueError(f"{source} ratings, line {number}: expected id, rating and text, got {len(cells)} cells")
        if number == 1:
            continue
        review = Review(id=f"{source}-{cells[0]}", source=source, rating=float(cells[1]), text=clean(cells[2]))
        if words := words_of(review.text):
            same.setdefault(words, []).append(review)
    return [_merge(group) for group in same.values()]


def _merge(group: list[Review]) -> Review:
    first, mean = group[0], sum(review.rating for review in group) / len(group)
    return Review(id=first.id, source=first.source, rating=round(mean, 6), text=first.text)


def save_reviews(reviews: Iterable[Review], path: Path) -> None:
    """One JSON object a line: ``id, source, rating, text``."""
    lines = (json.dumps(asdict(review), ensure_ascii=False) + "\n" for review in reviews)
    path.write_text("".join(lines), encoding="utf-8", newline="\n")


def load_reviews(folder: Path | str, *, source: str | None = None) -> list[Review]:
    """The snippets in ``folder/reviews.jsonl``, of one source ("movie", "product") or of all.

    ``load_reviews(fetch("human-reviews"))``; a file of your own in the same form will do, with sources of its own.
    Raises `ValueError` naming the line that is no such object, or whose rating lies outside [-4, 4].
    """
    path = Path(folder) / "reviews.jsonl"
    if not path.is_file():
        raise ValueError(f"{path} does not exist; ppo-lab fetch human-reviews writes one")
    with path.open(encoding="utf-8") as lines:
        reviews = [_review(line, f"{path}, line {number}") for number, line in enumerate(lines, start=1)]
    found = sorted({review.source for review in reviews})
    if source not in (None, *found):
        raise ValueError(f"source must be one of {', '.join(found)}, or None for all; got {source!r}")
    return [review for review in reviews if source in (None, review.source)]


def _review(line: str, where: str) -> Review:
    try:
        review = Review(**json.loads(line))
        fits = LOWEST <= review.rating <= HIGHEST and bool(words_of(review.text))
    except (TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"{where}: expected an object of id, source, rating and text; {error}") from error
    if not fits:
        rule = f"text needs a word and rating must lie in [{LOWEST:g}, {HIGHEST:g}]"
        raise ValueError(f"{where}: {rule}; got {line.strip()}")
    return review


def select_split(reviews: Iterable[Review], split: str) -> list[Review]:
    """The snippets of ``split``: "train" or "held_out"."""
    if split not in ("train", "held_out"):
        raise ValueError(f"split must be train or held_out, got {split!r}")
    return [review for review in reviews if held_out(review.text) == (split == "held_out")]


def review_prompts(reviews: Iterable[Review], *, words: int = 5, split: str = "train") -> list[str]:
    """The first ``words`` words of every snippet that goes on after them, each prompt once, in a fixed mixed order.

    More words leave less to say; fewer say less about what. Prompts inside an open quotation or bracket, or at the end
    of a sentence, are left out. A prompt that also begins a held-out snippet is kept from training.
    """
    if words < 1:
        raise ValueError(f"words must be at least 1, got {words}")
    reviews = list(reviews)
    sides = {name: _prompts(select_split(reviews, name), words) for name in ("train", "held_out")}
    if split not in sides:
        raise ValueError(f"split must be train or held_out, got {split!r}")
    taken = sides["held_out"] if split == "train" else {}
    found = [key for key in sides[split] if key not in taken]
    return [sides[split][key] for key in sorted(found, key=_order)]


def _prompts(reviews: Iterable[Review], words: int) -> dict[tuple[str, ...], str]:
    found: dict[tuple[str, ...], str] = {}
    for review in reviews:
        pieces = review.text.split()
        prompt = " ".join(pieces[:words])
        open_mark = prompt.count('"') % 2 or prompt.count("(") != prompt.count(")")
        if len(pieces) >= words + 2 and not open_mark and not re.search(r"[.!?]$|[.!?]\s|:$", prompt):
            found.setdefault(words_of(prompt), prompt)
    return found


def review_pairs(
    reviews: Iterable[Review], n: int, *, seed: int, min_gap: float = 1.0, split: str = "train", group_size: int = 2
) -> list[ReviewPair]:
    """``n`` pairs of snippets of one source whose ratings differ by ``min_gap`` or more.

    With groups of two, ``n`` different pairs drawn evenly from all there are. With larger groups, as many snippets are
    drawn together and each is compared with each (Ouyang et al. 2022, section 3.5): a model that reads a text once for
    all its pairs learns more a second, though pairs that share texts tell less each than as many others would.

    A larger gap makes labels surer and pairs easier, and teaches less about close calls: measure accuracy at the gap
    you care for. One rater agrees with the mean on 0.90 of the pairs half a point or more apart, on 0.94 at one point,
    0.98 at two; VADER on 0.69. Train and held-out pairs share no snippet.
    """
    if not min_gap > 0:
        raise ValueError(f"min_gap must be above 0, or a pair has no better half; got {min_gap}")
    if group_size < 2:
        raise ValueError(f"group_size must be at least 2, got {group_size}")
    ladders = _ladders(select_split(reviews, split))
    below = [bisect_right(ladder, row.rating - min_gap, key=_rating) for ladder in ladders for row in ladder]
    if not 0 < n <= sum(below):
        raise ValueError(f"n must be in 1 to {sum(below)}, the {split} pairs at least {min_gap:g} apart; got {n}")
    rng = random.Random(f"{split} pairs {seed}")
    if group_size == 2:
        found = _even_pairs(ladders, below, rng.sample(range(sum(below)), n))
    else:
        found = islice(_grouped_pairs(ladders, min_gap, group_size, rng), n)
    return [
        ReviewPair(chosen=a.text, rejected=b.text, gap=a.rating - b.rating, source=a.source, group=group)
        for group, a, b in found
    ]


def _even_pairs(ladders: list[list[Review]], below: list[int], numbers: Iterable[int]) -> Iterator[Drawn]:
    """The pairs of these numbers, when the i-th snippet beats the first below[i] of its ladder and all are counted."""
    better = [(row, ladder) for ladder in ladders for row in ladder]
    ends = [0, *accumulate(below)]
    for group, number in enumerate(numbers):
        i = bisect_right(ends, number) - 1
        chosen, ladder = better[i]
        yield group, chosen, ladder[number - ends[i]]


def _grouped_pairs(ladders: list[list[Review]], min_gap: float, size: int, rng: random.Random) -> Iterator[Drawn]:
    """All pairs of groups, without end; every snippet is dealt once before any is dealt again."""
    group = 0
    while True:
        mixed = [rng.sample(ladder, len(ladder)) for ladder in ladders]
        dealt = [rows[at : at + size] for rows in mixed for at in range(0, len(rows), size)]
        for rows in rng.sample(dealt, len(dealt)):
            for a, b in combinations(sorted(rows, key=_rating, reverse=True), 2):
                if a.rating - min_gap >= b.rating:
                    yield group, a, b
            group += 1


def _ladders(reviews: Sequence[Review]) -> list[list[Review]]:
    """The snippets of each source, worst first."""
    sources = sorted({review.source for review in reviews})
    return [sorted((r for r in reviews if r.source == source), key=_rating) for source in sources]


def _rating(review: Review) -> float:
    return review.rating
