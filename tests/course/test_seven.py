"""What notebook 07 replays is what its definitions say: every switch, every draw, the same seeds."""

from __future__ import annotations

import pytest

from ppo_lab.course.experiments.five import ALGORITHMS, DRAWS, SEARCH_SEED, best_draw, draw, settings
from ppo_lab.course.experiments.what_matters import BASE, SWITCHES, TEXT
from ppo_lab.course.figures.ablation import LIGHTS, lit, values
from ppo_lab.course.recordings import load

SEEDS = [*range(5)]


@pytest.mark.parametrize("env", SWITCHES)
def test_every_switch_has_the_same_seeds(env: str) -> None:
    rows = load("what_matters").rows
    names = [switch.name for switch in SWITCHES[env]]
    assert {*values(rows, "switch", env=env)} == {*names}
    assert all(values(rows, "seed", env=env, switch=name) == SEEDS for name in names)
    assert len({*values(rows, "log", env=env)}) == len(names) * len(SEEDS), "no two runs are the same run"


def test_every_fault_of_the_language_runs_turns_a_light() -> None:
    rows = load("what_matters_text").rows
    for switch in TEXT:
        assert values(rows, "seed", switch=switch.name) == SEEDS
        found = lit(rows, switch.name)
        assert any(found[name] > healthy for name, _, healthy in LIGHTS) is (switch.fault is not None), switch.name
    assert {*values(rows, "not_finite")} == {0} and BASE == TEXT[0].name


def test_one_budget_for_all_five() -> None:
    rows = load("five_cartpole").rows
    for name in ALGORITHMS:
        tried = [row for row in rows if row["algorithm"] == name and row["part"] == "search"]
        assert [(row["draw"], row["seed"]) for row in tried] == [(i, SEARCH_SEED + i) for i in range(DRAWS)]
        assert [row["settings"] for row in tried] == [" ".join(settings(name, draw(i))) for i in range(DRAWS)]
        judged = [row for row in rows if row["algorithm"] == name and row["part"] == "fresh"]
        assert [row["seed"] for row in judged] == SEEDS
        assert {row["draw"] for row in judged} == {best_draw(rows, name)}
