"""What was counted for notebook 16: activations and the plan, attention with and without scores, time, the bubble."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ppo_lab.course.experiments.memory import EVERY, FAMILIES, Counted
from ppo_lab.course.recordings import Recording
from ppo_lab.scale.memory import bubble

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#999999"
NAMES = {None: "nothing", 4: "every 4th", 2: "every 2nd", 1: "every block"}
MICRO = (1, 2, 4, 8, 16, 32, 64)


def activations_figure(counted: Sequence[Counted]) -> Figure:
    """Bytes kept, a bar each; the plan is a black line across its bar."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.8, 3.1), dpi=100)
    axes = figure.subplots()
    figure.subplots_adjust(0.09, 0.17, 0.985, 0.95)
    kept = {(c.family, c.every): c for c in counted}
    for f, (family, color) in enumerate(zip(FAMILIES, (BLUE, GREEN, ORANGE), strict=True)):
        for i, every in enumerate(EVERY):
            x, one = i + 0.27 * (f - 1), kept[family, every]
            axes.bar(x, one.kept / 1e6, 0.24, color=color, label=family if i == 0 else None)
            label = "planned" if (f, i) == (0, 0) else None
            axes.plot([x - 0.14, x + 0.14], [one.planned / 1e6] * 2, color="black", lw=2, label=label)
    axes.set_xticks(range(len(EVERY)), [NAMES[every] for every in EVERY])
    axes.set(xlabel="blocks recomputed", ylabel="MB kept for the backward pass")
    axes.legend(frameon=False, fontsize=9)
    return figure


def attention_figure(bytes_a_token: Mapping[str, Sequence[float]], lengths: Sequence[int]) -> Figure:
    """Bytes a token over the length: the scores are a number a pair of tokens, the rest is not."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.6, 2.9), dpi=100)
    axes = figure.subplots()
    figure.subplots_adjust(0.13, 0.18, 0.97, 0.95)
    names = {"eager": "scores kept", "fused": "scores recomputed (fused attention)"}
    for kind, color in (("eager", ORANGE), ("fused", BLUE)):
        axes.plot(lengths, [x / 1e3 for x in bytes_a_token[kind]], "o-", color=color, lw=2, label=names[kind])
    axes.set(xlabel="tokens of a sequence", ylabel="kB kept, a token", ylim=(0, None))
    axes.set_xticks(lengths)
    axes.legend(frameon=False, fontsize=9)
    return figure


def time_figure(recording: Recording, operations: Mapping[int, float]) -> Figure:
    """Extra CPU time of a forward and backward, a dot a seed, beside the extra operations."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.6, 2.9), dpi=100)
    axes = figure.subplots()
    figure.subplots_adjust(0.13, 0.18, 0.97, 0.95)
    settings = [every for every in EVERY if every is not None]
    for i, every in enumerate(settings):
        extra = [100 * (ratio - 1) for ratio in recording.column("ratio", every=every)]
        axes.plot([i + 0.02 * (j - len(extra) / 2) for j in range(len(extra))], extra, "o", color=BLUE, ms=5, alpha=0.7,
                  label="time, one seed" if i == 0 else None)  # fmt: skip
        axes.plot([i - 0.22, i + 0.22], [100 * operations[every]] * 2, color="black", lw=2,
                  label="operations" if i == 0 else None)  # fmt: skip
    axes.set_xticks(range(len(settings)), [NAMES[every] for every in settings])
    axes.set(xlabel="blocks recomputed", ylabel="more than without, %", ylim=(0, None))
    axes.legend(frameon=False, fontsize=9, loc="upper left")
    return figure


def bubble_figure(stages: Sequence[int] = (2, 4, 8)) -> Figure:
    """Share of time that a stage waits, over the number of micro-batches."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.6, 2.9), dpi=100)
    axes = figure.subplots()
    figure.subplots_adjust(0.13, 0.18, 0.97, 0.95)
    for pipeline, color in zip(stages, (BLUE, GREEN, ORANGE), strict=True):
        waits = [100 * bubble(m, pipeline=pipeline) for m in MICRO]
        axes.plot(MICRO, waits, "o-", color=color, lw=2, label=f"{pipeline} stages")
    axes.set(xscale="log", xlabel="micro-batches of one step", ylabel="waiting, % of the time", ylim=(0, 100))
    axes.set_xticks(MICRO, [str(m) for m in MICRO])
    axes.minorticks_off()
    axes.legend(frameon=False, fontsize=9)
    return figure
