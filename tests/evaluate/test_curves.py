"""Curves in a few numbers: normalised, smoothed, binned; a fall is one from the best so far, after learning."""

from __future__ import annotations

import pytest

from ppo_lab.evaluate.curves import binned, crashed, deepest_fall, normalized_score, smoothed

POLE = {"random": 20.0, "reference": 500.0}


def test_the_two_ends_of_the_scale() -> None:
    assert normalized_score(20, **POLE) == 0 and normalized_score(500, **POLE) == 1
    assert normalized_score(-300, random=-500, reference=-100) == 0.5
    with pytest.raises(ValueError, match="must differ, got 3 twice"):
        normalized_score(1, random=3, reference=3)


def test_smoothing_starts_at_the_first_score() -> None:
    assert smoothed([4.0, 4.0, 4.0], decay=0.9) == pytest.approx([4.0] * 3, abs=1e-12)
    assert smoothed([0.0, 1.0], decay=0.75) == [0.0, 0.25] and smoothed([1.0, 5.0], decay=0) == [1.0, 5.0]
    assert smoothed([], decay=0.5) == []
    with pytest.raises(ValueError, match=r"decay must be in \[0, 1\), got 1"):
        smoothed([1.0], decay=1)


@pytest.mark.parametrize(
    ("scores", "fell"),
    [
        ([20, 100, 300, 500, 500], False),
        ([20, 500, 500, 500, 20, 20, 20], True),
        ([20, 500, 500, 500, 20, 20, 20, 500, 500, 500], True),  # recovered, but it fell
        ([20, 500, 500, 500, 20, 500, 500], False),  # one bad span is smoothed over
        ([500, 500, 500, 280, 280, 280], False),  # above half
        ([20, 40, 20, 20, 20], False),  # nothing had been learned
        ([20, 20, 20], False),
    ],
)
def test_what_a_crash_is(scores: list[float], fell: bool) -> None:
    assert crashed(scores, **POLE) is fell
    assert (deepest_fall(scores, **POLE) < 0.5) is fell


def test_the_fall_is_measured_from_the_best_so_far() -> None:
    assert deepest_fall([260, 500, 380, 500], decay=0, **POLE) == 0.75
    assert deepest_fall([260, 500], decay=0, **POLE) == 1.0
    scaled = [(x - 20) * 3 - 7 for x in (260, 500, 380, 500)]
    assert deepest_fall(scaled, random=-7, reference=1433, decay=0) == 0.75
    assert deepest_fall([260, 140], decay=0, learned=0.6, **POLE) == 1.0 > deepest_fall([260, 140], decay=0, **POLE)


def test_empty_spans_repeat_what_was_last_seen() -> None:
    assert binned([5], [3.0], total=10, bins=5) == [3.0] * 5
    assert binned([1, 2, 3, 10], [1.0, 3.0, 5.0, 7.0], total=10, bins=5) == [2.0, 5.0, 5.0, 5.0, 7.0]
    with pytest.raises(ValueError, match="a time for each score, got 1 and 0"):
        binned([1], [], total=10, bins=5)
