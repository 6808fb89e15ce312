"""The optional sections of notebook 12: experiments can come out either way, pictures draw what was measured."""

from __future__ import annotations

import pytest
import torch

from ppo_lab.course.claims import measure
from ppo_lab.course.experiments import curiosity, curriculum, prompt_sampling, several_objectives, shaping
from ppo_lab.course.figures import improving


@pytest.fixture(scope="module")
def reached() -> several_objectives.Reached:
    return several_objectives.reached(several_objectives.all_points(), grid=201)


def test_a_difference_never_changes_what_is_best_and_a_level_does():
    for change in shaping.changed([0.01, 1.0, 30.0], kind="difference"):
        assert change.states == 0 and change.worth == pytest.approx(1.0, abs=1e-9)
    small, large = shaping.changed([0.01, 1.0], kind="level")
    assert small.states == 0 and small.worth == pytest.approx(1.0, abs=1e-9)
    assert large.states > 0 and large.worth < 0.5


def test_shaping_runs_can_help_and_can_harm():
    rows = [shaping.trained(arm, 1000, iterations=16) for arm in ("none", "difference", "level")]
    assert shaping.sooner(rows, "difference")[0] > 0 > shaping.of(rows, "final", "level")[0] - rows[0]["final"]
    assert shaping.trained("none", 1000, iterations=8) == shaping.trained("none", 1000, iterations=8)
    assert shaping.sooner(rows, "none") == shaping.steadier(rows, "none") == [0.0]
    adaptive = shaping.trained("level, adaptive", 1000, iterations=8)
    assert adaptive["weight"] != shaping.WEIGHT
    made = [{"arm": a, "spread": s, "reach": r} for a, s, r in (("none", 0.2, 10), ("level", 0.1, 20))]
    assert shaping.steadier(made, "level") == [0.5] and shaping.sooner(made, "level") == [-1.0]


def test_a_curriculum_moves_outwards_and_can_win_or_lose():
    assert [curriculum.place(k) for k in range(5)] == sorted({curriculum.place(k) for k in range(5)}, reverse=True)
    assert float(curriculum.starts({0: 0.25, 3: 0.75}).sum()) == 1.0
    rows = [curriculum.trained(arm, 1000, iterations=30) for arm in curriculum.ARMS]
    began = [int(x) for x in rows[2]["levels"].split()]
    assert began == sorted(began) and 1 < len(began) <= 5
    assert curriculum.gain(rows, "far only")[0] > 0
    short = [curriculum.trained(arm, 1000, iterations=4) for arm in curriculum.ARMS]
    assert curriculum.saved(short, "far only") == [0.0]  # nobody got there
    made = [{"arm": "curriculum", "reach": 30, "final": 0.5}, {"arm": "all levels", "reach": 20, "final": 1.0}]
    assert curriculum.saved(made, "all levels") == [-0.5] and curriculum.gain(made, "all levels") == [-0.5]


def test_linear_weights_reach_the_two_ends_only(reached):
    assert len(reached.front) == 10
    assert reached.linear.nonzero().flatten().tolist() == [0, 9]
    assert bool(reached.chebyshev.all()) and bool(reached.constraint.all())


def test_the_points_are_those_of_the_table():
    points = several_objectives.all_points()
    assert len(points) == 1024
    expected = {(round(t / 124, 9), round(-c / 19, 9))
                for t, c in zip(several_objectives.TREASURE, several_objectives.COST, strict=True)}  # fmt: skip
    assert {(round(a, 9), round(b, 9)) for a, b in points.tolist()} == expected


def test_weights_that_follow_close_the_gap_and_fixed_ones_do_not():
    assert several_objectives.closed([1000], "fixed") == [0.0]
    assert several_objectives.closed([1000], "exponential")[0] > 0.9
    _, _, target = several_objectives.study(1000)
    assert torch.equal(target, several_objectives.study(1000)[2])
    assert several_objectives.follow(1000, "step", rounds=3).weights[0] == [*several_objectives.WEIGHTS]


@pytest.mark.parametrize(("bonus", "found"), [("none", False), ("count", True)])
def test_a_bonus_finds_what_plain_ppo_does_not(bonus, found):
    row = curiosity.row(bonus, 1000, total=6144, states=16)
    assert (row["found"] >= 0) is found and len(row["curve"].split()) == 8
    assert curiosity.share([row], bonus) == [float(found)]


def test_a_difference_between_orders_is_paired():
    rows = [{"order": o, "seed": s, "gold": g} for s, a, b in ((0, 0.5, 0.7), (1, 0.6, 0.5))
            for o, g in (("epochs", a), ("difficulty", b))]  # fmt: skip
    assert prompt_sampling.gain(rows, "difficulty") == pytest.approx([0.2, -0.1], abs=1e-12)
    assert prompt_sampling.config("difficulty", 3).sampling.order == "difficulty"


def test_pictures_draw_what_was_measured(reached):
    rows = [{"arm": arm, "curve": f"0.1 {0.5 + s / 100}", "levels": "0 1", "found": s - 2, "reached": 1.0}
            for s in range(5) for arm in (*shaping.ARMS, *curriculum.ARMS, *curiosity.ARMS)]  # fmt: skip
    level = shaping.changed([0.01, 1.0], kind="level")
    figure = improving.shaping_figure(rows, level, level)
    assert figure.axes[0].lines[1].get_ydata().tolist() == [c.worth for c in level]
    expected = measure([0.5 + s / 100 for s in range(5)], least=0.0).mean
    assert figure.axes[1].lines[0].get_ydata()[1] == pytest.approx(expected, abs=1e-12)
    assert len(improving.curriculum_figure(rows).axes[1].lines) == 5
    bars = [p.get_height() for p in improving.curiosity_figure(rows, curiosity.share).axes[1].patches]
    assert bars[0] == pytest.approx(0.6, abs=1e-12)
    followed = {rule: several_objectives.follow(1000, rule, rounds=4) for rule in ("fixed", "step", "exponential")}
    shown = improving.objectives_figure(reached, followed)
    assert len(shown.axes[0].lines[3].get_xdata()) == 2  # the squares of linear weights
    orders = [{"order": o, "gold": 1.0, "score": 2.0, "kl": 3.0} for _ in range(5) for o in ("epochs", "difficulty")]
    assert [ax.lines[-1].get_ydata()[0] for ax in improving.prompts_figure(orders).axes] == [1.0, 2.0, 3.0]
