"""The RLHF loop as a picture: eight stations, four models, and what flows between them. Lit as far as one has come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LIT, DARK, INK, FAINT = "#0072B2", "#eeeeee", "#212121", "#9a9a9a"
TRAINED, FROZEN = "#D55E00", "#56A0D3"


class Station(NamedTuple):
    """A numbered sentence of the recipe: its words, and which of the models work there."""

    title: str
    models: tuple[str, ...]


STATIONS = (
    Station("prompts are\nanswered", ("policy",)),
    Station("four models\njudge", ("policy", "reference", "critic", "reward")),
    Station("token\nrewards", ()),
    Station("credit\nflows back", ()),
    Station("one batch", ()),
    Station("clipped\nsteps", ("policy", "critic")),
    Station("the next β", ()),
    Station("say what\nhappened", ()),
)
MODELS = {"policy": TRAINED, "critic": TRAINED, "reference": FROZEN, "reward": FROZEN}  # trained, or frozen


def flow_figure(station: int, made: Sequence[str] = ()) -> Figure:
    """Stations up to ``station`` lit, below them the models at work and at most four things that were ``made``.

    Raises:
        ValueError: no such station.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.patches import FancyBboxPatch

    if not 0 <= station <= len(STATIONS):
        raise ValueError(f"station must be 0 to {len(STATIONS)}, got {station}; the loop has {len(STATIONS)}")
    figure = Figure(figsize=(9.6, 2.1), dpi=90)
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0.01, 0.02, 0.98, 0.96))
    axes.set(xlim=(-0.55, len(STATIONS) - 0.45), ylim=(-1.3, 1.0))
    axes.axis("off")
    for i, (title, _) in enumerate(STATIONS):
        on = i < station
        box = FancyBboxPatch((i - 0.40, -0.05), 0.80, 0.62, boxstyle="round,pad=0.03", lw=3 if i == station - 1 else 1,
                             facecolor=LIT if on else DARK, edgecolor=INK if i == station - 1 else FAINT)  # fmt: skip
        axes.add_patch(box)
        axes.text(i, 0.26, f"{i + 1}  {title}", ha="center", va="center", fontsize=9, color="white" if on else INK)
        if i:
            axes.annotate("", (i - 0.43, 0.26), (i - 0.57, 0.26), arrowprops={"arrowstyle": "->", "color": INK})
    axes.annotate("", (-0.2, 0.62), (len(STATIONS) - 0.8, 0.62),
                  arrowprops={"arrowstyle": "->", "color": FAINT, "connectionstyle": "arc3,rad=0.05"})  # fmt: skip
    working = STATIONS[station - 1].models if station else tuple(MODELS)
    for i, (name, color) in enumerate(MODELS.items()):
        on = name in working
        axes.text(0.05 + 1.25 * i, -0.62, name + (" (trained)" if color == TRAINED else " (frozen)"), ha="center",
                  va="center", fontsize=9, color="white" if on else FAINT,
                  bbox={"boxstyle": "round", "facecolor": color if on else "white", "edgecolor": color})  # fmt: skip
    for i, text in enumerate(made):
        axes.text(-0.45 + 2.0 * i, -1.1, text, fontsize=10, family="monospace", color=INK)
    return figure
