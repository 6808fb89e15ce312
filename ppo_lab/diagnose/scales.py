"""How a panel ends: a second scale on the right, limits, healthy band, legend, and what was not measured."""

from __future__ import annotations

from matplotlib.axes import Axes

from ppo_lab.diagnose.curves import Rows, absent, band, curve, finish, fit, note, series, twin
from ppo_lab.diagnose.style import DOTTED, VERMILLION
from ppo_lab.metrics import GROUPS


def right_scale(ax: Axes, rows: Rows, label: str, lines: list, *, marker: str | None = None,
           low: float | None = None, high: float | None = None) -> Axes | None:  # fmt: skip
    """Curves of another unit on a scale of their own; None where none was measured."""
    if not any(len(series(rows, name)[0]) for name, *_ in lines):
        return None
    right = twin(ax, label)
    for name, text, color, dash in lines:
        curve(right, rows, name, text, color, dash, marker=marker)
    fit(right, low=low, high=high)
    if low is None and high is None:  # headroom, so that a curve of the same shape does not hide behind the left one
        bottom, top = right.get_ylim()
        right.set_ylim(bottom, top + 0.2 * (top - bottom))
    return right


def dots(ax: Axes, rows: Rows, name: str, label: str) -> bool:
    """Sparse measurements: points, thinly joined."""
    return curve(ax, rows, name, label, VERMILLION, DOTTED, marker="o")


def close(
    ax: Axes, rows: Rows, panel: str, ylabel: str, drawn: list[bool], names: tuple[str, ...], *,
    right: Axes | None = None, healthy: str | None = None, low: float | None = None, high: float | None = None,
    log: bool = False, title: str | None = None,
) -> None:  # fmt: skip
    """Limits, band, legend, and what was not measured."""
    if not any(drawn) and right is None:
        ax.set_title(title or GROUPS[panel], pad=6)
        return absent(ax, *names)
    fit(ax, low=low, high=high, log=log)
    if healthy is not None and any(drawn):
        band(ax, healthy)
    for name in names:
        if not len(series(rows, name)[0]):
            note(ax, f"{name}: not measured")
    finish(ax, rows, title or GROUPS[panel], ylabel, right=right)

