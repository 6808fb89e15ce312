"""Estimators of the KL in the reward and in the loss: where each pushes, a dot a language."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ppo_lab.course.experiments.estimators import Push

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#999999"


def estimators_figure(found: Sequence[Mapping[str, Push]]) -> Figure:
    """Cosine between the expected push and ∇KL(π‖π_ref); a choice whose push vanishes says so."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.2, 3.2), dpi=100)
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0.09, 0.16, 0.90, 0.78))
    names = [*found[0]]
    for x, name in enumerate(names):
        cosines = [one[name].cosine for one in found]
        shown = [c for c in cosines if c is not None]
        spread = [x + 0.24 * (i / max(len(shown) - 1, 1) - 0.5) for i in range(len(shown))]
        color = BLUE if name.endswith("reward") else ORANGE
        axes.plot(spread, shown, "o", color=color, ms=5, alpha=0.75, mec="none")
        if not shown:
            axes.text(x, 0.05, "no push\nat all", ha="center", va="bottom", color=color, fontsize=10)
    axes.axhline(1, color=GREY, ls="--", lw=1)
    axes.axhline(0, color=GREY, lw=0.8)
    axes.set_xticks(range(len(names)), [name.replace(" ", "\nin the ") for name in names], fontsize=10)
    axes.set(xlim=(-0.6, len(names) - 0.4), ylim=(-1.05, 1.12), ylabel="cosine with ∇KL(π‖π_ref)")
    return figure
