"""Notebook 05: what its panel and figures draw, as data."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from ppo_lab.course.experiments.critic import CriticRun, Explained, Life
from ppo_lab.course.figures.gae import (
    COUNTS,
    CUT_AT,
    ERRORS,
    LAMS,
    STEPS,
    TERMINATED_AT,
    episodes,
    errors,
    facts,
    gae_panel,
    measured,
    weights,
    world,
)
from ppo_lab.course.figures.gae_study import best_lam, critic_figure, lambda_figure, limit_figure, scatter_figure


def test_weights_stay_inside_their_episode() -> None:
    found = weights(0.9, 0.5)
    episode = [(t > TERMINATED_AT) + (t > CUT_AT) for t in range(STEPS)]
    for i in range(STEPS):
        for j in range(STEPS):
            right = 0.45 ** (j - i) if j >= i and episode[i] == episode[j] else 0.0
            assert found[i, j].item() == pytest.approx(right, abs=1e-12)


def test_a_right_critic_leaves_noise_only_and_lambda_one_no_bias() -> None:
    assert all(errors(0.99, lam, 0.0)[0] < 1e-9 for lam in LAMS)
    assert all(errors(0.99, 1.0, error)[0] < 1e-9 for error in ERRORS)
    assert all(errors(0.99, 0.5, a)[0] < errors(0.99, 0.5, b)[0] for a, b in zip(ERRORS, ERRORS[1:], strict=False))


def test_the_best_lambda_rises_with_the_error_and_with_the_count() -> None:
    by_error = [facts(0.99, 0.5, error, 64)["best_lam"] for error in ERRORS]
    by_count = [facts(0.99, 0.5, 1.0, count)["best_lam"] for count in COUNTS]
    assert by_error == sorted(by_error) and by_error[0] < 0.5 and by_error[-1] > 0.9
    assert by_count == sorted(by_count) and by_count[0] < by_count[-1]


def test_measured_agrees_with_exact() -> None:
    """Seed and samples are fixed. 69 thousand steps of 3000 episodes; those of one episode are not independent."""
    seen, there = episodes()
    assert 60_000 < int(seen.mask.sum()) and 0 <= int(there.min()) <= int(there.max()) < world().mdp.states
    for lam in (0.0, 0.8, 1.0):
        bias, noise = errors(0.99, lam, 1.0)
        for count in (1, 16):
            assert measured(0.99, lam, 1.0, count) == pytest.approx(math.hypot(bias, noise / count**0.5), rel=0.04)


def test_panel_draws_its_facts() -> None:
    panel = gae_panel().set(gamma=0.95, lam=0.9, error=1.0, count=16)
    bars, heat, curve = panel.figure.axes
    assert [bar.get_height() for bar in bars.patches] == pytest.approx(
        [0.855**step for step in range(len(bars.patches))]
    )
    assert torch.equal(torch.tensor(heat.images[0].get_array().data), weights(0.95, 0.9))
    lines = {line.get_label(): [*line.get_ydata()] for line in curve.get_lines()}
    assert lines["bias"] == panel.facts["curves"]["bias"] and lines["both"] == panel.facts["curves"]["total"]
    assert lines["both, measured"] == [measured(0.95, lam, 1.0, 16) for lam in LAMS]
    dots = [(line.get_xdata()[0], line.get_ydata()[0]) for line in curve.get_lines() if line.get_marker() == "o"]
    assert dots == [(LAMS.index(0.9), panel.facts[key]) for key in ("bias", "noise", "total")]


def rows() -> list[dict[str, float]]:
    """A made-up study: error |λ − best| + 0.1, a little more for each seed."""
    best = {(0.0, 10.0): 0.0, (1.0, 10.0): 0.5, (0.0, 99.0): 0.5, (1.0, 99.0): 1.0}
    return [{"seed": seed, "error": error, "lam": lam, "batch": batch, "rmse": abs(lam - at) + 0.1 + 0.01 * seed}
            for seed in range(10) for (error, batch), at in best.items() for lam in (0.0, 0.5, 1.0)]  # fmt: skip


def test_lambda_figure() -> None:
    study = rows()
    figure = lambda_figure(study)
    assert [ax.get_title() for ax in figure.axes] == ["mean of 10 episodes", "mean of 99 episodes"]
    for ax, batch, rings in zip(figure.axes, (10.0, 99.0), ([0, 1], [1, 2]), strict=True):
        found = [line for line in ax.get_lines() if line.get_markersize() == 12]
        assert [int(line.get_xdata()[0]) for line in found] == rings
        assert [best_lam(study, error=error, batch=batch) for error in (0.0, 1.0)] == [rings[0] / 2, rings[1] / 2]
        line = next(line for line in ax.get_lines() if len(line.get_xdata()) == 3)
        at = [0.0, 0.5, 1.0][rings[0]]
        assert [*line.get_ydata()] == pytest.approx([abs(lam - at) + 0.145 for lam in (0.0, 0.5, 1.0)])


def test_limit_figure() -> None:
    right, wrong = [Life([1.0, 2.0], [3.0, 4.0], [], [])] * 2, [Life([0.5, 0.6], [0.7, 0.8], [], [])]
    value, j = limit_figure(right, wrong, truth=10.0, mistaken=4.0).axes

    def long(ax: Any) -> list[list[float]]:
        return [[*line.get_ydata()] for line in ax.get_lines() if [*line.get_xdata()] == [1, 2]]

    assert long(value) == [[3.0, 4.0], [3.0, 4.0], [0.7, 0.8]] and long(j) == [[1.0, 2.0], [1.0, 2.0], [0.5, 0.6]]
    assert [line.get_ydata()[0] for line in value.get_lines() if line.get_linestyle() in ("--", ":")] == [10.0, 4.0]


def test_critic_figure() -> None:
    runs = {"a": [CriticRun([1.0 + 0.1 * i, 0.5], []) for i in range(10)]}
    (ax,) = critic_figure(runs).axes
    (line,) = ax.get_lines()
    assert line.get_label() == "a" and [*line.get_xdata()] == [1, 2]
    assert [*line.get_ydata()] == pytest.approx([1.45, 0.5]) and len(ax.collections) == 1


def test_scatter_figure() -> None:
    found = Explained(torch.tensor([1.0, 2.0]), torch.tensor([0.0, 3.0]), 0.25, -3.0)
    figure = scatter_figure({"one": found, "two": found})
    assert [ax.get_title() for ax in figure.axes] == ["one", "two"]
    dots, diagonal = figure.axes[0].get_lines()
    assert [*dots.get_xdata()] == [1, 2] and [*dots.get_ydata()] == [0, 3]
    assert [*diagonal.get_xdata()] == [*diagonal.get_ydata()] == [1, 2]
    assert figure.axes[1].texts[0].get_text() == "logged EV 0.25\ntrue EV -3.00"
