"""The map of the course as a picture: a line a path, a dot a notebook, filled where it is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppo_lab.course.catalogue import NOTEBOOKS, PATHS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLORS = ("#4d4d4d", "#0072B2", "#D55E00", "#009E73")


def facts() -> dict[str, int]:
    """How many notebooks there are, are written, and are on the shortest path."""
    return {
        "notebooks": len(NOTEBOOKS),
        "written": sum(book.written for book in NOTEBOOKS.values()),
        "paths": len(PATHS),
        "shortest": min(map(len, PATHS.values())),
    }


def course_map() -> Figure:
    """Draw the paths from left to right."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 4.0), dpi=100)
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0.14, 0.50, 0.85, 0.46))
    books = list(NOTEBOOKS.values())
    place = {book.number: i for i, book in enumerate(books)}
    for lane, ((name, path), color) in enumerate(zip(PATHS.items(), COLORS, strict=True)):
        xs = [place[number] for number in path]
        axes.plot(xs, [-lane] * len(xs), color=color, lw=3, zorder=1)
        for x in xs:
            face = color if books[x].written else "white"
            axes.plot([x], [-lane], "o", ms=10, mfc=face, mec=color, mew=2, zorder=2)
        axes.text(-0.8, -lane, name, ha="right", va="center", color=color, fontsize=10)
    axes.set_xticks(range(len(books)), [f"{b.number} {b.title}" for b in books], rotation=52, ha="right", fontsize=9)
    axes.set(xlim=(-0.5, len(books) - 0.5), ylim=(-len(PATHS) + 0.5, 0.5), yticks=[])
    for side in axes.spines.values():
        side.set_visible(False)
    axes.tick_params(length=0)
    return figure
