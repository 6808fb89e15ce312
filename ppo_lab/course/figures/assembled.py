"""Results of notebook 06 as pictures: probes against the solved world, parts of the objective, a Gaussian policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ppo_lab.course.claims import measure
from ppo_lab.course.figures.gae_study import sheet

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Rows = Sequence[Mapping[str, Any]]
BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#999999"


def probes_figure(found: Rows, *, close: float = 0.03) -> Figure:
    """What each probe should give (line) and what came out (dot): V, or the chance of the best action, of each state.

    A dot off by more than ``close`` is a red cross. ``found`` as `experiments.assembled.probe` gives it.
    """
    figure, (ax,) = sheet(1, size=(9.2, 2.7))
    figure.subplots_adjust(0.06, 0.17, 0.99, 0.97)
    place, middles = 0, []
    for entry in found:
        start = place
        for expected, value in zip(entry["expected"], entry["found"], strict=True):
            ax.plot([place - 0.35, place + 0.35], [expected] * 2, color=GREY, lw=3)
            good = abs(expected - value) <= close
            ax.plot([place], [value], "o" if good else "X", color=BLUE if good else ORANGE, ms=8)
            place += 1
        middles.append((start + place - 1) / 2)
        ax.axvline(place, color="#dddddd", lw=1)
        place += 1
    ax.set_xticks(middles, [entry["name"].replace("_", " ").replace(", ", "\n") for entry in found])
    ax.set(ylabel="V, or π(best)", xlim=(-1, place - 0.5), yscale="symlog", ylim=(-2.5, 25))
    ax.set_yticks([-1, 0, 1, 10], ["−1", "0", "1", "10"])
    return figure


def column(rows: Rows, key: str, **where: Any) -> list[Any]:
    """The values of ``key`` in all rows that match, in order of the seeds."""
    return [row[key] for row in rows if all(row[name] == value for name, value in where.items())]


def paired(rows: Rows, key: str, variant: str, base: str) -> list[float]:
    """Differences between two variants, seed by seed."""
    with_, without = (column(rows, key, variant=name) for name in (variant, base))
    return [a - b for a, b in zip(with_, without, strict=True)]


def objective_figure(rows: Rows) -> Figure:
    """Mean return of every variant, 95 % intervals and seeds; and how much better the critic fits what it has seen."""
    variants = [*dict.fromkeys(row["variant"] for row in rows)]
    figure, (left, right) = sheet(2, size=(9.6, 0.27 * len(variants) + 0.9))
    figure.subplots_adjust(0.17, 0.07, 0.99, 0.94, 0.08)
    for place, variant in enumerate(variants):
        returns = column(rows, "return", variant=variant)
        gap = [row["fit"] - row["fresh"] for row in rows if row["variant"] == variant]
        for ax, x in ((left, returns), (right, gap)):
            found = measure(x, least=0.0)
            color = ORANGE if variant.startswith("shared") else BLUE
            ax.plot(x, [place] * len(x), ".", color=color, alpha=0.35, ms=5)
            ax.plot([found.low, found.high], [place] * 2, color=color, lw=2)
            ax.plot([found.mean], [place], "o", color=color, ms=6)
    left.set_yticks(range(len(variants)), variants, fontsize=9)
    right.set_yticks(range(len(variants)), [""] * len(variants))
    right.locator_params(axis="x", nbins=6)
    for ax, title in ((left, "return, mean over the run"), (right, "explained variance: fitted − fresh")):
        ax.set_title(title, fontsize=10, loc="left")
        ax.invert_yaxis()
        ax.grid(axis="y", color="#eeeeee")
    return figure


def pendulum_figure(rows: Rows) -> Figure:
    """Return and spread of the actions of every seed over the steps; with a fault planted in the other colour."""
    figure, axes = sheet(2, size=(9.2, 2.8))
    for ax, key, title in ((axes[0], "return", "return of an episode"), (axes[1], "action_std", "σ of the action")):
        for planted, color, label in (
            ("", BLUE, "as sampled"),
            ("clipped_action_stored", ORANGE, "clipped one stored"),
        ):
            for seed in dict.fromkeys(column(rows, "seed", planted=planted)):
                some = [row for row in rows if row["seed"] == seed and row["planted"] == planted]
                known = [(row["env_steps"] / 1000, row[key]) for row in some if row[key] is not None]
                ax.plot([x for x, _ in known], [y for _, y in known], color=color, lw=1, alpha=0.7,
                        label=label if seed == rows[0]["seed"] else "")  # fmt: skip
        ax.set(xlabel="thousand steps", title=title)
    axes[0].legend(frameon=False, fontsize=9, loc="lower right")
    return figure
