"""Can the reward model's certainty be believed? Confidence against accuracy on held-out pairs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from ppo_lab.diagnose.curves import absent, finish
from ppo_lab.diagnose.style import BLUE, DASHED, NOTE, SOLID, VERMILLION
from ppo_lab.diagnose.words import number

TITLE = "Calibration"


def calibration(ax: Axes, figures: Mapping[str, Any]) -> None:
    r"""Share of pairs ordered rightly in each bin of confidence :math:`\sigma(|r_1 - r_2|)`, bars one standard error.

    On the diagonal the Bradley–Terry probabilities mean what they say; below it the model is too sure of itself, and
    its differences reward more than they should. Bars are :math:`\sqrt{p(1-p)/n}`.
    """
    drawn = [
        _points(ax, figures, "noisy labels" if "clean" in figures else "held out", BLUE, SOLID, "o"),
        _points(ax, figures.get("clean") or {}, "clean labels", VERMILLION, DASHED, "s"),
    ]
    if not any(drawn):
        ax.set_title(TITLE, pad=5)
        return absent(ax, "calibration bins")
    ax.plot([0.5, 1], [0.5, 1], color=NOTE, linewidth=0.8, label="_", gid="diagonal", zorder=1)
    ax.set_ylim(min(0.45, ax.get_ylim()[0]), 1.03)
    finish(ax, [], TITLE, "share ordered rightly")
    ax.set_xlim(0.48, 1.02)
    ax.set_xticks([0.5, 0.6, 0.7, 0.8, 0.9, 1.0], ["0.5", "0.6", "0.7", "0.8", "0.9", "1"])
    ax.set_xlabel("confidence", labelpad=1)


def describe(figures: Mapping[str, Any]) -> str:
    """The same in words.

    >>> describe({"bins": [{"confidence": 0.6, "accuracy": 0.55, "count": 100}]})
    'Calibration on held-out pairs: at confidence 0.6, 0.55 of 100 pairs ordered rightly.'
    """
    facts = [
        f"at confidence {number(row['confidence'])}, {number(row['accuracy'])} of {row['count']} pairs"
        for row in _bins(figures)
    ]
    return f"{TITLE} on held-out pairs: " + ("; ".join(facts) + " ordered rightly." if facts else "not measured.")


def _bins(figures: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    rows = [row for row in figures.get("bins") or [] if isinstance(row, Mapping)]
    return [row for row in rows if {"confidence", "accuracy", "count"} <= row.keys() and row["count"]]


def _points(ax: Axes, figures: Mapping[str, Any], label: str, color: str, dash: Any, marker: str) -> bool:
    bins = _bins(figures)
    if not bins:
        return False
    x, share, count = (np.array([float(row[key]) for row in bins]) for key in ("confidence", "accuracy", "count"))
    error = np.sqrt(np.clip(share * (1 - share), 0, None) / count)
    ax.vlines(x, share - error, share + error, color=color, linewidth=0.8, alpha=0.6, label="_")
    ax.plot(x, share, color=color, linestyle=dash, linewidth=1.0, marker=marker, markersize=4, label=label, gid=label)
    return True
