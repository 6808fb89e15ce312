"""Notebook 06: probes come out as solved and catch a planted fault; variants are what they say; seeds are paired."""

from __future__ import annotations

import pytest

from ppo_lab.control.probes import PROBES
from ppo_lab.course.experiments.assembled import VARIANTS, probe, swung, turned

SMALL = ("total_steps=4096", "evaluation.every=2", "evaluation.episodes=2", "ppo.epochs=2")


@pytest.mark.parametrize("name", PROBES)
def test_every_probe_comes_out_as_solved(name: str) -> None:
    """0.03: 200 noisy gradient steps, against errors of 0.1 and more where a part is broken."""
    found = probe(name)
    assert found["error"] < 0.03 and len(found["found"]) == PROBES[name].states


def test_a_planted_fault_is_caught_by_one_probe() -> None:
    assert probe("time_limit", planted=["limit_is_end"])["error"] > 3
    assert probe("discount", planted=["limit_is_end"])["error"] < 0.03  # its episodes never meet a limit


def test_variants_differ_where_they_say() -> None:
    plain, again = (turned("separate, c1 0.5", 0, SMALL) for _ in range(2))
    assert plain == again and {"return", "final", "fit", "fresh", "entropy", "kl"} < {*plain}
    others = {name: turned(name, 0, SMALL) for name in ("shared, c1 0.5", "shared, c1 8", "c2 0.1", "alternating")}
    kls = [plain["kl"], *(row["kl"] for row in others.values())]
    assert len({*kls}) == len(kls) and all(row["seed"] == 0 for row in others.values())


def test_a_critic_fits_what_it_was_trained_on_better_than_the_next_rollout() -> None:
    row = turned("separate, c1 0.5", 1, ("total_steps=12288", "evaluation.every=6", "evaluation.episodes=2"))
    assert row["fit"] > row["fresh"]


def test_swings_are_paired_and_can_be_broken() -> None:
    small = ("total_steps=6400", "ppo.epochs=2", "evaluation.every=2", "evaluation.episodes=2")
    plain, broken = swung(0, "", small), swung(0, "clipped_action_stored", small)
    assert [row["env_steps"] for row in plain] == [3200, 6400] and plain[-1]["final"] is not None
    assert plain[0]["return"] == broken[0]["return"] and plain[1] != {**broken[1], "planted": ""}


def test_unknown_variant() -> None:
    with pytest.raises(ValueError, match="variant must be one of separate"):
        turned("c3", 0)
    assert len(VARIANTS) == 14
