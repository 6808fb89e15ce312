"""Panel of notebook 09: label noise and number of pairs against what came out, five recorded draws of every setting."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from ppo_lab.course.experiments.preferences import NOISES, PAIRS, unpacked
from ppo_lab.course.panels import Panel, Slider, Steps
from ppo_lab.course.recordings import load

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#999999"
DRAWS = 5


@cache
def cells() -> dict[tuple[int, float], list[dict[str, Any]]]:
    """The first draws of every (pairs, noise), in order."""
    found: dict[tuple[int, float], list[dict[str, Any]]] = {}
    for row in load("reward_models").rows:
        if row["draw"] < DRAWS:
            found.setdefault((row["pairs"], row["noise"]), []).append(row)
    return found


def facts(*, pairs: int, noise: float, draw: float, threshold: float) -> dict[str, Any]:
    """One draw, the others of its cell, and who passes the threshold on held-out labels."""
    cell = cells()[pairs, noise]
    one = cell[int(draw) - 1]
    accuracies = [row["accuracy"] for row in cell]
    passed = sum(accuracy >= threshold for accuracy in accuracies)
    return {
        "one": one, "accuracy": one["accuracy"], "clean": one["clean"], "kappa": one["kappa"], "ece": one["ece"],
        "train": one["train"], "passes": one["accuracy"] >= threshold, "passed": passed, "low": min(accuracies),
        "high": max(accuracies), "words": "passes" if one["accuracy"] >= threshold else "is refused",
        "cells": {n: [row["accuracy"] for row in cells()[n, noise]] for n in PAIRS}, "bins": unpacked(one["bins"]),
        "lowest_clean": min(row["clean"] for row in cell),
    }  # fmt: skip


def build(figure: Figure) -> dict[str, Any]:
    """Left: accuracy of every draw over the number of pairs. Right: can the chosen draw's certainty be believed?"""
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    figure.subplots_adjust(0.08, 0.15, 0.98, 0.91, 0.26)
    left.set(xscale="log", xlim=(PAIRS[0] / 1.6, PAIRS[-1] * 1.4), ylim=(0.42, 1.0), xlabel="training pairs",
             ylabel="held-out pair accuracy")  # fmt: skip
    left.set_xticks(PAIRS, [f"{n:,}" for n in PAIRS])
    left.minorticks_off()
    left.set_title("five draws of each number", fontsize=10, loc="left")
    left.axhline(0.5, color=GREY, lw=0.8)
    left.text(PAIRS[0] / 1.57, 0.503, "a coin", color="#666666", fontsize=9, ha="left", va="bottom")
    right.plot([0.5, 1], [0.5, 1], color=GREY, lw=0.8)
    right.set(xlim=(0.48, 1.02), ylim=(0.2, 1.03), xlabel="confidence σ(|Δ|)", ylabel="share ordered rightly")
    right.set_title("this draw: calibration", fontsize=10, loc="left")
    artists: dict[str, Any] = {"threshold": left.axhline(0.75, color="black", ls="--", lw=1)}
    (artists["dots"],) = left.plot([], [], "o", color=BLUE, ms=6, alpha=0.65, mec="none", label="a draw")
    (artists["mark"],) = left.plot([], [], "o", ms=12, mfc="none", mec=ORANGE, mew=2.2, label="this draw")
    artists["bins"] = right.scatter([], [], color=ORANGE)
    left.legend(loc="upper left", frameon=False, fontsize=9)
    return artists


def draw(artists: Mapping[str, Any], found: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Move dots, the ring, the threshold and the bins."""
    spread = [1 + 0.05 * (i - (DRAWS - 1) / 2) for i in range(DRAWS)]
    points = [(n * s, y) for n, ys in found["cells"].items() for s, y in zip(spread, ys, strict=True)]
    artists["dots"].set_data([x for x, _ in points], [y for _, y in points])
    artists["mark"].set_data([settings["pairs"] * spread[int(settings["draw"]) - 1]], [found["accuracy"]])
    artists["threshold"].set_ydata([settings["threshold"]] * 2)
    artists["bins"].set_offsets([(sure, right) for sure, right, _ in found["bins"]])
    artists["bins"].set_sizes([max(6.0, 1.5 * count) for *_, count in found["bins"]])


def reward_models_panel() -> Panel:
    """How many pairs, how noisy, which draw, and how good is good enough."""
    return Panel(
        "Lesson or luck",
        controls=(
            Steps("pairs", "training pairs", 1000, PAIRS, "{:,}"),
            Steps("noise", "label noise", 0.15, NOISES),
            Slider("draw", "draw", 1, 1, DRAWS, 1, 0),
            Slider("threshold", "good enough", 0.75, 0.55, 0.9, 0.05),
        ),
        facts=facts,
        build=build,
        draw=draw,
        table={
            "two raters agree, κ": "{kappa:.2f}",
            "this draw, held-out labels": "{accuracy:.2f} ({words})",
            "on the true preferences": "{clean:.2f}",
            "on its training labels": "{train:.2f}",
            "calibration error": "{ece:.2f}",
            "draws that pass": "{passed} of 5",
        },
        alt="{pairs:,} pairs, label noise {noise:g} (κ {kappa:.2f}): this draw has accuracy {accuracy:.2f} and "
        "{words}; {passed} of 5 draws pass. Accuracies from {low:.2f} to {high:.2f}.",
        missions=(
            (
                "luck: at 0.6 or more asked for, this draw passes and most of its sisters do not",
                lambda f, s: s["threshold"] >= 0.6 and f["passes"] and f["passed"] <= 2,
            ),
            (
                "raters who agree too little (κ below 0.6), and still 75 of 100 true preferences right",
                lambda f, s: f["kappa"] < 0.6 and f["clean"] >= 0.75,
            ),
            (
                "so sure, so wrong: a calibration error above 0.15",
                lambda f, s: f["ece"] > 0.15,
            ),
        ),
    )
