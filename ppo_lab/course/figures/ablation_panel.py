"""Panel of notebook 07: two settings side by side in recorded runs, with as many seeds as a reader can afford."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from ppo_lab.course.experiments.what_matters import BASE, CARTPOLE
from ppo_lab.course.figures.ablation import Rows, paired, told, values
from ppo_lab.course.figures.gae_study import mean
from ppo_lab.course.panels import Choice, Panel, Slider
from ppo_lab.course.recordings import load

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ENV, BLUE, ORANGE, GREY = "CartPole-v1", "#0072B2", "#D55E00", "#999999"
SPEED = "steps until 195"
MEASURES = {"mean over the run": "area", "last quarter": "final", SPEED: "reach"}
MIDDLE = 5.2  # where the mean stands beside the seeds
NAMES = tuple(switch.name for switch in CARTPOLE)


@cache
def runs() -> Rows:
    """The recorded CartPole runs."""
    return [row for row in load("what_matters").rows if row["env"] == ENV]


def curves(switch: str, seeds: int) -> list[list[float]]:
    """Return in each span of the run, of the first so many seeds."""
    return [[float(x) for x in text.split()] for text in values(runs(), "curve", switch=switch)[:seeds]]


def facts(*, left: str, right: str, what: str, seeds: int) -> dict[str, Any]:
    """What is drawn, and what the first seeds say against what all of them say."""
    key, seeds = MEASURES[what], int(seeds)
    every = paired(runs(), key, right, left)
    some = every[:seeds]
    center = mean(some)
    error = math.nan
    if seeds > 1:
        error = math.sqrt(sum((x - center) ** 2 for x in some) / (seeds - 1) / seeds)
    side = told(some) if seeds > 1 else 0
    words = {-1: "lower", 0: "cannot tell", 1: "higher"}[side] if seeds > 1 else "one run: no telling"
    return {
        "left_curves": curves(left, seeds), "right_curves": curves(right, seeds), "differences": some,
        "mean": center, "error": error, "all": mean(every), "told": side, "words": words,
        "flipped": center * mean(every) < 0, "all_told": told(every),
        "error_text": "none" if seeds == 1 else f"{error:.0f}",
    }  # fmt: skip


def build(figure: Figure) -> dict[str, Any]:
    """Curves on the left, paired differences on the right."""
    figure.subplots_adjust(0.08, 0.15, 0.985, 0.9)
    grid = figure.add_gridspec(1, 2, width_ratios=(3, 1.25), wspace=0.24)
    axes, beside = figure.add_subplot(grid[0]), figure.add_subplot(grid[1])
    artists: dict[str, Any] = {"beside": beside}
    for side, color in (("left", BLUE), ("right", ORANGE)):
        artists[side] = [axes.plot([], [], color=color, lw=0.8, alpha=0.4)[0] for _ in range(5)]
        (artists[f"{side}_mean"],) = axes.plot([], [], color=color, lw=2.6, label=side)
    axes.set(xlim=(0, 31), ylim=(0, 520), xlabel="thousand steps of CartPole", ylabel="return of an episode")
    artists["legend"] = axes.legend(loc="upper left", fontsize=9, frameon=False)
    beside.axhline(0, color="black", lw=0.8)
    (artists["dots"],) = beside.plot([], [], "o", color=GREY, ms=6)
    (artists["bar"],) = beside.plot([], [], color="black", lw=2.5)
    (artists["center"],) = beside.plot([], [], "D", color="black", ms=7)
    beside.set(xlim=(-0.5, 5.9), xlabel="seed")
    beside.set_xticks([*range(5), MIDDLE], [*map(str, range(5)), "mean"])
    beside.set_title("orange − blue, paired", fontsize=10, loc="left")
    return artists


def draw(artists: Mapping[str, Any], found: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Move curves, dots and the bar of three standard errors."""
    spans = len(found["left_curves"][0])
    x = [(i + 0.5) * 30.72 / spans for i in range(spans)]
    for side, text in zip(("left", "right"), artists["legend"].get_texts(), strict=True):
        lines = found[f"{side}_curves"]
        for i, line in enumerate(artists[side]):
            line.set_data(x, lines[i]) if i < len(lines) else line.set_data([], [])
        artists[f"{side}_mean"].set_data(x, [mean(column) for column in zip(*lines, strict=True)])
        text.set_text(settings[side])
    differences = found["differences"]
    artists["dots"].set_data(range(len(differences)), differences)
    artists["center"].set_data([MIDDLE], [found["mean"]])
    reach = 3 * found["error"] if len(differences) > 1 else 0.0
    artists["bar"].set_data([MIDDLE] * 2, [found["mean"] - reach, found["mean"] + reach])
    most = 1.15 * max(abs(found["mean"]) + reach, *map(abs, differences), 10.0)
    artists["beside"].set_ylim(-most, most)


def ablation_panel() -> Panel:
    """Which two, judged by what, on how many seeds."""
    return Panel(
        "What one detail does",
        controls=(
            Choice("left", "blue", BASE, NAMES),
            Choice("right", "orange", "value clip 0.2", NAMES),
            Choice("what", "judged by", "mean over the run", tuple(MEASURES)),
            Slider("seeds", "seeds looked at", 5, 1, 5, 1, 0),
        ),
        facts=facts,
        build=build,
        draw=draw,
        table={
            "difference, these seeds": "{mean:+.0f}",
            "its standard error": "{error_text}",
            "told by three of them": "{words}",
            "difference, all seeds": "{all:+.0f}",
        },
        alt="{right} less {left}, {what}, {seeds:.0f} seeds: {mean:+.0f} ({words}).",
        missions=(
            (
                "one seed says the opposite of all five, by more than 30 points of return",
                lambda f, s: s["seeds"] == 1 and s["what"] != SPEED and f["flipped"] and abs(f["mean"]) > 30,
            ),
            (
                "two seeds tell a difference that five seeds no longer tell",
                lambda f, s: s["seeds"] == 2 and f["told"] != 0 and f["all_told"] == 0,
            ),
            (
                "five seeds, more than 60 points of return apart, and still no telling",
                lambda f, s: s["seeds"] == 5 and s["what"] != SPEED and f["told"] == 0 and abs(f["mean"]) > 60,
            ),
        ),
        size=(8.2, 3.6),
    )
