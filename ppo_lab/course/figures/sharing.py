"""Critics that share the policy's trunk, against one of their own: time, work, bytes, and what training brought."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppo_lab.course.experiments.sharing import VARIANTS, by_seed, gain, total_bytes
from ppo_lab.course.recordings import Recording

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#999999"


def saved(recording: Recording) -> dict[str, list[list[float]]]:
    """What is needed, as a share of what the separate critic needs: a list a variant, a number a seed."""
    rows = recording.rows
    found = {name: [[a / b for a, b in zip(by_seed(rows, v, key), by_seed(rows, "separate", key), strict=True)]
                    for v in VARIANTS] for name, key in (("CPU time", "cpu_update"), ("block passes", "passes_update"))
             }  # fmt: skip
    sized = [{**row, "bytes": total_bytes(row)} for row in rows]
    base = by_seed(sized, "separate", "bytes")
    return found | {"bytes": [[a / b for a, b in zip(by_seed(sized, v, "bytes"), base, strict=True)] for v in VARIANTS]}


def sharing_figure(recording: Recording) -> Figure:
    """Left: needs of an update, against a separate critic. Right: gain in gold, a dot a seed, a line for the mean."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.4, 3.3), dpi=100)
    left, right = figure.subplots(1, 2)
    figure.subplots_adjust(0.17, 0.16, 0.985, 0.95, 0.08)
    for (name, values), color, off in zip(saved(recording).items(), (BLUE, GREEN, ORANGE), (-0.2, 0, 0.2), strict=True):
        for i, found in enumerate(values):
            left.plot([100 * x for x in found], [i + off] * len(found), "o", color=color, ms=5, alpha=0.7,
                      label=name if i == 0 else None)  # fmt: skip
    left.set(xlabel="of what a separate critic needs, %", xlim=(0, 112))
    left.axvline(100, color=GREY, lw=1, ls="--")
    left.legend(frameon=False, fontsize=9, loc="lower left")
    left.set_yticks(range(len(VARIANTS)), list(VARIANTS))
    for i, variant in enumerate(VARIANTS):
        found = gain(recording.rows, variant)
        right.plot(found, [i] * len(found), "o", color=BLUE, ms=5, alpha=0.6)
        right.plot([sum(found) / len(found)] * 2, [i - 0.3, i + 0.3], color="black", lw=2)
    right.set(xlabel="gain in gold, held out", xlim=(0, None))
    right.set_yticks(range(len(VARIANTS)), [""] * len(VARIANTS))
    for axes in (left, right):
        axes.set_ylim(len(VARIANTS) - 0.5, -0.5)
    return figure
