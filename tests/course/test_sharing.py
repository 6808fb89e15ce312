"""What a shared trunk saves and costs: the count on a small run, and that the claims can come out either way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ppo_lab.course.claims import measure
from ppo_lab.course.experiments.sharing import VARIANTS, faster, gain, lost, measured, total_bytes
from ppo_lab.course.figures.sharing import saved, sharing_figure
from ppo_lab.course.recordings import Recording, load

SMALL = ("sampling.prompts=8", "corpus.size=400", "corpus.held_out=16", "evaluation.prompts=8", "reward.references=16")


def rows_of(seconds: dict[str, float], gold: dict[str, float]) -> list[dict[str, Any]]:
    noise = (0.0, 0.01, -0.01, 0.02, -0.02)
    return [
        {"variant": v, "seed": s, "cpu_update": seconds[v] * (1 + noise[s]), "gold_before": 0.0,
         "gold_after": gold[v] + noise[s], "passes_update": 24, "bytes_training": 1, "bytes_activations": 1}
        for s in range(5) for v in VARIANTS
    ]  # fmt: skip


def all_but(separate: float, others: float) -> dict[str, float]:
    return dict.fromkeys(VARIANTS, others) | {"separate": separate}


def test_both_halves_of_the_claim_can_hold_and_fail() -> None:
    held, failed = "held here", "did not hold here"
    for time, after, fast, good in ((1 / 1.3, 0.79, held, held), (0.5, 0.4, failed, failed), (0.98, 0.8, failed, held)):
        rows = rows_of(all_but(1.0, time), all_but(0.8, after))
        assert measure(faster(rows, "shared"), least=0.25, most=0.35).verdict == fast
        assert measure(lost(rows, "shared"), most=0.05).verdict == good


def test_shares_are_of_the_separate_critic() -> None:
    rows = rows_of(all_but(1.0, 0.5), all_but(0.8, 0.6))
    assert faster(rows, "shared") == pytest.approx([1.0] * 5) and lost(rows, "separate") == [0.0] * 5
    assert lost(rows, "partial") == pytest.approx([0.25] * 5) and gain(rows, "shared")[1] == pytest.approx(0.61)


def test_passes_and_bytes_of_a_small_run(tmp_path: Path) -> None:
    found = {v: measured(v, 0, 2, tmp_path / v, *SMALL) for v in ("separate", "partial", "shared, detached")}
    layers, minibatches = 3, 4
    assert [row["passes_score"] for row in found.values()] == [2 * layers, layers + 1, layers]
    assert [row["passes_update"] for row in found.values()] == [minibatches * n for n in (6, 4, 3)]
    one, part, all_ = (row["bytes_weights"] for row in found.values())
    assert all_ < part < one and total_bytes(found["partial"]) < total_bytes(found["separate"])
    head = 97 * 4  # 96 weights and a bias
    assert one - all_ == all_ - head  # a second trunk: what is there besides the head, embeddings included (tied)
    assert all(row["gold_before"] == found["separate"]["gold_before"] for row in found.values())
    assert found["separate"]["score_after"] != found["partial"]["score_after"]


def test_the_recording_is_drawn_as_data() -> None:
    recording = load("sharing")
    assert {(r["variant"], r["seed"]) for r in recording.rows} == {(v, s) for v in VARIANTS for s in range(5)}
    figure = sharing_figure(recording)
    left, right = figure.axes
    shares = saved(recording)
    drawn = [line.get_xdata() for line in left.get_lines() if line.get_marker() == "o"]
    assert [list(x) for x in drawn] == [[100 * x for x in f] for values in shares.values() for f in values]
    assert all(x == 1 for values in shares.values() for x in values[0])
    dots = [list(line.get_xdata()) for line in right.get_lines() if line.get_marker() == "o"]
    assert dots == [gain(recording.rows, v) for v in VARIANTS]


def test_the_figure_of_anything_else_would_differ() -> None:
    rows = rows_of(dict.fromkeys(VARIANTS, 1.0), dict.fromkeys(VARIANTS, 0.5))
    right = sharing_figure(Recording("x", "y", "z", rows)).axes[1]
    assert max(max(line.get_xdata()) for line in right.get_lines()) == pytest.approx(0.52)
