"""Pictures of notebook 09: the range test, schedules, a reward model's three plots, accuracy at equal gaps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ppo_lab.course.experiments.sft_rates import SCHEDULES
from ppo_lab.course.figures.gae_study import BLUE, GREY, ORANGE, mean, sheet, values

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import Tensor

    from ppo_lab.rlhf.reward_model import Fit
    from ppo_lab.scale.range_test import RangeTest

COLORS = dict(zip(SCHEDULES, (GREY, BLUE, ORANGE), strict=True))
USUAL = 1e-4  # where the quoted range ends


def range_figure(found: RangeTest, *, usual: float = USUAL) -> Figure:
    """Loss over the rate; shaded: what a range up to ``usual`` would have seen."""
    figure, (axes,) = sheet(1, size=(9.2, 3.0))
    axes.plot(found.rates, found.losses, color=BLUE, lw=0.8, alpha=0.5)
    axes.plot(found.rates, found.smooth, color=BLUE, lw=2.4)
    axes.axvspan(found.rates[0], usual, color=GREY, alpha=0.15, lw=0)
    low, high = min(found.losses), max(found.losses)
    middle = (found.rates[0] * usual) ** 0.5
    axes.text(middle, (low + high) / 2, "what a range\nup to 1e-4 sees", ha="center", fontsize=10, color="#555555")
    for rate, name, color in ((found.suggested, "suggested", ORANGE), (found.best, "lowest loss", "black")):
        axes.axvline(rate, color=color, ls="--", lw=1.2)
        axes.text(rate / 1.06, high, name, ha="right", va="top", fontsize=9, color=color)
    figure.subplots_adjust(right=0.97, top=0.96)
    axes.set(xscale="log", xlim=(found.rates[0], found.rates[-1]), xlabel="learning rate (one step each)",
             ylabel="loss, nats a token")  # fmt: skip
    return figure


def schedule_figure(losses: Mapping[str, Sequence[float]], *, peak: float) -> Figure:
    """Rate and loss of each step under each schedule."""
    figure, (left, right) = sheet(2)
    for name, curve in losses.items():
        steps = range(len(curve))
        left.plot(steps, [peak * SCHEDULES[name](i, len(curve)) for i in steps], color=COLORS[name], lw=2, label=name)
        right.plot(steps, curve, color=COLORS[name], lw=1.6, label=name)
    left.set(xlabel="step", ylim=(0, 1.35 * peak))
    left.set_title("learning rate", fontsize=10, loc="left")
    right.set(xlabel="step")
    right.set_title("loss, nats a token", fontsize=10, loc="left")
    left.legend(loc="upper right", frameon=False, fontsize=9, ncols=3)
    return figure


def quality_figure(difference: Tensor, gap: Tensor, fit: Fit) -> Figure:
    """Accuracy by difficulty, the differences Δ, calibration.

    ``difference``: score of the better answer less that of the other, (N,); ``gap``: by how much it is better.
    """
    figure, (left, middle, right) = sheet(3)
    figure.subplots_adjust(wspace=0.3)
    groups = thirds(gap)
    shares = [float((difference[group] > 0).double().mean()) for group in groups]
    left.bar(range(3), shares, color=BLUE, width=0.65)
    left.axhline(0.5, color=GREY, lw=0.8)
    left.set_xticks(range(3), ["hard", "middling", "easy"])
    left.set(ylim=(0.4, 1.0))
    left.set_title("accuracy by gold gap (thirds)", fontsize=10, loc="left")
    x = difference.tolist()
    edges = [-3 + 0.5 * i for i in range(17)]
    middle.hist([max(min(v, 4.9), -2.9) for v in x], edges, color=BLUE)
    middle.axvline(0, color="black", lw=1)
    middle.axvline(mean(x), color=ORANGE, lw=2)
    middle.set(xlabel="Δ = r(better) − r(worse)", ylabel="pairs")
    middle.set_title("margin (orange: mean)", fontsize=10, loc="left")
    right.plot([0.5, 1], [0.5, 1], color=GREY, lw=0.8)
    right.scatter([b.confidence for b in fit.bins], [b.accuracy for b in fit.bins],
                  [max(8.0, b.count) for b in fit.bins], color=ORANGE)  # fmt: skip
    right.set(xlim=(0.48, 1.02), ylim=(0.4, 1.05), xlabel="confidence σ(|Δ|)")
    right.set_title("share ordered rightly", fontsize=10, loc="left")
    return figure


def thirds(gap: Tensor) -> list[Tensor]:
    """Indices of the closest, the middle and the widest third of the pairs."""
    return list(gap.abs().argsort().tensor_split(3))


def by_gap(text: str) -> list[tuple[int, float | None]]:
    """(count, accuracy) a bin, as `experiments.policy_shift.by_gap` packed them.

    >>> by_gap("20/0.6500 0/-")
    [(20, 0.65), (0, None)]
    """
    parts = [part.split("/") for part in text.split()]
    return [(int(n), None if share == "-" else float(share)) for n, share in parts]


def pooled(texts: Sequence[str]) -> list[tuple[int, float | None]]:
    """Counts and accuracies a bin over several runs."""
    runs = [by_gap(text) for text in texts]
    found: list[tuple[int, float | None]] = []
    for bins in zip(*runs, strict=True):
        n = sum(count for count, _ in bins)
        good = sum(count * share for count, share in bins if share is not None)
        found.append((n, good / n if n else None))
    return found


LABELS = ("0–.1", "–.2", "–.4", "–.6", "–.8", "–1", "–2")
SIDES = (("before", "after"), ("matched_before", "matched_after"), ("valence_before", "valence_after"))


def shift_figure(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Left: how far apart pairs are, before and after PPO. Middle: accuracy at each gap. Right: plain and matched.

    Matched by gold, and by the sum of word valences that gold squashes.
    """
    figure, (left, middle, right) = sheet(3, size=(9.6, 3.2))
    figure.subplots_adjust(0.06, 0.19, 0.99, 0.9, 0.25)
    last = max(row["step"] for row in rows)
    for step, color, name, side in ((0, BLUE, "before PPO", -0.2), (last, ORANGE, "after PPO", 0.2)):
        bins = pooled([row["by_gap"] for row in rows if row["step"] == step])
        total = sum(n for n, _ in bins)
        left.bar([i + side for i in range(len(bins))], [n / total for n, _ in bins], 0.4, color=color, label=name)
        shown = [(i, share) for i, (n, share) in enumerate(bins) if share is not None and n >= 30]
        middle.plot([i for i, _ in shown], [share for _, share in shown], "o-", color=color, lw=2, label=name)
    for axes, title in ((left, "share of the pairs"), (middle, "accuracy at this gap")):
        axes.set_xticks(range(len(LABELS)), LABELS, fontsize=8)
        axes.set_xlabel("difference in gold")
        axes.set_title(title, fontsize=10, loc="left")
    left.legend(frameon=False, fontsize=9)
    middle.set_ylim(0.45, 1.03)
    for x, keys in enumerate(SIDES):
        ends = [values(rows, key, step=last) for key in keys]
        for pair in zip(*ends, strict=True):
            right.plot([x - 0.22, x + 0.22], pair, color=GREY, lw=1)
        for place, found, color in ((x - 0.22, ends[0], BLUE), (x + 0.22, ends[1], ORANGE)):
            right.plot([place] * len(found), found, "o", color=color, ms=5, alpha=0.8, mec="none")
    right.set_xticks(range(3), ("as they\ncome", "equal gaps\nin gold", "equal gaps\nunsquashed"), fontsize=8)
    right.set(xlim=(-0.5, 2.5), ylim=(0.45, 1.03))
    right.set_title("accuracy, a line a run", fontsize=10, loc="left")
    return figure


def people_figure(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Accuracy on held-out human preferences by number of pairs, a dot a run, and VADER's on the same pairs."""
    figure, (axes,) = sheet(1, size=(9.2, 2.8))
    sizes = sorted({row["pairs"] for row in rows})
    for x, size in enumerate(sizes):
        for key, color, side, name in (("accuracy", BLUE, -0.12, "trained on ratings"),
                                       ("vader", ORANGE, 0.12, "VADER, untrained")):  # fmt: skip
            found = values(rows, key, pairs=size)
            spread = [x + side + 0.1 * (i / max(len(found) - 1, 1) - 0.5) for i in range(len(found))]
            axes.plot(spread, found, "o", color=color, ms=6, alpha=0.75, mec="none", label=name if x == 0 else None)
    axes.axhline(0.5, color=GREY, lw=0.8)
    axes.set_xticks(range(len(sizes)), [f"{size:,} pairs" for size in sizes])
    axes.set(xlim=(-0.5, len(sizes) - 0.5), ylabel="agrees with people")
    axes.legend(loc="lower right", frameon=False, fontsize=9)
    return figure
