"""Results of notebook 03 as pictures: the tail of the ratio and its cost, and the KL estimators beside the exact KL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ppo_lab.course.figures.trust import COLORS, GREY, mean, sheet

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ppo_lab.course.experiments.importance import Moments

BLUE = COLORS[1]


def tail_figure(
    tails: Mapping[float, Sequence[float]],
    factors: Mapping[float, Sequence[float]],
    *,
    tail: float = 0.05,
    factor: tuple[float, float] = (3.0, 4.0),
) -> Figure:
    """Left: share of old samples with r > 3, over the KL. Right: variance of the gradient, over the ratio's spread.

    Thin lines are seeds, the thick one their mean; grey is what is claimed.

    Args:
        tails: KL to shares, one a seed.
        factors: std of the ratio to factors, one a seed.
        tail, factor: the claims.
    """
    figure, (left, right) = sheet()
    for ax, found in ((left, tails), (right, factors)):
        for line in zip(*found.values(), strict=True):
            ax.plot([*found], line, color=BLUE, lw=0.5, alpha=0.4)
        ax.plot([*found], [mean(x) for x in found.values()], "o-", color=BLUE, lw=2.5, label="exact, mean")
    left.axhline(tail, color=GREY, ls=":", lw=2, label="claimed beyond KL 0.1")
    left.axvline(0.1, color=GREY, lw=0.8)
    right.axhspan(*factor, color=GREY, alpha=0.3, lw=0, label="claimed at 0.5")
    right.axvline(0.5, color=GREY, lw=0.8)
    right.axhline(1, color=GREY, lw=0.8)
    left.set(xscale="log", xlabel="KL(old‖new), nats", ylabel="share with |r − 1| > 2", ylim=(-0.005, 0.2))
    right.set(xlabel="standard deviation of the ratio", ylabel="variance of the gradient, fresh = 1", ylim=(0, 12))
    for ax in (left, right):
        ax.legend(frameon=False, fontsize=8, loc="upper left")
    return figure


def estimator_figure(
    moments: Mapping[float, Sequence[Mapping[str, Moments]]], sampled: Mapping[float, Sequence[Mapping[str, float]]]
) -> Figure:
    """Left: mean of k1, k2, k3 in units of the exact KL; dots are averages of samples. Right: spread of one sample."""
    figure, (left, right) = sheet()
    kls = [*moments]
    left.axhline(1, color=GREY, lw=1.5, ls="--", label="exact KL")
    for shift, (name, color) in zip((0.93, 1.0, 1.07), zip(("k1", "k2", "k3"), COLORS, strict=False), strict=True):
        left.plot(kls, [1 + mean([m[name].bias for m in moments[kl]]) for kl in kls], color=color, lw=2, label=name)
        for kl in kls:
            dots = [found[name] for found in sampled[kl]]
            left.plot([kl * shift] * len(dots), dots, ".", color=color, ms=4, alpha=0.6)
        right.plot(kls, [mean([m[name].std for m in moments[kl]]) for kl in kls], "o-", color=color, lw=2, ms=4,
                   label=name)  # fmt: skip
    left.set(xscale="log", xlabel="KL(old‖new), nats", ylabel="estimate / exact KL", ylim=(0, 3.2))
    right.set(xscale="log", yscale="log", xlabel="KL(old‖new), nats", ylabel="spread of one sample / exact KL")
    right.set_yticks([1, 2, 5, 10], ["1", "2", "5", "10"])
    right.minorticks_off()
    left.legend(frameon=False, fontsize=8, loc="upper left")
    right.legend(frameon=False, fontsize=8, loc="upper right")
    return figure
