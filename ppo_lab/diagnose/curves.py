"""The strokes all panels share: series from rows, curves that survive 10,000 steps and spikes, bands, legends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator, ScalarFormatter

from ppo_lab.diagnose.style import GREEN, NOTE, PAPER, SOLID, dress
from ppo_lab.metrics import metric

Rows = Sequence[Mapping[str, Any]]
Dash = str | tuple[float, tuple[float, ...]]

MOST_POINTS = 800  # a curve 2.5 inches wide cannot show more
MOST_MARKERS = 40
RIGHT = "▸"  # behind the name of a curve that is read on the right scale
SMOOTH_ABOVE = 150  # from so many steps on, a running mean is drawn over the noise


def series(rows: Rows, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Steps and values of one metric, of the rows that measured it.

    >>> series([{"step": 1, "entropy": 2.0}, {"step": 2}, {"step": 3, "entropy": "nan"}], "entropy")
    (array([1., 3.]), array([ 2., nan]))
    """
    pairs = [(float(row["step"]), float(row[name])) for row in rows if row.get(name) is not None]
    steps, values = np.array(pairs, dtype=float).reshape(-1, 2).T
    return steps, values


def thin(steps: np.ndarray, values: np.ndarray, most: int = MOST_POINTS) -> tuple[np.ndarray, np.ndarray]:
    """At most ``most`` of the points: the lowest and the highest of each stretch, so that no spike is lost.

    >>> thin(np.arange(6), np.array([0, 9, 1, 1, 1, 1]), most=2)
    (array([0, 1]), array([0, 9]))
    """
    if len(steps) <= most:
        return steps, values
    keep: set[int] = set()
    for stretch in np.array_split(np.arange(len(steps)), max(1, most // 2)):
        known = np.where(np.isfinite(values[stretch]), values[stretch], np.nan)
        if not np.isnan(known).all():
            keep |= {int(stretch[np.nanargmin(known)]), int(stretch[np.nanargmax(known)])}
    order = np.array(sorted(keep), dtype=int)
    return steps[order], values[order]


def running_mean(values: np.ndarray, width: int) -> np.ndarray:
    """Mean of up to ``width`` values around each, over those that are finite.

    >>> running_mean(np.array([1.0, 2.0, np.nan, 4.0]), 3)
    array([1.5, 1.5, 3. , 4. ])
    """
    good = np.isfinite(values)
    kernel = np.ones(width)
    total = np.convolve(np.where(good, values, 0.0), kernel, mode="same")
    count = np.convolve(good.astype(float), kernel, mode="same")
    return np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0.5)


def curve(
    ax: Axes, rows: Rows, name: str, label: str, color: str, dash: Dash = SOLID, *, marker: str | None = None
) -> bool:
    """Draw one metric over the steps; False, and nothing drawn, where it was not measured.

    A long run is a faint hair line with its running mean on top. Steps that are not finite break the line and are
    marked ``×`` at the lower edge.
    """
    steps, values = series(rows, name)
    if not len(steps):
        return False
    finite = np.isfinite(values)
    dots = "o" if finite.sum() < 3 else marker if len(steps) <= MOST_MARKERS else None  # a lone point has no line
    long = len(steps) > SMOOTH_ABOVE
    x, y = thin(steps, np.where(finite, values, np.nan))
    look: dict[str, Any] = {"linestyle": dash, "label": label}
    if long:
        look = {"linestyle": SOLID, "label": "_", "linewidth": 0.6, "alpha": 0.35}
    ax.plot(x, y, color=color, marker=dots, markersize=3, gid=name, **look)
    if long:
        mean = running_mean(values, len(steps) // 50 | 1)
        ax.plot(*thin(steps, mean), color=color, linestyle=dash, label=label, gid=f"{name} mean")
    if not finite.all():
        bad = thin(steps[~finite], np.zeros((~finite).sum()))[0]
        ax.plot(bad, np.zeros_like(bad), "x", color=color, markersize=4, clip_on=False, gid=f"{name} not finite",
                transform=ax.get_xaxis_transform(), label="_")  # fmt: skip
        note(ax, f"× {label} not finite, first at step {steps[~finite][0]:.0f}")
    return True


def fit(ax: Axes, *, low: float | None = None, high: float | None = None, log: bool = False) -> None:
    """Limits that show the bulk. What a few spikes reach beyond is marked ``▲`` or ``▼`` at the edge, with its size.

    ``low`` and ``high`` pin an end of the axis, as 0 for a share.
    """
    lines = [line for line in ax.get_lines() if line.get_transform() == ax.transData]
    points = [(x, y, line) for line in lines for x, y in zip(*_data(line), strict=True) if np.isfinite(y)]
    if log:
        points = [point for point in points if point[1] > 0]
    if not points:
        return
    values = np.array([y for _, y, _ in points])
    bottom, top = _log_bulk(values) if log else bulk(values)
    bottom, top = (low if low is not None else bottom), (high if high is not None else top)
    if log:
        ax.set_yscale("log")
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if top < 100 * bottom else (1,)))
        ax.yaxis.set_minor_locator(NullLocator())
    ax.set_ylim(bottom, top)
    for sign, marker, edge, outside in (("▲", "^", 1.0, values > top), ("▼", "v", 0.0, values < bottom)):
        if outside.any():
            far = [point for point, out in zip(points, outside, strict=True) if out]
            worst = max(far, key=lambda point: abs(point[1]))
            for x, _, line in far[:: max(1, len(far) // 200)]:
                ax.plot([x], [edge], marker, color=line.get_color(), markersize=4, label="_", clip_on=False,
                        transform=ax.get_xaxis_transform())  # fmt: skip
            note(ax, f"{sign} off scale, to {short(worst[1])} at step {worst[0]:.0f}")


def _data(line: Any) -> tuple[np.ndarray, np.ndarray]:
    return np.asarray(line.get_xdata(), dtype=float), np.asarray(line.get_ydata(), dtype=float)


def bulk(values: np.ndarray) -> tuple[float, float]:
    """Limits around all values but those far outside of the middle nine tenths, with a margin.

    >>> bulk(np.array([*range(101), 1e6]))
    (-7.0..., 107.0)
    """
    if len(values) >= 8:
        p5, p95 = np.percentile(values, [5, 95])
        span = 3 * max(p95 - p5, 1e-3 * abs(p95), 1e-12)
        values = values[(values >= p5 - span) & (values <= p95 + span)]
    low, high = float(values.min()), float(values.max())
    margin = 0.07 * (high - low) or 0.1 * abs(high) or 0.1
    return low - margin, high + margin


def _log_bulk(values: np.ndarray) -> tuple[float, float]:
    return float(values.min()) / 1.5, float(values.max()) * 1.5


def band(ax: Axes, name: str) -> None:
    """The healthy band of the registry, softly, within what the axis shows; call it after `fit`."""
    healthy = metric(name).healthy
    if healthy is None:
        return
    bottom, top = ax.get_ylim()
    ax.axhspan(*healthy, color=GREEN, alpha=0.09, linewidth=0, zorder=0, gid=f"{name} band")
    for edge in healthy:
        ax.axhline(edge, color=GREEN, linewidth=0.7, alpha=0.6, zorder=0.5, gid=f"{name} band edge", label="_")
    ax.set_ylim(bottom, top)


def twin(ax: Axes, label: str) -> Axes:
    """A second scale on the right for another unit."""
    right = ax.twinx()
    right.grid(False)
    right.spines["right"].set_visible(False)
    right.set_ylabel(label)
    return right


def note(ax: Axes, text: str) -> None:
    """A remark in small print inside the panel, below the ones already there."""
    count = sum(getattr(child, "get_gid", lambda: None)() == "note" for child in ax.texts)
    ax.text(0.98, 0.97 - 0.09 * count, text, transform=ax.transAxes, ha="right", va="top", fontsize=6, color=NOTE,
            gid="note", zorder=9, bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 1.2, "alpha": 0.8})  # fmt: skip


def absent(ax: Axes, *names: str) -> None:
    """Say in plain words that a panel has nothing to draw."""
    ax.spines[:].set_visible(False)
    ax.set_yticks([])
    ax.set_xticks([])
    ax.grid(False)
    ax.text(0.5, 0.5, "not measured", transform=ax.transAxes, ha="center", va="center", color=NOTE, fontsize=8)
    ax.text(0.5, 0.38, ", ".join(names), transform=ax.transAxes, ha="center", va="top", color=NOTE, fontsize=6)


def short(value: float, _: object = None, *, digits: int = 4) -> str:
    """A number as short as ``digits`` allow, with a true minus; a tick formatter.

    >>> [short(v) for v in (0.0, -0.25, 2e-5, 12500.0, 0.001)]
    ['0', '−0.25', '2e−5', '12500', '0.001']
    """
    plain = f"{value:.0f}" if 10**digits <= abs(value) < 1e6 else f"{value:.{digits}g}"
    base, _, power = plain.partition("e")
    return (base + (f"e{int(power)}" if power else "")).replace("-", "−")


def finish(
    ax: Axes, rows: Rows, title: str, ylabel: str, *, right: Axes | None = None, first: float | None = None
) -> None:
    """Title, axes and one legend row between title and plot, where it covers nothing."""
    handles, labels = ax.get_legend_handles_labels()
    if right is not None:
        handles, labels = (both + more for both, more in zip((handles, labels), _entries(right), strict=True))
    ax.set_title(title, pad=15 if handles else 5)
    if handles:
        legend = ax.legend(handles, labels, loc="lower left", bbox_to_anchor=(-0.03, 1.0), ncols=len(handles),
                           borderaxespad=0.1, borderpad=0.2, handlelength=1.7, columnspacing=0.9,
                           handletextpad=0.4)  # fmt: skip
        legend.set_in_layout(False)
    for axes in (ax, right):
        if axes is not None:
            dress(axes)
            _ticks(axes)
    ax.set_ylabel(ylabel)
    steps = [float(row["step"]) for row in rows]
    if steps:
        low, high = min(steps) if first is None else first, max(steps)
        room = 0.02 * (high - low) or 0.5
        ax.set_xlim(low - room, high + room)
    ax.set_xlabel("step", labelpad=1)
    ax.xaxis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 5, 10], integer=True, min_n_ticks=1))
    ax.xaxis.set_major_formatter("{x:.0f}")
    if right is not None:
        ax.set_zorder(right.get_zorder() + 1)  # the legend and the notes stay on top
        right.set_xlim(ax.get_xlim())


class _Plain(ScalarFormatter):
    """Equally many decimals on every tick, no offset, and a minus whatever rcParams say."""

    def __init__(self) -> None:
        super().__init__(useOffset=False)
        self.set_scientific(False)

    @staticmethod
    def fix_minus(s: str) -> str:
        return s.replace("-", "−")


def _ticks(ax: Axes) -> None:
    """At most six numbers, equally long where they fit, and no offset that would stand in the legend's way."""
    ax.yaxis.labelpad = 2
    size = max(map(abs, ax.get_ylim()))
    if ax.get_yscale() == "log" or not 1e-3 <= size < 1e5:
        ax.yaxis.set_major_formatter(short)
    else:
        ax.yaxis.set_major_formatter(_Plain())
    if ax.get_yscale() == "linear":
        ax.yaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 2.5, 5, 10]))


def _entries(right: Axes) -> tuple[list, list]:
    handles, labels = right.get_legend_handles_labels()
    return handles, [f"{label} {RIGHT}" for label in labels]
