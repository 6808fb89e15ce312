"""What a nat buys: score and gold of trained policies against how far they went, a line a seed and a dot a leash."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ppo_lab.course.recordings import Recording

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#999999"


def betas(recording: Recording) -> list[float]:
    """The leashes, tightest first."""
    return sorted({*recording.column("beta")}, reverse=True)


def table(recording: Recording, key: str, side: str = "after") -> list[list[float]]:
    """``key`` of every run, ``[leash][seed]``, tightest leash first, seeds in the same order: columns are paired."""
    seeds = sorted({*recording.column("seed")})
    return [[recording.column(key, beta=b, seed=s, side=side)[0] for s in seeds] for b in betas(recording)]


def prices(recording: Recording, key: str = "score") -> list[list[float]]:
    """What one nat more bought between neighbouring leashes, Δkey/ΔKL, ``[step][seed]``; the first starts at no nat."""
    kl, got = table(recording, "kl"), table(recording, key)
    kl = [[0.0] * len(kl[0]), *kl]
    got = [table(recording, key, side="before")[0], *got]
    return [
        [(b - a) / (d - c) for a, b, c, d in zip(*rows, strict=True)]
        for rows in zip(got, got[1:], kl, kl[1:], strict=False)
    ]


def shape(values: list[list[float]]) -> str:
    """Whether the mean over seeds, from the tightest leash to the loosest, "rises", "falls", or "turns".

    A neighbour counts as lower where the paired difference is below 0 by two standard errors.
    """
    moves = [[b - a for a, b in zip(*pair, strict=True)] for pair in zip(values, values[1:], strict=False)]
    lower = [mean(move) + 2 * _error(move) < 0 for move in moves]
    return "rises" if not any(lower) else "falls" if all(lower) else "turns"


def _error(values: Sequence[float]) -> float:
    """Standard error of the mean."""
    center = mean(values)
    return math.sqrt(sum((x - center) ** 2 for x in values) / (len(values) - 1) / len(values))


def mean(values: Sequence[float]) -> float:
    """Plain mean."""
    return sum(values) / len(values)


def frontier_figure(recording: Recording) -> Figure:
    """Left: reward-model score, right: gold, both against KL(π‖reference); the mean over seeds is the thick line."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.2, 3.4), dpi=100)
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, 2, sharex=True)
    figure.subplots_adjust(0.07, 0.16, 0.99, 0.91, 0.16)
    kl = table(recording, "kl")
    kl = [[0.0] * len(kl[0]), *kl]
    for ax, key, title, color in (
        (axes[0], "score", "score (what was optimised)", ORANGE),
        (axes[1], "gold", "gold (never seen by PPO)", BLUE),
    ):
        _draw(ax, kl, [table(recording, key, side="before")[0], *table(recording, key)], color)
        ax.set_title(title, fontsize=10, loc="left")
        ax.set_xlabel("KL(π‖reference), nats a review")
    for i, (beta, xs, ys) in enumerate(zip(betas(recording), kl[1:], table(recording, "score"), strict=True)):
        place, side = ((7, -14), "left") if i % 2 == 0 else ((-6, 9), "right")  # neighbours on different sides
        axes[0].annotate(f"β {beta:g}", (mean(xs), mean(ys)), place, textcoords="offset points", fontsize=9,
                         ha=side, color="#212121")  # fmt: skip
    return figure


def _draw(axes: Any, kl: list[list[float]], found: list[list[float]], color: str) -> None:
    """Thin: seeds. Thick: their mean."""
    for xs, ys in zip(zip(*kl, strict=True), zip(*found, strict=True), strict=True):
        axes.plot(xs, ys, color=color, lw=0.8, alpha=0.35)
    axes.plot([*map(mean, kl)], [*map(mean, found)], "o-", color=color, lw=2.2, ms=6)
    axes.axhline(mean(found[0]), color=GREY, ls="--", lw=1)
    axes.text(0.99, mean(found[0]), "untouched policy", color=GREY, fontsize=9, ha="right", va="bottom",
              transform=axes.get_yaxis_transform())  # fmt: skip
