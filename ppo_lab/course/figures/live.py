"""A run while it runs: score, KL and entropy, with the bounds that they must keep."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#999999"


def build(figure: Figure, *, steps: int, vocabulary: int) -> dict[str, Any]:
    """Three empty axes from step 1 to ``steps``; entropy under its ceiling ln V."""
    axes = figure.subplots(1, 3)
    figure.subplots_adjust(0.06, 0.2, 0.99, 0.87, 0.25)
    artists: dict[str, Any] = {"axes": axes}
    for ax, title in zip(axes, ("reward a review", "KL to the reference, nats", "entropy H, nats"), strict=True):
        ax.set_title(title, fontsize=10, loc="left")
        ax.set(xlim=(0.5, steps + 0.5), xlabel="step")
    for ax, name, color, label in (
        (axes[0], "score_mean", BLUE, "score"),
        (axes[0], "reward_mean", ORANGE, "score − β·KL"),
        (axes[1], "ref_kl_sum", BLUE, ""),
        (axes[2], "entropy", BLUE, ""),
    ):
        (artists[name],) = ax.plot([], [], "o-", color=color, ms=4, label=label)
    axes[0].legend(loc="best", frameon=False, fontsize=8)
    ceiling = math.log(vocabulary)
    axes[2].axhline(ceiling, color=GREY, ls="--", lw=1)
    axes[2].text(0.7, ceiling, "ln V", va="top", color=GREY, fontsize=9)
    axes[2].set_ylim(0, ceiling * 1.05)
    return artists


def draw(artists: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> None:
    """Move the lines to what was logged so far."""
    for name in ("score_mean", "reward_mean", "ref_kl_sum", "entropy"):
        artists[name].set_data([row["step"] for row in rows], [row[name] for row in rows])
    for ax in artists["axes"][:2]:
        ax.relim()
        ax.autoscale_view(scalex=False)
