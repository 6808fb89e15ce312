"""Runs of many seeds in one picture: every seed thin, their mean thick."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLORS = ("#0072B2", "#D55E00", "#009E73", "#7A4FA3")
GREY = "#999999"


def curves_figure(curves: Mapping[str, Tensor], *, best: float, ylabel: str = "J, exact") -> Figure:
    """Learning curves, one panel a label, (seeds, steps + 1) each, under the line of the best policy."""
    figure, axes = _figure(len(curves), (8.2, 3.0))
    single = True
    for i, (ax, (label, runs), color) in enumerate(zip(axes, curves.items(), COLORS, strict=False)):
        ax.axhline(best, color=GREY, ls="--", lw=1)
        ax.plot(runs.T, color=color, lw=0.6, alpha=0.35)
        ax.plot(runs.mean(0), color="black", lw=2, label="mean of the seeds")
        ax.set(title=label, xlabel="gradient steps", ylabel=ylabel if i == 0 else "")
        single = single and len(runs) == 1
    if not single:
        axes[0].legend(loc="lower right", fontsize=9, frameon=False)
    return figure


def sweep_figure(
    sweeps: Mapping[str, tuple[Sequence[float], Tensor]],
    *,
    xlabels: Sequence[str],
    best: float,
    ylabel: str = "final J",
) -> Figure:
    """Results over a setting, one panel a label: settings (N,) on a log axis, results (seeds, N)."""
    figure, axes = _figure(len(sweeps), (8.2, 3.0))
    for i, (ax, (label, (settings, results)), color) in enumerate(zip(axes, sweeps.items(), COLORS, strict=False)):
        ax.axhline(best, color=GREY, ls="--", lw=1)
        for row in results:
            ax.plot(settings, row, ".", color=color, ms=4, alpha=0.35)
        ax.plot(settings, results.mean(0), "-", color="black", lw=2, label="mean of the seeds")
        ax.set(title=label, xlabel=xlabels[i], xscale="log", ylabel=ylabel if i == 0 else "")
    axes[0].legend(loc="lower right", fontsize=9, frameon=False)
    return figure


def _figure(panels: int, size: tuple[float, float]):  # type: ignore[no-untyped-def]
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, dpi=100)
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, panels, sharey=True, squeeze=False)[0]
    figure.subplots_adjust(0.08, 0.17, 0.985, 0.9, 0.06)
    for ax in axes:
        ax.title.set_fontsize(10)
        ax.tick_params(labelsize=9)
    return figure, axes


def cut_figure(offsets: Sequence[float], worlds: Tensor, bandit: Tensor, *, claimed: tuple[float, float]) -> Figure:
    """Share of the variance that a baseline takes off, over the zero of the rewards.

    Args:
        offsets: what was added to every reward, (N,).
        worlds: the share in random worlds, (worlds, N).
        bandit: the exact share on a bandit, (N,).
        claimed: low and high of the share that write-ups name, shaded.
    """
    figure, (ax,) = _figure(1, (8.2, 3.2))
    figure.subplots_adjust(0.09, 0.16, 0.985, 0.97)
    ax.axhspan(*claimed, color=GREY, alpha=0.25, lw=0, label="claimed")
    for i, row in enumerate(worlds):
        ax.plot(offsets, row, ".-", color=COLORS[0], lw=0.5, ms=4, alpha=0.5, label="random worlds" if i == 0 else "")
    ax.plot(offsets, worlds.mean(0), color="black", lw=2, label="their mean")
    ax.plot(offsets, bandit, "s-", color=COLORS[1], lw=2, ms=5, label="a bandit, exact")
    ax.set(xlabel="added to every reward", ylabel="share of the variance taken off")
    ax.legend(loc="lower right", fontsize=9, frameon=False)
    return figure
