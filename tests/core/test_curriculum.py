"""A curriculum moves on at its border, mixes before it, and never goes back."""

from __future__ import annotations

import pytest

from ppo_lab.core.curriculum import Curriculum


def test_five_levels_at_eighty_percent():
    c, seen = Curriculum(memory=0.0), []
    for solved in (0.5, 0.79, 0.8, 0.9, 0.1, 1.0, 1.0, 1.0):
        c = c.after(solved, episodes=10)
        seen.append(c.level)
    assert seen == [0, 0, 1, 2, 2, 3, 4, 4] and c.success == 1.0


def test_the_border_is_mixed():
    shares = []
    for solved in (0.5, 0.6, 0.65, 0.7, 0.79):
        mixture = Curriculum().after(solved, episodes=1).mixture()
        assert sum(mixture.values()) == pytest.approx(1.0, abs=1e-12)
        shares.append(mixture.get(1, 0.0))
    assert shares == pytest.approx([0.0, 0.0, 0.125, 0.25, 0.475], abs=1e-12)
    fresh = Curriculum().after(0.9, episodes=1)
    assert fresh.mixture() == {1: 0.5, 0: 0.5}  # nothing is known of level 1 yet: half of what was mastered stays
    last = Curriculum(level=3).after(1.0, episodes=1)
    assert last.level == 4 and last.mixture() == {4: 1.0} == last.after(0.79, episodes=1).mixture()
    assert Curriculum(band=0.0).after(0.79, episodes=1).mixture() == {0: 1.0}


def test_memory_keeps_one_lucky_batch_from_deciding():
    c = Curriculum(memory=0.5).after(0.2, episodes=5)
    assert c.after(1.0, episodes=5).level == 0 and c.after(1.0, episodes=5).success == pytest.approx(0.6, abs=1e-12)


def test_nothing_seen_changes_nothing_and_state_comes_back():
    c = Curriculum(levels=3).after(0.4, episodes=4)
    assert c.after(1.0, episodes=0) is c and Curriculum(**c.state()) == c


@pytest.mark.parametrize("wrong", [{"levels": 0}, {"advance": 1.5}, {"memory": 1.0}, {"level": 5}, {"band": -0.1}])
def test_what_is_refused(wrong):
    with pytest.raises(ValueError, match="must be in"):
        Curriculum(**wrong)
    with pytest.raises(ValueError, match="solved must be in"):
        Curriculum().after(1.2, episodes=1)
