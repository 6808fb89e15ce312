"""Notebook 16: what its panel and figures draw is what the planner says and what was counted."""

from __future__ import annotations

import pytest
from linear import PLAIN, Watched, assess, make_batch

from ppo_lab.course.experiments import memory as study
from ppo_lab.course.figures.memory import DEVICES, PARTS, RECOMPUTE, facts, memory_panel
from ppo_lab.course.figures.memory_study import (
    MICRO,
    activations_figure,
    attention_figure,
    bubble_figure,
    time_figure,
)
from ppo_lab.course.recordings import load
from ppo_lab.scale.memory import SHAPES, Setup, plan
from ppo_lab.scale.memory.planner import PHASES

SETTING = {"model": "13B", "devices": 16, "stage": 3, "recompute": "every block", "micro": 4, "generation": "gathered"}


def by_planner(**changes) -> Setup:
    s = {**SETTING, **changes}
    return Setup(policy=SHAPES[s["model"]], devices=s["devices"], stage=s["stage"], micro_batch=s["micro"],
                 recompute_every=RECOMPUTE[s["recompute"]], generation=s["generation"], sample_batch=8)  # fmt: skip


@pytest.mark.parametrize("changes", [{}, {"stage": 1}, {"generation": "sharded"}, {"model": "70B", "micro": 16}])
def test_bars_are_the_plan(changes: dict) -> None:
    panel, made = memory_panel().set(**{**SETTING, **changes}), plan(by_planner(**changes))
    left, right = panel.figure.axes[:2]
    for i, phase in enumerate(PHASES):
        parts = {**made.lasting, **made.phases[phase]}
        drawn = {name: bar.patches[i].get_width() for name, bar in zip(PARTS, left.containers, strict=True)}
        assert drawn == pytest.approx({name: parts.get(name, 0.0) / 1e9 for name in PARTS})
        ends = [bar.patches[i].get_x() + bar.patches[i].get_width() for bar in left.containers]
        assert ends[-1] == pytest.approx(made.totals[phase] / 1e9)
    line, dot = right.get_lines()[:2]
    assert [*line.get_xdata()] == [*DEVICES]
    here = [*DEVICES].index(panel.settings["devices"])
    assert line.get_ydata()[here] == pytest.approx(made.peak / 1e9) == dot.get_ydata()[0]
    assert panel.facts["fits"] == ("yes" if made.fits_device else "no")


def test_every_part_has_a_colour() -> None:
    made = plan(Setup())
    assert {*made.lasting, *(part for parts in made.phases.values() for part in parts)} == {*PARTS}


def test_facts_name_the_largest() -> None:
    found = facts(**SETTING)
    assert found["largest_gb"] == pytest.approx(max(plan(by_planner()).parts.values()) / 1e9)
    assert found["left"] == pytest.approx(found["budget"] - found["peak"])


@pytest.fixture(scope="module")
def counted() -> list[study.Counted]:
    return study.activations()


def test_plan_and_count_agree(counted: list[study.Counted]) -> None:
    assert study.worst_error(counted) < 0.05
    off = [counted[0]._replace(planned=2.0 * counted[0].kept), *counted[1:]]
    assert study.worst_error(off) == 1.0
    for every, least, most in ((1, 0.9, 1.0), (2, 0.4, 0.5), (4, 0.2, 0.25)):
        assert all(least < share < most for share in study.saved_shares(counted, every))


def test_activation_bars_are_the_counts(counted: list[study.Counted]) -> None:
    (axes,) = activations_figure(counted).axes
    heights = sorted(round(patch.get_height() * 1e6) for patch in axes.patches)
    assert heights == sorted(c.kept for c in counted)
    lines = sorted(round(line.get_ydata()[0] * 1e6) for line in axes.get_lines())
    assert lines == sorted(round(c.planned) for c in counted)


def test_scores_grow_with_the_length() -> None:
    lengths = (32, 64, 128)
    found = study.attention_bytes(lengths)
    growth = {kind: (x[2] - x[1]) / (x[1] - x[0]) for kind, x in found.items()}
    assert growth == pytest.approx(dict.fromkeys(found, 2.0), abs=0.01)  # linear a token, quadratic in all
    slopes = {kind: (x[2] - x[0]) / 96 for kind, x in found.items()}
    assert slopes["eager"] >= 2 * slopes["fused"] > 0  # what is left is the padding mask
    (axes,) = attention_figure(found, lengths).axes
    drawn = {line.get_label(): [1e3 * y for y in line.get_ydata()] for line in axes.get_lines()}
    assert drawn["scores kept"] == pytest.approx(found["eager"])


def test_selective_recomputing_planned_and_counted() -> None:
    """Nearly all of what scores take goes for the operations of attention alone; whole blocks cost a quarter."""
    found = {(row.attention, row.what): row for row in study.selective(length=128, layers=2)}
    assert len(found) == 6
    assert all(row.planned == pytest.approx(row.kept, rel=0.15) for row in found.values())
    for attention in ("scores kept", "fused"):
        nothing, selective, block = (found[attention, what] for what in ("nothing", "selective", "block"))
        assert block.kept < selective.kept < nothing.kept and nothing.extra == 0
        assert 0 < selective.extra < block.extra / 2
    assert found["scores kept", "selective"].kept < 0.5 * found["scores kept", "nothing"].kept


def test_operations_of_recomputing() -> None:
    """A third of the forward and backward, less the last matrix of each block: torch stops before it."""
    net = study.shape_of(study.model("Llama").config)
    last = net.inner * net.width / sum(a * b for a, b in net.matrices)
    assert study.extra_operations(1) == pytest.approx((1 - last) / 3, abs=0.02)
    assert study.extra_operations(2) == pytest.approx(study.extra_operations(1) / 2, rel=1e-6)


def test_times_are_paired_and_drawn() -> None:
    recording = load("recompute")
    ratios = {k: recording.column("ratio", every=k) for k in (1, 2, 4)}
    assert all(len(x) == len(study.SEEDS) for x in ratios.values())
    (axes,) = time_figure(recording, {1: 0.26, 2: 0.13, 4: 0.06}).axes
    drawn = [line for line in axes.get_lines() if len(line.get_xdata()) == len(study.SEEDS)]
    assert sorted(y for line in drawn for y in line.get_ydata()) == pytest.approx(
        sorted(100 * (x - 1) for values in ratios.values() for x in values)
    )


def test_bubble_curves() -> None:
    (axes,) = bubble_figure().axes
    for line, stages in zip(axes.get_lines(), (2, 4, 8), strict=True):
        assert [*line.get_ydata()] == pytest.approx([100 * (stages - 1) / (m + stages - 1) for m in MICRO])


def test_timing_takes_both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "TIMED", {"layers": 2, "width": 48, "inner": 96, "rows": 2, "length": 16})
    rows = study.study(seeds=(0,))
    assert [row["every"] for row in rows] == [1, 2, 4] and all(row["ratio"] > 0 for row in rows)


def test_a_wild_advantage_is_named_in_the_notebooks_way() -> None:
    from ppo_lab.course.experiments.memory import ring

    batch, learner = make_batch(), Watched()
    assert ring(learner, batch, assess, PLAIN, row=4, by=300.0)[0].startswith("gradient norm")
    assert "row 4 " in ring(Watched(), batch, assess, PLAIN, row=4, by=300.0)[0]
    assert ring(Watched(), batch, assess, PLAIN, row=4, by=1.0) == []
