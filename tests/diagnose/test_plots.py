"""Panels draw the rows, all of them and nothing else, whatever the rows are."""

import warnings

import numpy as np
import pytest
from diagnose.drawing import CURVES, draw, lines_of, texts
from diagnose.synthetic import rows
from matplotlib.figure import Figure

from ppo_lab.diagnose import style
from ppo_lab.diagnose.calibration import calibration
from ppo_lab.diagnose.curves import MOST_POINTS, curve, series, thin
from ppo_lab.diagnose.plots import PANELS
from ppo_lab.metrics import GROUPS, REGISTRY
from ppo_lab.records import HISTOGRAM_EDGES

BANDS = {"reference": "ref_kl_sum", "step": "policy_kl_k3", "clip": "clip_fraction", "gradient": "gradient_norm",
         "value": "explained_variance"}  # fmt: skip
OKABE_ITO = {style.BLUE, style.VERMILLION, style.GREEN, style.ORANGE, style.PURPLE, style.SKY}


@pytest.fixture(autouse=True)
def _strict():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def test_panels_are_the_groups_of_the_registry():
    assert list(PANELS) == list(GROUPS) == list(CURVES)
    for panel, (left, right) in CURVES.items():
        assert all(REGISTRY[name].group == panel for name in left + right)


@pytest.mark.parametrize("panel", PANELS)
def test_what_is_drawn_equals_the_rows(panel):
    data = rows(40)
    sheet = draw(panel, data)
    left, *right = sheet.axes
    assert set(lines_of(left)) == set(CURVES[panel][0])
    assert [set(lines_of(ax)) for ax in right] == ([set(CURVES[panel][1])] if CURVES[panel][1] else [])
    for axes in sheet.axes:
        for name, line in lines_of(axes).items():
            measured = [(row["step"], row[name]) for row in data if name in row]
            assert np.array_equal(np.column_stack(line.get_data()), np.array(measured, dtype=float))
    assert left.get_title(loc="left") == GROUPS[panel]
    assert left.get_ylabel() and left.get_xlabel() == ("log ratio, nats" if panel == "ratio" else "step")


def test_time_is_stacked_in_the_order_of_the_step():
    data = rows(12)
    (left, _) = draw("cost", data).axes
    below = np.zeros(12)
    for patch, name in zip(left.patches, ("seconds_rollout", "seconds_score", "seconds_update"), strict=True):
        values, edges, base = patch.get_data()
        seconds = np.array([row[name] for row in data])
        assert patch.get_gid() == name
        assert np.array_equal(edges, np.arange(13) + 0.5)
        assert np.allclose(base, below, rtol=0, atol=1e-12) and np.allclose(values, below + seconds, rtol=0, atol=1e-12)
        below = below + seconds


def test_the_ratio_histogram_shows_the_last_step_and_the_first():
    data = rows(5)
    (ax,) = draw("ratio", data).axes
    floor = 0.5 / 5600
    for patch, row in zip(ax.patches, (data[-1], data[0]), strict=True):
        values, edges, base = patch.get_data()
        assert np.allclose(values, np.maximum(np.array(row["log_ratio_histogram"]) / 5600, floor), rtol=1e-12)
        assert len(edges) == 42 and np.allclose(edges[1:-1], HISTOGRAM_EDGES) and np.all(base == floor)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["step 5", "step 1"]


@pytest.mark.parametrize(("panel", "name"), BANDS.items())
def test_the_band_is_the_registry_s(panel, name):
    data = rows(40)
    data[7][name] = 2 * REGISTRY[name].healthy[1]  # so that an edge is in sight
    left = draw(panel, data).axes[0]
    (span,) = [patch for patch in left.patches if patch.get_gid() == f"{name} band"]
    corners = span.get_extents().transformed(left.transData.inverted())
    assert (corners.y0, corners.y1) == pytest.approx(REGISTRY[name].healthy, rel=1e-9, abs=1e-9)
    assert len([patch for patch in left.patches if "band" in (patch.get_gid() or "")]) == 1


def test_panels_without_a_number_that_is_good_in_itself_have_no_band():
    for panel in set(PANELS) - set(BANDS):
        assert not [patch for patch in draw(panel, rows(4)).axes[0].patches if "band" in (patch.get_gid() or "")]


@pytest.mark.parametrize("panel", PANELS)
def test_on_grey_paper_dashes_tell_the_curves_apart(panel):
    with style.styled():
        drawn = [line for axes in draw(panel, rows(40)).axes for line in lines_of(axes).values()]
    looks = [(line._unscaled_dash_pattern[1], line.get_marker()) for line in drawn]
    assert len(set(map(str, looks))) == len(looks)
    assert {line.get_color() for line in drawn} <= OKABE_ITO | {style.NOTE}


def test_the_baseline_is_drawn_at_step_0_and_as_a_level():
    start = {"eval_score": -0.05, "eval_objective": -0.05, "eval_gold": float("nan")}
    left, right = draw("evaluation", rows(40), baseline=start).axes
    assert lines_of(left)["eval_score"].get_xdata()[0] == 0 and lines_of(left)["eval_score"].get_ydata()[0] == -0.05
    levels = [line for line in left.get_lines() if line.get_gid() == "eval_score baseline"]
    assert [set(line.get_ydata()) for line in levels] == [{-0.05}]
    assert not [line for line in right.get_lines() if "baseline" in (line.get_gid() or "")]
    assert left.get_xlim()[0] < 0


def test_beta_is_drawn_where_it_moves():
    data = rows(6)
    assert len(draw("reference", data).axes) == 1
    for row in data:
        row["beta"] = 0.05 * 1.5 ** row["step"]
    assert set(lines_of(draw("reference", data).axes[1])) == {"beta"}


# --- what can happen to rows ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("panel", PANELS)
def test_what_was_not_measured_is_said_in_words(panel):
    said = texts(draw(panel, []))
    assert "not measured" in said and all(name in said for name in CURVES[panel][0][:1])
    assert draw(panel, [{"step": 1}]).axes[0].get_title(loc="left") == GROUPS[panel]


def test_a_part_that_was_not_measured_is_said_and_the_rest_drawn():
    data = rows(8)
    for row in data:
        del row["policy_kl_k1"], row["value_clip_fraction"]
    sheet = draw("step", data)
    assert "policy_kl_k1: not measured" in texts(sheet)
    assert set(lines_of(sheet.axes[0])) == {"policy_kl_k3"}
    assert "not measured" not in texts(draw("clip", data))  # value clipping is a choice, not a gap


@pytest.mark.parametrize("panel", PANELS)
def test_one_step_is_seen(panel):
    sheet = draw(panel, rows(1))
    for axes in sheet.axes:
        low, high = axes.get_ylim()
        for line in lines_of(axes).values():
            assert line.get_marker() not in (None, "None") and low <= line.get_ydata()[0] <= high
    low, high = sheet.axes[0].get_xlim()
    assert panel == "ratio" or (low < 1 < high and high - low <= 2)


@pytest.mark.parametrize("bad", ["nan", "inf", float("-inf")])
def test_a_number_that_is_not_finite_breaks_the_line_and_is_marked(bad):
    data = rows(30)
    for row in data[10:13]:
        row["score_mean"] = bad
    sheet = draw("reward", data)
    line = lines_of(sheet.axes[0])["score_mean"]
    assert np.isnan(line.get_ydata()).tolist() == [10 <= i < 13 for i in range(30)]
    (crosses,) = [line for line in sheet.axes[0].get_lines() if line.get_gid() == "score_mean not finite"]
    assert crosses.get_xdata().tolist() == [11, 12, 13]
    assert "× score not finite, first at step 11" in texts(sheet)
    assert all(np.isfinite(sheet.axes[0].get_ylim()))


@pytest.mark.parametrize("panel", PANELS)
def test_nothing_finite_at_all_still_draws(panel):
    data = rows(9)
    for row in data:
        row |= {name: "nan" for name in CURVES[panel][0] + CURVES[panel][1]}
        row |= {name: "inf" for name in row if name.startswith("seconds")}
    draw(panel, data)


@pytest.mark.parametrize(("panel", "name", "side"), [("reward", "score_mean", 0), ("loss", "value_loss", 1)])
@pytest.mark.parametrize("spike", [1e6, -1e9])
def test_a_spike_does_not_flatten_the_rest(panel, name, side, spike):
    data = rows(60)
    bulk = [row[name] for row in data]
    data[33][name] = spike
    sheet = draw(panel, data)
    low, high = sheet.axes[side].get_ylim()
    assert high - low < 4 * (max(bulk) - min(bulk)) + 0.5
    assert lines_of(sheet.axes[side])[name].get_ydata()[33] == spike
    sign = "▲" if spike > 0 else "▼"
    assert f"{sign} off scale, to {'1e6' if spike > 0 else '−1e9'} at step 34" in texts(sheet)


def test_a_slow_step_does_not_flatten_the_others():
    data = rows(60)
    data[33]["seconds_rollout"] = 600.0
    sheet = draw("cost", data)
    assert sheet.axes[0].get_ylim()[1] < 2 and "at step 34" in texts(sheet)


def test_a_gradient_that_explodes_is_on_the_logarithmic_scale():
    data = rows(20)
    data[9]["gradient_norm_max"] = 1e8
    ax = draw("gradient", data).axes[0]
    assert ax.get_yscale() == "log" and ax.get_ylim()[1] > 1e8


def test_ten_thousand_steps_are_thinned_and_no_extreme_is_lost():
    steps, rng = np.arange(1, 10_001), np.random.default_rng(0)
    values = rng.normal(size=10_000)
    values[4321], values[8765], values[5000:5100] = 40.0, -30.0, np.nan
    x, y = thin(steps, values)
    assert len(x) <= MOST_POINTS and np.all(np.diff(x) > 0)
    assert np.array_equal(y, values[x - 1]) and {40.0, -30.0} <= set(y.tolist())

    data = [{"step": int(step), "entropy": value} for step, value in zip(steps, values, strict=True)]
    axes = Figure().subplots()
    assert curve(axes, data, "entropy", "entropy", style.BLUE)
    assert all(len(line.get_xdata()) <= MOST_POINTS for line in axes.get_lines())
    mean = next(line for line in axes.get_lines() if line.get_gid() == "entropy mean")
    at = mean.get_xdata().astype(int)[100]
    window = values[at - 1 - 100 : at + 100]  # 201 steps around it
    assert mean.get_ydata()[100] == pytest.approx(np.nanmean(window), abs=1e-12)


def test_calibration_draws_its_bins_and_their_errors():
    bins = [{"confidence": 0.6, "accuracy": 0.5, "count": 25}, {"confidence": 0.9, "accuracy": 1.0, "count": 4},
            {"confidence": 0.7, "accuracy": 0.0, "count": 0}]  # fmt: skip
    with style.styled():
        ax = Figure().subplots()
        calibration(ax, {"bins": bins, "clean": {"bins": bins[:1]}})
        ax.figure.canvas.draw()
    lines = {line.get_gid(): line.get_xydata().tolist() for line in ax.get_lines()}
    assert lines["noisy labels"] == [[0.6, 0.5], [0.9, 1.0]] and lines["clean labels"] == [[0.6, 0.5]]
    (bar, none), _ = (c.get_segments() for c in ax.collections)
    assert np.allclose(bar, [[0.6, 0.4], [0.6, 0.6]]) and np.allclose(none, [[0.9, 1.0], [0.9, 1.0]])
    empty = Figure().subplots()
    calibration(empty, {"accuracy": 0.9})
    assert "not measured" in [text.get_text() for text in empty.texts]


def test_steps_cut_short_by_the_kl_limit_are_ticked():
    data = rows(12)
    for row in data[::3]:
        row["early_stop"] = 1
    (ticks,) = [line for line in draw("step", data).axes[0].get_lines() if line.get_gid() == "early_stop"]
    assert list(ticks.get_xdata()) == [1, 4, 7, 10]


def test_series_reads_strings_and_skips_gaps():
    gaps = [{"step": 2, "kl": "-inf"}, {"step": 3}, {"step": 4, "kl": None}, {"step": 5, "kl": 1}]
    steps, values = series(gaps, "kl")
    assert steps.tolist() == [2, 5] and values.tolist() == [-np.inf, 1]
