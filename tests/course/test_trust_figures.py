"""Figures of notebook 04: what they draw."""

from __future__ import annotations

import math

import pytest

from ppo_lab.course.experiments.reuse import Epoch, Round, config
from ppo_lab.course.figures import trust

CFG = config("clip", 1)


def lines(axes) -> dict[str, list[float]]:
    return {line.get_label(): [*line.get_ydata()] for line in axes.get_lines()}


def test_two_doors_by_hand() -> None:
    """J(p) = p (1 - p); inside the band the surrogate promises (p' - p)(1 - 2p)."""
    found = trust.doors()
    for ratio, J, promise, clipped in zip(*found.values(), strict=True):
        p, q = 0.48, 0.48 * ratio
        assert pytest.approx(q * (1 - q) - p * (1 - p), abs=1e-12) == J
        assert pytest.approx((q - p) * (1 - 2 * p), abs=1e-12) == promise
        assert clipped <= promise + 1e-12
    best = max(range(len(found["ratio"])), key=found["clipped"].__getitem__)
    facts = trust.promise_facts()
    assert [facts["promised"], facts["gained"]] == pytest.approx([12 / 3125, -84 / 15625], abs=1e-12)
    assert found["ratio"][best] == facts["ratio"] == 1.2 and found["clipped"][best] > 0 > found["J"][best]


def test_the_bound_is_never_above_J_and_allows_a_tiny_step_only() -> None:
    line = trust.bound_on_a_line()
    assert all(b <= j + 1e-12 for b, j in zip(line["bound"], line["J"], strict=True))
    best = max(range(len(line["bound"])), key=line["bound"].__getitem__)
    assert line["bound"][best] > 0 and line["kl"][best] < 1e-4 and max(line["kl"]) > 0.1
    assert line["kl"] == sorted(line["kl"])


def test_the_promise_is_drawn_as_computed() -> None:
    left, right = trust.promise_figure().axes
    assert lines(left)["J gains"] == trust.doors()["J"]
    assert lines(left)["clipped surrogate promises"] == trust.doors()["clipped"]
    assert lines(right)["the TRPO bound guarantees"] == trust.bound_on_a_line()["bound"]


def test_reuse_draws_means_of_the_seeds() -> None:
    rows = [{"method": m, "epochs": k, "seed": s, "gain": 0.1 * s + k / 100, "kl": k / 50 + 0.01 * s}
            for m in ("clip", "TRPO") for k in (1, 10) for s in range(10)]  # fmt: skip
    left, right = trust.reuse_figure(rows).axes
    assert [*right.get_lines()[0].get_ydata()] == pytest.approx([0.065, 0.245])
    (first, _) = left.containers
    assert [*first.lines[0].get_ydata()] == pytest.approx([0.46, 0.55])
    assert [c.get_label() for c in left.containers] == ["clip", "TRPO"]


def test_one_batch_draws_means_and_the_bound_of_the_band() -> None:
    seen = [[Epoch(0.0, kl * s, 0.1 * s, 0.0, 0.0) for kl in (0.1, 0.2)] for s in (1, 3)]
    left, right = trust.batch_figure({"surrogate": seen, "clip": seen}, clip=0.2).axes
    drawn = lines(left)
    assert drawn["clip"] == drawn["surrogate"] == pytest.approx([0.2, 0.4])
    assert drawn["all ratios in the band"] == pytest.approx([-math.log(0.8)] * 2)
    assert lines(right)["clip"] == pytest.approx([0.2, 0.2]) and "surrogate" not in lines(right)


def test_control_draws_a_line_a_rule() -> None:
    runs = [[Round(0.0, kl * s, 0.0, CFG, None) for kl in (0.1, 0.02)] for s in (1, 3)]
    left, right = trust.control_figure({"fixed": runs}, {"fixed": runs, "other": runs}, target=0.01).axes
    assert lines(left)["fixed"] == pytest.approx([0.2, 0.04]) and {*lines(right)} == {"target", "fixed", "other"}


def test_the_table_says_where_the_gradient_is_exactly_zero() -> None:
    assert trust.gradient_table(0.2) == {"A > 0": [1.0, 1.0, 0.0], "A < 0": [0.0, -1.0, -1.0]}
