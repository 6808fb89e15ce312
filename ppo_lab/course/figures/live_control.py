"""A control run while it runs: return of the episodes, policy KL, and entropy or the spread of the actions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#999999"


def build(figure: Figure, *, steps: int, rows: int, choices: int | None) -> dict[str, Any]:
    """Three empty axes; ``rows`` environment steps an update; ``choices`` None: the action is a row of numbers."""
    axes = figure.subplots(1, 3)
    figure.subplots_adjust(0.08, 0.2, 0.985, 0.87, 0.28)
    artists: dict[str, Any] = {"axes": axes, "third": "action_std" if choices is None else "entropy"}
    third = "spread of the actions, σ" if choices is None else "entropy H, nats"
    for ax, title in zip(axes, ("return of an episode", "policy KL of an update, nats", third), strict=True):
        ax.set_title(title, fontsize=10, loc="left")
        ax.set(xlim=(0, steps * rows / 1000), xlabel="thousand steps")
    for ax, name, style, color, label in (
        (axes[0], "episode_return", "o-", BLUE, "training"),
        (axes[0], "eval_return", "s", ORANGE, "greedy"),
        (axes[1], "policy_kl_exact", "o-", BLUE, ""),
        (axes[2], artists["third"], "o-", BLUE, ""),
    ):
        (artists[name],) = ax.plot([], [], style, color=color, ms=4, label=label)
    axes[0].legend(loc="best", frameon=False, fontsize=8)
    if choices is not None:
        ceiling = math.log(choices)
        axes[2].axhline(ceiling, color=GREY, ls="--", lw=1)
        axes[2].text(0.98, ceiling, "ln A", va="top", ha="right", color=GREY, fontsize=9,
                     transform=axes[2].get_yaxis_transform())  # fmt: skip
        axes[2].set_ylim(0, ceiling * 1.05)
    return artists


def draw(artists: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> None:
    """Move the lines to what was logged so far; what a step did not measure leaves no dot."""
    for name in ("episode_return", "eval_return", "policy_kl_exact", artists["third"]):
        known = [(row["env_steps"] / 1000, row[name]) for row in rows if row.get(name) is not None]
        artists[name].set_data([x for x, _ in known], [y for _, y in known])
    for ax in artists["axes"][:2] if artists["third"] == "entropy" else artists["axes"]:
        ax.relim()
        ax.autoscale_view(scalex=False)
