"""Pictures of notebook 12's optional sections: shaping, curriculum, several objectives, curiosity, prompts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ppo_lab.course.claims import measure
from ppo_lab.course.figures.gae_study import BLUE, GREY, ORANGE, mean, sheet

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ppo_lab.course.experiments.several_objectives import Followed, Reached
    from ppo_lab.course.experiments.shaping import Changed

GREEN, PURPLE = "#009E73", "#7A4FA3"
Rows = Sequence[Mapping[str, Any]]


def curves(rows: Rows, arm: str, key: str = "arm") -> list[list[float]]:
    """The curve of every run of an arm, in order of the seeds."""
    return [[float(x) for x in row["curve"].split()] for row in rows if row[key] == arm]


def band(axes: Any, lines: Sequence[Sequence[float]], name: str, color: str, *, every: float = 1.0) -> None:
    """Mean and 95 % band over runs; ``every`` is the distance of two points."""
    found = [measure(column, least=0.0) for column in zip(*lines, strict=True)]
    x = [every * (i + 1) for i in range(len(found))]
    axes.plot(x, [m.mean for m in found], color=color, lw=2.2, label=name)
    axes.fill_between(x, [m.low for m in found], [m.high for m in found], color=color, alpha=0.18, lw=0)


def shaping_figure(rows: Rows, level: Sequence[Changed], difference: Sequence[Changed]) -> Figure:
    """Left: what the best policy of the changed world is worth in the true one, over λ. Right: learning curves."""
    figure, (left, right) = sheet(2)
    for found, name, color in ((difference, "difference γΦ(s′) − Φ(s)", BLUE), (level, "level Φ(s′)", ORANGE)):
        left.plot([c.weight for c in found], [c.worth for c in found], "o-", color=color, lw=2, ms=5, label=name)
    left.set(xscale="log", xlabel="weight λ", ylim=(-0.05, 1.1))
    left.set_title("best policy of the changed world, true J / J*", fontsize=10, loc="left")
    left.legend(loc="center right", fontsize=9, frameon=False)
    colors = {"none": GREY, "difference": BLUE, "level": ORANGE, "level, adaptive": PURPLE}
    for arm, color in colors.items():
        band(right, curves(rows, arm), arm, color)
    right.axhline(0.9, color="black", lw=0.8, ls=":")
    right.set(xlabel="iteration", ylim=(-0.05, 1.4), yticks=(0, 0.2, 0.4, 0.6, 0.8, 1.0))
    right.set_title("true J / J* while learning (mean, 95 %)", fontsize=10, loc="left")
    right.legend(loc="upper right", fontsize=9, frameon=False, ncols=2)
    return figure


def curriculum_figure(rows: Rows) -> Figure:
    """Left: J from the far start. Right: when each level of the curriculum began, a line a seed."""
    figure, (left, right) = sheet(2)
    for arm, color in (("far only", GREY), ("all levels", ORANGE), ("curriculum", BLUE)):
        band(left, curves(rows, arm), arm, color)
    left.axhline(0.9, color="black", lw=0.8, ls=":")
    left.set(xlabel="iteration", ylim=(-0.05, 1.05))
    left.set_title("J / J* from the far start (mean, 95 %)", fontsize=10, loc="left")
    left.legend(loc="lower right", fontsize=9, frameon=False)
    began = [[int(x) for x in row["levels"].split()] for row in rows if row["arm"] == "curriculum"]
    for seed in began:
        right.step([*seed, max(max(b) for b in began) + 3], [*range(1, len(seed) + 1), len(seed)], where="post",
                   color=BLUE, lw=1.2, alpha=0.45)  # fmt: skip
    right.set(xlabel="iteration", yticks=range(1, 6))
    right.set_title("level of the curriculum, a line a seed", fontsize=10, loc="left")
    return figure


def objectives_figure(found: Reached, followed: Mapping[str, Followed]) -> Figure:
    """Left: the front, and who reaches which point of it. Right: the largest shortfall under each rule."""
    figure, (left, right) = sheet(2)
    x, y = found.front[:, 1], found.front[:, 0]
    order = x.argsort(descending=True)
    left.plot(x[order].tolist(), y[order].tolist(), color=GREY, lw=1)
    for reached, name, marker, color, size in (
        (found.chebyshev, "Chebyshev", "o", BLUE, 7), (found.constraint, "constraint first", "x", GREEN, 6),
        (found.linear, "linear weights", "s", ORANGE, 12),
    ):  # fmt: skip
        left.plot(x[reached].tolist(), y[reached].tolist(), marker, color=color, ms=size, label=name,
                  mfc="none" if marker == "s" else color, mew=1.8)  # fmt: skip
    left.set(xlabel="minus time", ylabel="treasure")
    left.set_title("a front that bends inwards", fontsize=10, loc="left")
    left.legend(loc="upper right", fontsize=9, frameon=False)
    for (name, run), color in zip(followed.items(), (GREY, ORANGE, BLUE), strict=False):
        right.plot(range(1, len(run.shortfall) + 1), run.shortfall, color=color, lw=2, label=name)
    right.axhline(0, color="black", lw=0.8)
    right.set(xlabel="round", ylim=(-0.2, 1.4 * max(max(run.shortfall) for run in followed.values())))
    right.set_title("largest shortfall of three objectives", fontsize=10, loc="left")
    right.legend(loc="upper right", fontsize=9, frameon=False, ncols=3)
    return figure


def curiosity_figure(rows: Rows, share: Callable[..., list[float]]) -> Figure:
    """Left: how far along the chain each rollout came. Right: share of seeds that found the end, and that go there."""
    figure, (left, right) = sheet(2)
    colors = {"none": GREY, "count": BLUE, "prediction": ORANGE}
    for arm, color in colors.items():
        for curve in curves(rows, arm):
            left.plot(range(1, len(curve) + 1), curve, color=color, lw=0.8, alpha=0.35)
        lines = [mean(column) for column in zip(*curves(rows, arm), strict=True)]
        left.plot(range(1, len(lines) + 1), lines, color=color, lw=2.4, label=arm)
    left.set(xlabel="rollout", ylim=(0, 1.05))
    left.set_title("farthest state of a rollout, share of the chain", fontsize=10, loc="left")
    left.legend(loc="center right", fontsize=9, frameon=False)
    for place, (arm, color) in enumerate(colors.items()):
        right.bar(place - 0.2, mean(share(rows, arm)), 0.38, color=color)
        right.bar(place + 0.2, mean(share(rows, arm, "reached")), 0.38, color=color, alpha=0.45)
    right.set_xticks(range(3), [*colors])
    right.set(ylim=(0, 1.05))
    right.set_title("share of seeds: found the end | goes there", fontsize=10, loc="left")
    return figure


def prompts_figure(rows: Rows) -> Figure:
    """Gold, score and KL on the held-out prompts under each order, a line a seed."""
    figure, axes = sheet(3)
    orders = list(dict.fromkeys(row["order"] for row in rows))
    for ax, key, title in zip(axes, ("gold", "score", "kl"), ("gold", "score", "KL, nats a review"), strict=True):
        columns = [[row[key] for row in rows if row["order"] == order] for order in orders]
        for line in zip(*columns, strict=True):
            ax.plot(range(len(orders)), line, "o-", color=GREY, lw=1, ms=4, alpha=0.7)
        ax.plot(range(len(orders)), [mean(column) for column in columns], "D", color=BLUE, ms=8)
        ax.set_xticks(range(len(orders)), orders, fontsize=8.5)
        ax.set_xlim(-0.3, len(orders) - 0.7)
        ax.set_title(f"{title}, held-out prompts", fontsize=10, loc="left")
    return figure
