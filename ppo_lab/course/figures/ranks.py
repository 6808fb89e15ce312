"""Notebook 17: what each stage leaves on a rank, and where the time of a step went, against a split that is quoted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ppo_lab.course.figures.memory import PARTS
from ppo_lab.scale.memory import Setup, plan

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LASTING = ("trained weights", "gradients", "optimizer", "frozen weights")
QUOTED = {"policy": (45, 50), "value": (15, 20), "reference": (20, 25), "reward": (5, 10)}  # % of a step
PHASES = {"rollout": "#56B4E9", "score": "#0072B2", "update": "#D55E00"}
GREYS = ("#555555", "#7d7d7d", "#a5a5a5", "#cdcdcd")


def stage_bytes(setup: Setup) -> dict[int, dict[str, float]]:
    """What lasts on a rank at each stage of ZeRO, by part."""
    return {stage: plan(replace(setup, stage=stage, offload="none")).lasting for stage in range(4)}


def stages_figure(setup: Setup) -> Figure:
    """Stacked bars, one a stage."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.6, 2.9), dpi=100)
    axes = figure.subplots()
    figure.subplots_adjust(0.12, 0.17, 0.72, 0.95)
    found = stage_bytes(setup)
    start = [0.0] * len(found)
    for part in LASTING:
        sizes = [found[stage][part] / 1e6 for stage in found]
        axes.bar([*found], sizes, 0.62, bottom=start, color=PARTS[part], label=part)
        start = [a + b for a, b in zip(start, sizes, strict=True)]
    axes.set(xlabel="ZeRO stage", ylabel=f"MB on each of {setup.devices} ranks", xticks=[*found])
    axes.legend(frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(1.01, 1.0))
    return figure


def shares(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Each phase's share of the time of these steps."""
    seconds = {phase: sum(row[f"seconds_{phase}"] for row in rows) for phase in PHASES}
    return {phase: x / sum(seconds.values()) for phase, x in seconds.items()}


def split_figure(runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> Figure:
    """One bar a run, measured; below them the quoted split, at its upper ends."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.4, 2.6), dpi=100)
    axes = figure.subplots()
    figure.subplots_adjust(0.17, 0.2, 0.8, 0.95)
    for i, rows in enumerate(runs.values()):
        start = 0.0
        for phase, share in shares(rows).items():
            label = phase if i == 0 else None
            axes.barh(i, 100 * share, 0.6, left=start, color=PHASES[phase], label=label)
            start += 100 * share
    start = 0.0
    for (name, (_, high)), grey in zip(QUOTED.items(), GREYS, strict=True):
        axes.barh(len(runs), high, 0.6, left=start, color=grey)
        wide = high > 10  # else the name stands beside its bar
        axes.text(start + (high / 2 if wide else high + 1), len(runs), name, ha="center" if wide else "left",
                  va="center", fontsize=8, color="white" if grey < "#80" else "black")  # fmt: skip
        start += high
    axes.axvline(100, color="black", ls="--", lw=1)
    axes.set(xlabel="% of a step", xlim=(0, 122), yticks=range(len(runs) + 1), yticklabels=[*runs, "quoted, at most"])
    axes.invert_yaxis()
    axes.legend(frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(1.01, 1.0))
    return figure
