"""Human-rated snippets: parsing, cleaning, the split, prompts, pairs."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from ppo_lab.rlhf.fetch import FetchError, locate
from ppo_lab.rlhf.reviews import (
    HELD_OUT,
    Review,
    clean,
    held_out,
    load_reviews,
    parse_ratings,
    review_pairs,
    review_prompts,
    save_reviews,
    select_split,
    words_of,
)

NOUNS = "film plot cast score camera ending hero script phone battery screen zoom manual lens menu case".split()
VERBS = "drags shines works fails surprises bores delights breaks lasts glows".split()


def invented(n: int, seed: int = 0) -> list[Review]:
    """Snippets of two sources with ratings on a grid of tenths."""
    rng = random.Random(seed)
    rows = []
    for i in range(n):
        text = f"The {rng.choice(NOUNS)} number {i} {rng.choice(VERBS)} from the very first day to the last."
        rows.append(Review(id=f"r{i}", source=("movie", "product")[i % 2], rating=rng.randint(-40, 40) / 10, text=text))
    return rows


@pytest.mark.parametrize(
    ("raw", "right"),
    [
        ("''My god!'' Yes, you are.", '"My god!" Yes, you are.'),
        ("It lasts for days   this just felt like it did.", "It lasts for days - this just felt like it did."),
        ("red chair's explorer is great &amp;amp; cheap", "red chair's explorer is great & cheap"),
        ("(Shyamalan) turns the genre", "Shyamalan turns the genre"),
        ("(I)f you've seen (t)hat", "If you've seen that"),
        (" - the unit is easy.", "the unit is easy."),
        ("3) ability to play most discs", "ability to play most discs"),
        ("401(k) statement", "401(k) statement"),
        ("after \" loading \" it shows \" no disk \".", 'after "loading" it shows "no disk".'),
        ("my \" mp3 player \" or \" phone \" died", 'my "mp3 player" or "phone" died'),
        ("all the lil ' gadgets are on the sides", "all the lil ' gadgets are on the sides"),
        ("if you * are * ripping", "if you *are* ripping"),
        ("Um.....isn't that the plot ?", "Um... isn't that the plot?"),
        ("... salaciously simplistic .", "salaciously simplistic."),
        ("cinéma vérité – plain", "cinéma vérité - plain"),
        ("silver -- and i like it!", "silver - and i like it!"),
        ("the speakerphone:  this phone", "the speakerphone: this phone"),
    ],
)
def test_clean(raw, right):
    assert clean(raw) == right
    assert clean(right) == right


def test_parse_merges_same_words_and_drops_wordless_rows():
    rows = ["\ufeffid\tsentiment\ttext", "1\t2.0\tA gem.", "2\t-1\tDull ''stuff''", "3\t1.0\ta  gem !", "4\t0\t - ..."]
    first, second = parse_ratings("\r\n".join(rows) + "\r\n", "movie")
    assert first == Review(id="movie-1", source="movie", rating=1.5, text="A gem.")
    assert second == Review(id="movie-2", source="movie", rating=-1.0, text='Dull "stuff"')


def test_parse_names_the_line_that_is_torn():
    with pytest.raises(ValueError, match="movie ratings, line 3: expected id, rating and text, got 2 cells"):
        parse_ratings("id\tsentiment\ttext\n1\t2.0\tA gem.\n2\t1.0", "movie")


def test_save_and_load(tmp_path):
    rows = [*invented(9), Review(id="x", source="movie", rating=-4.0, text="Amélie\u2028's “fate”")]
    save_reviews(rows, tmp_path / "reviews.jsonl")
    assert load_reviews(tmp_path) == rows
    assert load_reviews(str(tmp_path), source="product") == [r for r in rows if r.source == "product"]
    with pytest.raises(ValueError, match="source must be one of movie, product, or None for all; got 'films'"):
        load_reviews(tmp_path, source="films")


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        json.dumps({"id": "a", "source": "movie", "rating": 1.0}),
        json.dumps({"id": "a", "source": "movie", "rating": "1.0", "text": "Fine."}),
        json.dumps({"id": "a", "source": "movie", "rating": 4.1, "text": "Fine."}),
        json.dumps({"id": "a", "source": "movie", "rating": float("nan"), "text": "Fine."}),
        json.dumps({"id": "a", "source": "movie", "rating": 1.0, "text": "..."}),
        json.dumps({"id": "a", "source": "movie", "rating": 1.0, "text": None}),
    ],
)
def test_load_names_the_bad_line(tmp_path, line):
    good = json.dumps({"id": "a", "source": "movie", "rating": 1.0, "text": "Fine."})
    (tmp_path / "reviews.jsonl").write_text(f"{good}\n{line}\n")
    with pytest.raises(ValueError, match="reviews.jsonl, line 2: "):
        load_reviews(tmp_path)


def test_load_says_how_to_get_the_file(tmp_path):
    with pytest.raises(ValueError, match="ppo-lab fetch human-reviews"):
        load_reviews(tmp_path)


def test_the_split_hangs_on_words_alone_and_has_its_size():
    rows = invented(4000)
    train, held = select_split(rows, "train"), select_split(rows, "held_out")
    assert sorted(r.id for r in train + held) == sorted(r.id for r in rows)
    # a hash puts each snippet on a side with probability 0.1: five standard deviations of the binomial
    assert abs(len(held) / len(rows) - HELD_OUT) < 5 * (HELD_OUT * (1 - HELD_OUT) / len(rows)) ** 0.5
    assert all(held_out(r.text) == held_out(r.text.upper().replace(" ", "  ") + "!") for r in rows)
    with pytest.raises(ValueError, match="split must be train or held_out, got 'test'"):
        select_split(rows, "test")


def test_the_split_is_the_same_everywhere():
    """These sides are frozen: another hash would move snippets that published runs trained on."""
    sides = {text: held_out(text) for text in ("A gem.", "Dull.", "A clunker.", "Neither funny nor suspenseful.")}
    assert sides == FROZEN


FROZEN = {"A gem.": False, "Dull.": False, "A clunker.": False, "Neither funny nor suspenseful.": True}


def test_prompts_are_first_words_and_disjoint():
    rows = invented(3000)
    for words in (1, 4, 6):
        sides = {split: review_prompts(rows, words=words, split=split) for split in ("train", "held_out")}
        assert not {words_of(p) for p in sides["train"]} & {words_of(p) for p in sides["held_out"]}
        for split, prompts in sides.items():
            texts = [r.text for r in select_split(rows, split)]
            starts = {" ".join(text.split()[:words]) for text in texts}
            assert len(prompts) == len(set(prompts)) and set(prompts) <= starts
            assert all(len(p.split()) == words for p in prompts)
    assert len(sides["held_out"]) > 200 and len(sides["train"]) > 2000


def test_prompts_do_not_depend_on_the_order_of_the_file():
    rows = invented(500)
    mixed = random.Random(1).sample(rows, len(rows))
    assert review_prompts(rows, words=4) == review_prompts(mixed, words=4)


@pytest.mark.parametrize(
    "text",
    [
        'He said "never again this way" and left us all',
        "It works (on a good day with sun) and then breaks",
        "It works on Sundays. Then nothing works at all, ever",
        "It works on Sundays: then it never works",
        "It works on Sundays, ever",
    ],
)
def test_prompts_that_cannot_be_continued_are_left_out(text):
    row = Review(id="a", source="movie", rating=0.0, text=text)
    assert review_prompts([row], words=4, split="held_out" if held_out(text) else "train") == []


def test_prompt_arguments():
    with pytest.raises(ValueError, match="words must be at least 1, got 0"):
        review_prompts([], words=0)
    with pytest.raises(ValueError, match="split must be train or held_out, got 'eval'"):
        review_prompts([], split="eval")


@pytest.mark.parametrize("split", ["train", "held_out"])
def test_pairs_keep_their_promises(split):
    rows = invented(600)
    by_text = {r.text: r for r in rows}
    pairs = review_pairs(rows, 200, seed=3, min_gap=0.7, split=split)
    assert len({(p.chosen, p.rejected) for p in pairs}) == 200
    for pair in pairs:
        better, worse = by_text[pair.chosen], by_text[pair.rejected]
        assert better.source == worse.source == pair.source
        assert pair.gap == better.rating - worse.rating >= 0.7 - 1e-9  # ratings are tenths in binary
        assert {held_out(better.text), held_out(worse.text)} == {split == "held_out"}
    assert pairs == review_pairs(rows, 200, seed=3, min_gap=0.7, split=split)
    assert pairs != review_pairs(rows, 200, seed=4, min_gap=0.7, split=split)


def test_all_pairs_are_there_to_be_drawn():
    """Asked for as many as there are, every admissible pair comes exactly once."""
    rows = select_split(invented(60), "train")
    admissible = {
        (a.text, b.text) for a in rows for b in rows if a.source == b.source and a.rating - 1.0 >= b.rating
    }
    pairs = review_pairs(rows, len(admissible), seed=0)
    assert {(p.chosen, p.rejected) for p in pairs} == admissible
    with pytest.raises(ValueError, match=f"n must be in 1 to {len(admissible)}, the train pairs at least 1 apart"):
        review_pairs(rows, len(admissible) + 1, seed=0)


@pytest.mark.parametrize("size", [3, 8])
def test_groups_compare_each_with_each(size):
    rows = invented(600)
    by_text = {r.text: r for r in rows}
    pairs = review_pairs(rows, 900, seed=3, min_gap=0.7, group_size=size)
    assert pairs == review_pairs(rows, 900, seed=3, min_gap=0.7, group_size=size) and len(pairs) == 900
    groups: dict[int, list[tuple[str, str]]] = {}
    for pair in pairs:
        assert pair.gap == by_text[pair.chosen].rating - by_text[pair.rejected].rating >= 0.7 - 1e-9
        assert by_text[pair.chosen].source == by_text[pair.rejected].source == pair.source
        groups.setdefault(pair.group, []).append((pair.chosen, pair.rejected))
    *whole, last = groups  # the last may be cut at n
    for group in whole:
        members = {text for pair in groups[group] for text in pair}
        admissible = {(a, b) for a in members for b in members if by_text[a].rating - 0.7 >= by_text[b].rating}
        assert len(members) <= size and set(groups[group]) == admissible
    assert last == max(groups)


def test_groups_go_round_the_snippets():
    """Fewer pairs than one round gives: no snippet is in two groups."""
    pairs = review_pairs(invented(600), 200, seed=0, group_size=6)
    seen: dict[str, int] = {}
    assert all(seen.setdefault(text, p.group) == p.group for p in pairs for text in (p.chosen, p.rejected))


def test_pair_arguments():
    with pytest.raises(ValueError, match="group_size must be at least 2, got 1"):
        review_pairs(invented(50), 5, seed=0, group_size=1)
    with pytest.raises(ValueError, match="min_gap must be above 0"):
        review_pairs(invented(50), 5, seed=0, min_gap=0.0)
    with pytest.raises(ValueError, match="n must be in 1 to 0, the train pairs"):
        review_pairs([], 5, seed=0)


@pytest.fixture(scope="module")
def real() -> list[Review]:
    try:
        folder: Path = locate("human-reviews")
    except FetchError as missing:
        pytest.skip(str(missing))
    return load_reviews(folder)


def test_the_real_snippets(real):
    assert len(real) == 14290
    assert [sum(r.source == source for r in real) for source in ("movie", "product")] == [10603, 3687]
    assert all(clean(r.text) == r.text for r in real)
    assert len({words_of(r.text) for r in real if r.source == "movie"}) == 10603
    assert len(review_prompts(real, split="held_out")) > 512 and len(review_prompts(real)) > 4000
    pairs = review_pairs(real, 2000, seed=0)
    assert not {t for p in pairs for t in (p.chosen, p.rejected)} & {r.text for r in select_split(real, "held_out")}
