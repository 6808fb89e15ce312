"""Notebook 06: what its figures draw, as data."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ppo_lab.course.experiments.assembled import trained_by
from ppo_lab.course.figures.assembled import ORANGE, column, objective_figure, paired, pendulum_figure, probes_figure


def test_probes_figure_marks_what_is_off() -> None:
    found = [{"name": "discount", "expected": [0.9, 1.0], "found": [0.91, 1.0]},
             {"name": "time_limit, planted", "expected": [10.0], "found": [4.0]}]  # fmt: skip
    (ax,) = probes_figure(found).axes
    marks = [(line.get_ydata()[0], line.get_marker()) for line in ax.get_lines() if line.get_markersize() == 8]
    assert marks == [(0.91, "o"), (1.0, "o"), (4.0, "X")]
    wanted = [[*line.get_ydata()] for line in ax.get_lines() if line.get_linewidth() == 3]
    assert wanted == [[0.9, 0.9], [1.0, 1.0], [10.0, 10.0]]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["discount", "time limit\nplanted"]


def rows() -> list[dict[str, Any]]:
    return [{"variant": variant, "seed": seed, "return": base + seed, "fit": 0.8, "fresh": 0.8 - 0.1 * base / 100}
            for variant, base in (("separate", 200.0), ("shared, c1 8", 100.0)) for seed in range(5)]  # fmt: skip


def test_objective_figure() -> None:
    found = rows()
    left, right = objective_figure(found).axes
    dots = {ax: [(line.get_xdata()[0], line.get_ydata()[0]) for line in ax.get_lines() if line.get_markersize() == 6
                 and line.get_marker() == "o" and len(line.get_xdata()) == 1] for ax in (left, right)}  # fmt: skip
    assert dots[left] == [(202.0, 0), (102.0, 1)]
    assert [x for x, _ in dots[right]] == pytest.approx([0.2, 0.1])
    assert left.get_lines()[-1].get_color() == ORANGE
    assert paired(found, "return", "shared, c1 8", "separate") == [-100.0] * 5
    assert column(found, "return", variant="separate", seed=3) == [203.0]


def test_pendulum_figure() -> None:
    found = [
        {
            "seed": seed,
            "planted": planted,
            "env_steps": 1000 * i,
            "return": None if i == 2 else -float(i),
            "action_std": 1.0 / i,
        }
        for planted in ("", "clipped_action_stored")
        for seed in (0, 1)
        for i in (1, 2, 3)
    ]
    left, right = pendulum_figure(found).axes
    assert [[*line.get_xdata()] for line in left.get_lines()] == [[1.0, 3.0]] * 4
    assert [*right.get_lines()[0].get_ydata()] == [1.0, 0.5, pytest.approx(1 / 3)]
    assert [text.get_text() for text in left.get_legend().get_texts()] == ["as sampled", "clipped one stored"]


def test_a_readers_update_is_what_learns() -> None:
    seen: list[int] = []

    def nothing(module: torch.nn.Module, optimizer: torch.optim.Optimizer, batch: Any, assess: Any) -> None:
        now = assess(batch.inputs)
        seen.append(len(batch))
        assert torch.allclose(now.logp, batch.old_logp, atol=1e-5) and now.value.requires_grad

    def louder(module: torch.nn.Module, optimizer: torch.optim.Optimizer, batch: Any, assess: Any) -> None:
        with torch.no_grad():
            module.get_parameter("policy.bias")[0] += 5.0

    small = ("total_steps=6144",)
    idle, pushed = trained_by(nothing, 0, small), trained_by(louder, 0, small)
    assert len(seen) == 3 and idle[0] == pushed[0] and pushed[-1] < 12 < idle[-1]  # always left: the pole falls at once
