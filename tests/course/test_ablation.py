"""Figures of notebook 07 draw what the rows say, and its verdicts can come out either way."""

from __future__ import annotations

import random
from typing import Any

import pytest
from matplotlib.colors import same_color

from ppo_lab.course.experiments.what_matters import BASE, CARTPOLE, PENDULUM, SIGNALS, TEXT, TEXT_SIGNALS
from ppo_lab.course.figures import ablation, ablation_panel
from ppo_lab.course.figures.ablation import BLUE, GREEN, GREY, LIGHTS, ORANGE, paired, told

HARM = {"value clip 0.2": -80.0, "16 epochs": 40.0, "16 epochs, stop at KL 0.01": 0.0}  # against the usual run
BROKEN = {"padding is read": "sampler_mismatch", "padding is counted": "first_ratio_error",
          "reference off by one token": "first_kl", "reference without the temperature": "first_kl"}  # fmt: skip


def control_rows(seeds: int = 5) -> list[dict[str, Any]]:
    """Made up: a usual run, and switches that do what `HARM` says."""
    draw, rows = random.Random(0), []
    for env, switches in (("CartPole-v1", CARTPOLE), ("Pendulum-v1", PENDULUM)):
        for seed in range(seeds):
            common = draw.gauss(0, 30)
            for switch in switches:
                area = 200 + common + HARM.get(switch.name, 0.0) + draw.gauss(0, 5)
                curve = " ".join(f"{20 + (area - 20) * i / 10:.0f}" for i in range(20))
                signals = {name: 1.0 for name, _ in SIGNALS}
                rows.append({"env": env, "switch": switch.name, "seed": seed, "area": area, "final": 2 * area,
                             "reach": 10000 - area, "spread": 30.0, "curve": curve, "not_finite": 0,
                             "log": f"{switch.name}{seed}", **signals})  # fmt: skip
    return rows


def text_rows(seeds: int = 5) -> list[dict[str, Any]]:
    """Made up: no fault harms the score, each breaks its light."""
    draw, rows = random.Random(1), []
    for seed in range(seeds):
        for switch in TEXT:
            signals = {name: 1e-7 for name, _ in TEXT_SIGNALS}
            row = {"switch": switch.name, "seed": seed, "score": 1.0 + draw.gauss(0, 0.1), "kl": 2.0, **signals,
                   "first_kl": 0.0, "counted": 1.4 if switch.name == "padding is counted" else 1.0}  # fmt: skip
            if switch.name in BROKEN:
                row[BROKEN[switch.name]] = -7.0 if switch.name == "reference off by one token" else 0.5
            rows.append(row)
    return rows


def test_differences_are_paired_and_need_the_same_seeds() -> None:
    rows = control_rows()
    x = paired(rows, "area", "value clip 0.2", env="CartPole-v1")
    assert len(x) == 5 and all(-110 < v < -50 for v in x)  # the seeds' own spread of 30 is gone
    with pytest.raises(ValueError, match="must have the same seeds"):
        paired(rows[1:], "area", "value clip 0.2", env="CartPole-v1")


def test_what_can_be_told_comes_out_three_ways() -> None:
    rows = control_rows()
    found = {name: words for _, name, _, words, _ in ablation.summary(rows)}
    assert found["value clip 0.2"] == "lower" and found["16 epochs"] == "higher"
    assert found["16 epochs, stop at KL 0.01"] == "lower", "judged against sixteen epochs, not against the usual run"
    assert found["ε 0.1"] == found["constant rate"] == "cannot tell"
    assert told([2.0, 2.0, 2.0, 2.0, 2.1]) == 1 and told([0.0, 0.0, 0.0]) == 0


def test_effects_are_drawn_in_their_colours() -> None:
    rows = control_rows()
    left, right = ablation.effects_figure(rows).axes
    names = [label.get_text().split("  ")[-1] for label in left.get_yticklabels()]
    assert names == [s.name for s in CARTPOLE if s.name != BASE]
    for ax, key in ((left, "area"), (right, "final")):
        for place, name in enumerate(names):
            against = "16 epochs" if "stop" in name else BASE
            lines = [line for line in ax.get_lines() if {*line.get_ydata()} == {place}]
            dots = next(line for line in lines if len(line.get_xdata()) == 5)
            assert [*dots.get_xdata()] == paired(rows, key, name, against, env="CartPole-v1")
            color = {-1: ORANGE, 0: GREY, 1: BLUE}[told([*dots.get_xdata()])]
            assert all(same_color(line.get_color(), color) for line in lines)


def test_every_switch_has_a_signal_to_look_at() -> None:
    names = {s.name for s in (*CARTPOLE, *PENDULUM, *TEXT)} - {BASE, "temperature 0.7"}
    assert {*ablation.SEEN} == names
    known = {name for name, _ in (*SIGNALS, *TEXT_SIGNALS)} | {"not_finite", "first_kl"}
    assert {*ablation.SEEN.values()} <= known


def test_tables_say_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    ablation.effects_table(control_rows())
    said = capsys.readouterr().out
    assert said.startswith("CartPole-v1, 5 seeds\nC1 advantages as they are: ") and said.count("\n") == len(CARTPOLE)
    ablation.effects_table(text_rows(), None, "score")
    assert "words, 5 seeds" in capsys.readouterr().out


def test_lights_are_red_where_an_identity_is_broken() -> None:
    rows = text_rows()
    left, right = ablation.text_figure(rows).axes
    names = [label.get_text().split("  ")[-1] for label in left.get_yticklabels()]
    red = {(round(p.get_y() + 0.4), round(p.get_x() + 0.46)) for p in right.patches
           if same_color(p.get_facecolor(), ORANGE)}  # fmt: skip
    assert len(right.patches) == len(names) * len(LIGHTS)
    assert {same_color(p.get_facecolor(), GREEN) or same_color(p.get_facecolor(), ORANGE) for p in right.patches} == {
        True
    }
    where = {name: i for i, (name, *_) in enumerate(LIGHTS)}
    wanted = {(names.index(switch), where[light]) for switch, light in BROKEN.items()}
    assert red == wanted | {(names.index("padding is counted"), where["counted"])}


def test_the_panel_says_what_its_seeds_say(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row for row in control_rows() if row["env"] == "CartPole-v1"]
    monkeypatch.setattr(ablation_panel, "runs", lambda: rows)
    panel = ablation_panel.ablation_panel()
    x = paired(rows, "area", "value clip 0.2")
    assert panel.facts["differences"] == x and panel.facts["words"] == "lower" and not panel.facts["flipped"]
    panel.set(seeds=1)
    assert panel.facts["words"] == "one run: no telling" and panel.facts["mean"] == x[0]
    same = panel.set(left="λ 1", right="λ 1", seeds=3)
    assert same.facts["told"] == 0 and same.facts["mean"] == 0 and len(same.facts["differences"]) == 3
    shown = [line for line in panel.figure.axes[0].get_lines() if len(line.get_xdata())]
    assert len(shown) == 8  # three thin and one thick of each


def test_same_seed_same_log() -> None:
    assert ablation.same_seed({0: ["a", "a"], 1: ["b", "b"]}) == (True, True)
    assert ablation.same_seed({0: ["a", "b"], 1: ["c"]}) == (False, True)
    assert ablation.same_seed({0: ["a"], 1: ["a"]}) == (True, False)


def test_effects_of_epsilon_are_relative() -> None:
    rows = control_rows()
    for row in rows:
        if row["switch"] == "ε 0.3":
            row |= {"spread": 60.0, "reach": 5000, "final": 300.0}
        if row["switch"] == "ε 0.1":
            row |= {"reach": 8000, "final": 400.0}
    found = ablation.eps_effects(rows)
    assert found == {"stability": [-0.5] * 5, "speed": [pytest.approx(0.6)] * 5, "final": [-0.25] * 5}
