"""Five algorithms under one search budget, from the recorded runs of notebook 07."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ppo_lab.course.claims import measure
from ppo_lab.course.experiments.five import ALGORITHMS, best_draw, draw
from ppo_lab.course.figures.ablation import Rows, values
from ppo_lab.course.figures.gae_study import mean, sheet
from ppo_lab.course.html import Card, show, table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLORS = dict(zip(ALGORITHMS, ("#999999", "#E69F00", "#7A4FA3", "#0072B2", "#009E73"), strict=True))
INK = "#212121"


def fresh(rows: Rows, key: str, algorithm: str) -> list[Any]:
    """A column of the judged runs of an algorithm, in order of the seeds."""
    return values(rows, key, algorithm=algorithm, part="fresh")


def crashes(rows: Rows, algorithm: str) -> list[float]:
    """1 for each run of an algorithm, searched or judged, that crashed, else 0."""
    return [float(crash) for crash in values(rows, "crash", algorithm=algorithm)]


def uses(rows: Rows, algorithm: str) -> int:
    """How often the chosen setting shows the policy a sample."""
    return int(draw(best_draw(rows, algorithm))["epochs"]) if algorithm.startswith("PPO") else 1


def ratio(rows: Rows, key: str, a: str, b: str) -> list[float]:
    """``key`` of algorithm a over that of b, judged runs, seed by seed."""
    return [x / y for x, y in zip(fresh(rows, key, a), fresh(rows, key, b), strict=True)]


def variance_cut(rows: Rows, a: str, b: str) -> list[float]:
    """1 − Var(b) / Var(a) of late episodes' returns, judged runs, seed by seed; pairs without any variance are 0."""
    pairs = zip(fresh(rows, "spread", a), fresh(rows, "spread", b), strict=True)
    return [1 - (y / x) ** 2 if x else 0.0 if not y else -math.inf for x, y in pairs]


def time_saved(rows: Rows, a: str = "PPO-clip", b: str = "PPO-KL") -> list[float]:
    """1 − CPU-seconds of a / those of b, the searched runs, draw by draw: the two share everything else."""
    sides = (values(rows, "cpu", algorithm=name, part="search") for name in (a, b))
    return [1 - x / y for x, y in zip(*sides, strict=True)]


def five_figure(rows: Rows) -> Figure:
    """Left: the final return of every draw, a cross where the run crashed, a ring at the chosen one. Right: the judged
    runs, mean and 95 % band."""
    figure, (left, right) = sheet(2, size=(9.6, 3.5))
    figure.subplots_adjust(0.065, 0.14, 0.99, 0.91, 0.14)
    for place, (name, color) in enumerate(COLORS.items()):
        tried = [row for row in rows if row["part"] == "search" and row["algorithm"] == name]
        chosen = best_draw(rows, name)
        for i, row in enumerate(tried):
            x = place + 0.5 * ((i + 0.5) / len(tried) - 0.5)
            left.plot([x], [row["final"]], "X" if row["crash"] else "o", color=color, ms=6, alpha=0.8)
            if row["draw"] == chosen:
                left.plot([x], [row["final"]], "o", mfc="none", mec=INK, ms=13, mew=1.4)
        _band(right, [[float(x) for x in text.split()] for text in fresh(rows, "curve", name)], rows, name, color)
    left.set_xticks(range(len(COLORS)), [*COLORS], fontsize=9)
    left.set_title(f"search: {len(tried)} settings each, crosses crashed", fontsize=10, loc="left")
    left.set(ylim=(0, 520), ylabel="return, last quarter")
    right.set_title("the chosen settings on fresh seeds", fontsize=10, loc="left")
    right.set(ylim=(0, 520), xlabel="share of the run")
    right.legend(loc="upper left", fontsize=8.5, frameon=False)
    return figure


def _band(axes: Any, lines: Sequence[Sequence[float]], rows: Rows, name: str, color: str) -> None:
    found = [measure(column, least=0.0) for column in zip(*lines, strict=True)]
    x = [(i + 0.5) / len(found) for i in range(len(found))]
    axes.plot(x, [m.mean for m in found], color=color, lw=2.2, label=name)
    axes.fill_between(x, [m.low for m in found], [m.high for m in found], color=color, alpha=0.15, lw=0)


def standing(rows: Rows) -> list[tuple[str, ...]]:
    """(algorithm, final with its interval, best, crashed of searched, of judged, CPU-seconds, uses) of each."""
    found: list[tuple[str, ...]] = []
    for name in ALGORITHMS:
        final = measure(fresh(rows, "final", name), least=0.0)
        searched = values(rows, "crash", algorithm=name, part="search")
        judged = fresh(rows, "crash", name)
        found.append((
            name, f"{final.mean:.0f} ({final.low:.0f} to {final.high:.0f})", f"{mean(fresh(rows, 'best', name)):.0f}",
            f"{sum(searched)} of {len(searched)}", f"{sum(judged)} of {len(judged)}",
            f"{mean(fresh(rows, 'cpu', name)):.1f}", str(uses(rows, name)),
        ))  # fmt: skip
    return found


HEAD = ("", "final return (95 %)", "best", "crashed, search", "fresh", "CPU-seconds", "uses of a sample")


def five_table(rows: Rows) -> None:
    """Show `standing` as a table."""
    found = standing(rows)
    text = "\n".join(" | ".join(row) for row in (HEAD, *found))
    show(Card(f"Five algorithms\n{text}", table(found, head=HEAD, align="right"), width=66))


def searched(rows: Rows) -> None:
    """Show every setting that was tried and what came of it, behind a click."""
    from ppo_lab.course.html import details

    found = [(r["algorithm"], str(r["draw"]), f"{r['final']:.0f}", "crashed" if r["crash"] else "", r["settings"])
             for r in rows if r["part"] == "search"]  # fmt: skip
    body = details("open the list", table(found, head=("", "draw", "final", "", "settings")))
    show(Card(f"All {len(found)} settings that were tried", f"All {len(found)} settings that were tried{body}",
              width=76))  # fmt: skip
