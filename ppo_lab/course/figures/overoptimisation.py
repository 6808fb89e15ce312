"""Gold beside the proxy, over the distance from the reference; what else a pressed policy loses; switches in pairs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ppo_lab.course.experiments.pressed import Rows, ends, gained, runs
from ppo_lab.course.figures.trust import mean, sheet

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#999999"
COLORS = (BLUE, ORANGE, GREEN)
ROOT = "√KL(π‖reference), √nats"


def half_width(values: Sequence[float]) -> float:
    """Half of Student's 95 % interval of the mean.

    >>> round(half_width([1.0, 2.0, 3.0, 4.0, 5.0]), 3)
    1.963
    """
    from scipy.special import stdtrit

    n, center = len(values), mean(values)
    error = math.sqrt(sum((x - center) ** 2 for x in values) / (n - 1) / n)
    return float(stdtrit(n - 1, 0.975)) * error


def curve(found: Sequence[Rows], key: str) -> dict[str, list[float]]:
    """Mean over the seeds at each step of √KL and of ``key`` (``gained``: gold in deviations), and interval widths."""
    def column(run: Rows) -> list[float]:
        if key == "gained":
            return gained(run)
        start = run[0][key] if key == "proxy" else 0.0  # of a mean over a few answers, not quite 0
        return [row[key] - start for row in run]

    roots = [[math.sqrt(max(row["kl"], 0.0)) for row in run] for run in found]
    ys = [column(run) for run in found]
    at = [*zip(*ys, strict=True)]
    return {"x": [mean(x) for x in zip(*roots, strict=True)], "y": [mean(y) for y in at],
            "half": [half_width(y) for y in at]}  # fmt: skip


def draw_curve(axes: Any, found: Sequence[Rows], key: str, color: str, label: str, style: str = "o-") -> None:
    """A line through the means, a bar a point for the interval."""
    got = curve(found, key)
    axes.errorbar(got["x"], got["y"], got["half"], fmt=style, color=color, ms=4, lw=1.8, elinewidth=0.9, label=label)


def pairs_figure(rows: Rows, best_of: Rows, arms: Mapping[str, str]) -> Figure:
    """An axis a reward model: proxy and gold of PPO, solid, and of best-of-n, dashed, in one unit over √KL."""
    figure, axes = sheet(len(arms), size=(9.6, 3.5))
    figure.subplots_adjust(0.06, 0.16, 0.99, 0.88, 0.16)
    for ax, (arm, title) in zip(axes, arms.items(), strict=True):
        ax.axhline(0, color=GREY, lw=0.8)
        ppo, bon = runs(rows, arm), runs(best_of, arm)
        for key, color, name in (("proxy", ORANGE, "proxy"), ("gained", BLUE, "gold")):
            draw_curve(ax, ppo, key, color, f"{name}, PPO")
            draw_curve(ax, bon, key, color, f"{name}, best-of-n", "s--")
        ax.set_title(title, fontsize=10, loc="left")
        ax.set_xlabel(ROOT)
    top = max(ax.get_ylim()[1] for ax in axes)
    low = min(ax.get_ylim()[0] for ax in axes)
    for ax in axes:
        ax.set_ylim(low, top)
    axes[0].set_ylabel("deviations of the untouched policy")
    axes[0].legend(loc="upper left", frameon=False, fontsize=8)
    return figure


def arms_figure(rows: Rows, left: Mapping[str, str], right: Mapping[str, str]) -> Figure:
    """Gold over √KL for two sets of arms, and the share of grammatical texts for the second."""
    figure, axes = sheet(3, size=(9.6, 3.3))
    figure.subplots_adjust(0.06, 0.17, 0.99, 0.88, 0.2)
    titles = ("gold, deviations", "gold, deviations", "grammatical texts")
    for ax, arms, key, title in zip(axes, (left, right, right), ("gained", "gained", "grammatical"), titles,
                                    strict=True):  # fmt: skip
        for (arm, name), color in zip(arms.items(), COLORS, strict=False):
            draw_curve(ax, runs(rows, arm), key, color, name)
        ax.set_title(title, fontsize=10, loc="left")
        ax.set_xlabel(ROOT)
    for ax in axes[:2]:
        ax.axhline(0, color=GREY, lw=0.8)
        ax.legend(loc="lower right", frameon=False, fontsize=8)
    axes[2].set_ylim(-0.02, 1.04)
    return figure


def diversity_figure(rows: Rows, arms: Mapping[str, str], cold: str) -> Figure:
    """Left: distinct-2 by arm at temperature 1. Middle, right: distinct-2, and repeated words, over the temperature."""
    figure, (left, middle, right) = sheet(3, size=(9.6, 3.2))
    figure.subplots_adjust(0.06, 0.22, 0.99, 0.88, 0.22)
    warm = [row for row in rows if row["temperature"] == 1]
    for x, arm in enumerate(arms):
        found = [row["distinct_2"] for row in warm if row["arm"] == arm]
        left.plot([x] * len(found), found, "o", color=GREY, ms=4, alpha=0.7, mec="none")
        left.errorbar([x], [mean(found)], [half_width(found)], fmt="o", color=ORANGE if x else BLUE, ms=7, capsize=3)
    left.set_xticks(range(len(arms)), [*arms.values()], fontsize=8)
    left.set(xlim=(-0.5, len(arms) - 0.5))
    left.set_ylim(bottom=0)
    left.set_title("distinct-2 of 512 answers", fontsize=10, loc="left")
    for ax, key, title in ((middle, "distinct_2", "distinct-2"), (right, "repeated", "words said again")):
        for arm, color, name in (("untouched", BLUE, "untouched"), (cold, ORANGE, arms[cold].replace("\n", " "))):
            temperatures = sorted({row["temperature"] for row in rows if row["arm"] == arm})
            at = [[row[key] for row in rows if row["arm"] == arm and row["temperature"] == t] for t in temperatures]
            ax.errorbar(temperatures, [*map(mean, at)], [*map(half_width, at)], fmt="o-", color=color, ms=5, lw=1.8,
                        capsize=3, label=name)  # fmt: skip
        ax.set_xlabel("sampling temperature")
        ax.set_ylim(bottom=0)
        ax.set_title(title, fontsize=10, loc="left")
    middle.legend(loc="lower right", frameon=False, fontsize=8)
    return figure


def switches_figure(rows: Rows, base: str, arms: Mapping[str, str]) -> Figure:
    """Gold and grammatical share at the end, each seed joined with the run without the switch."""
    figure, axes = sheet(2, size=(9.6, 3.2))
    figure.subplots_adjust(0.06, 0.16, 0.99, 0.88, 0.14)
    for ax, key, title in zip(axes, ("gold", "grammatical"), ("gold at the end", "grammatical at the end"),
                              strict=True):  # fmt: skip
        before = ends(rows, base, key)
        for x, arm in enumerate(arms):
            after = ends(rows, arm, key)
            for pair in zip(before, after, strict=True):
                ax.plot([x - 0.2, x + 0.2], pair, color=GREY, lw=1)
            ax.plot([x - 0.2] * len(before), before, "o", color=BLUE, ms=5, label="without" if x == 0 else None)
            ax.plot([x + 0.2] * len(after), after, "o", color=ORANGE, ms=5, label="with" if x == 0 else None)
        ax.set_xticks(range(len(arms)), [*arms.values()], fontsize=9)
        ax.set_title(title, fontsize=10, loc="left")
    axes[0].legend(frameon=False, fontsize=8, loc="lower right", bbox_to_anchor=(1, 0.98), ncols=2)  # clear of all dots
    return figure


SIGNALS = {"score_mean": "score", "gold_mean": "gold (hidden in real runs)", "ref_kl_sum": "KL, nats a review",
           "distinct_2": "distinct-2"}  # fmt: skip


def signals_figure(rows: Rows) -> Figure:
    """Four curves of a log, a step apart: what is optimised, what was meant, how far, how varied."""
    figure, axes = sheet(len(SIGNALS), size=(9.6, 2.4))
    figure.subplots_adjust(0.05, 0.2, 0.99, 0.86, 0.24)
    for ax, (key, title) in zip(axes, SIGNALS.items(), strict=True):
        ax.plot([row["step"] for row in rows], [row[key] for row in rows], color=BLUE, lw=2)
        ax.set_title(title, fontsize=10, loc="left")
        ax.set_xlabel("step")
    return figure
