"""Results of notebook 05 as pictures: λ against the critic's error, a time limit, the critic's fit, its scatter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ppo_lab.course.claims import measure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ppo_lab.course.experiments.critic import CriticRun, Explained, Life

COLORS = ("#0072B2", "#009E73", "#E69F00", "#D55E00", "#999999")
BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#999999"


def sheet(columns: int, *, size: tuple[float, float] = (9.2, 3.0)) -> tuple[Figure, Sequence[Any]]:
    """A figure with axes side by side."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, dpi=100)
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, columns, squeeze=False)[0]
    figure.subplots_adjust(0.07, 0.17, 0.99, 0.88, 0.22)
    return figure, axes


def values(rows: Sequence[Mapping[str, float]], key: str, **where: float) -> list[float]:
    """The values of ``key`` in all rows that match, in order of the seeds."""
    return [row[key] for row in rows if all(row[name] == value for name, value in where.items())]


def mean(x: Sequence[float]) -> float:
    """Arithmetic mean."""
    return sum(x) / len(x)


def best_lam(rows: Sequence[Mapping[str, float]], **where: float) -> float:
    """The λ with the least mean error."""
    lams = sorted({row["lam"] for row in rows})
    return min(lams, key=lambda lam: mean(values(rows, "rmse", lam=lam, **where)))


def lambda_figure(rows: Sequence[Mapping[str, float]]) -> Figure:
    """Error of the batch's mean estimate over λ, a line a critic, an axes a batch; 95 % intervals, a ring at the best.

    ``rows`` as `experiments.gae.lambda_study` gives them.
    """
    lams, errors, batches = (sorted({row[key] for row in rows}) for key in ("lam", "error", "batch"))
    figure, axes = sheet(len(batches))
    for ax, batch in zip(axes, batches, strict=True):
        for error, color in zip(errors, COLORS, strict=False):
            found = [measure(values(rows, "rmse", lam=lam, error=error, batch=batch), least=0.0) for lam in lams]
            means = [m.mean for m in found]
            bars = [[m.mean - m.low for m in found], [m.high - m.mean for m in found]]
            ax.errorbar(range(len(lams)), means, bars, color=color, lw=2, capsize=2, label=f"critic off by {error:g}")
            best = lams.index(best_lam(rows, error=error, batch=batch))
            ax.plot([best], [means[best]], "o", ms=12, mfc="none", mec=color, mew=2)
        ax.set_xticks(range(len(lams)), [f"{lam:g}" for lam in lams])
        ax.set(xlabel="λ", ylim=(0, 1.4), title=f"mean of {batch:g} episodes")
    axes[0].set_ylabel("error, in sizes of A")
    axes[-1].legend(frameon=False, fontsize=8, loc="upper right")
    return figure


def limit_figure(right: Sequence[Life], wrong: Sequence[Life], *, truth: float, mistaken: float) -> Figure:
    """Critic's value of the first place and exact J over the iterations; thin lines are seeds.

    Args:
        right, wrong: runs that bootstrap at the limit, and that do not.
        truth: V of staying for ever.
        mistaken: the most that staying is worth where the limit is an end, a mean over its steps.
    """
    figure, axes = sheet(2)
    for ax, key, title in ((axes[0], "value", "V of the first place (critic)"), (axes[1], "J", "J (exact)")):
        for runs, color, label in ((right, BLUE, "cut: bootstrap"), (wrong, ORANGE, "done = terminated or truncated")):
            for i, run in enumerate(runs):
                curve = getattr(run, key)
                ax.plot(range(1, len(curve) + 1), curve, color=color, lw=0.9, alpha=0.6, label="" if i else label)
        ax.set(xlabel="iteration", title=title, ylim=(0, truth * 1.12))
        ax.axhline(truth, color=GREY, ls="--", lw=1)
    axes[0].text(1, truth * 1.02, "1 / (1 − γ)", color=GREY, fontsize=9)
    axes[0].axhline(mistaken, color=GREY, ls=":", lw=1)
    axes[0].text(0.98, mistaken - 0.1, "staying, if the limit were an end", color=GREY, fontsize=9, va="top",
                 ha="right", transform=axes[0].get_yaxis_transform())  # fmt: skip
    axes[1].legend(frameon=False, fontsize=8, loc="lower right")
    return figure


def critic_figure(runs: Mapping[str, Sequence[CriticRun]]) -> Figure:
    """Error of V against V^π over the rollouts, a line a setting with its 95 % interval; below 1 is better than 0."""
    figure, (ax,) = sheet(1, size=(8.4, 2.9))
    figure.subplots_adjust(0.08, 0.17, 0.68, 0.96)
    for (label, several), color in zip(runs.items(), COLORS, strict=False):
        steps = range(len(several[0].error))
        found = [measure([run.error[i] for run in several], least=0.0) for i in steps]
        x = [i + 1 for i in steps]
        ax.plot(x, [m.mean for m in found], color=color, lw=2, label=label)
        ax.fill_between(x, [m.low for m in found], [m.high for m in found], color=color, alpha=0.2, lw=0)
    ax.set(xlabel="rollouts", ylabel="off from $V^\\pi$, in its spreads", ylim=(0, None))
    ax.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1.01, 0.5))
    return figure


def scatter_figure(judged: Mapping[str, Explained]) -> Figure:
    """Each step's target over the critic's value; on the dashed line the critic is what happened."""
    figure, axes = sheet(len(judged), size=(9.2, 2.9))
    for ax, (label, found) in zip(axes, judged.items(), strict=True):
        ax.plot(found.value, found.target, ".", ms=3, alpha=0.25, color=BLUE)
        ends = [float(found.value.min()), float(found.value.max())]
        ax.plot(ends, ends, "--", color="black", lw=1)
        ax.set(xlabel="V (critic)", title=label)
        ax.text(0.03, 0.95, f"logged EV {found.logged:.2f}\ntrue EV {found.true:.2f}", transform=ax.transAxes,
                va="top", fontsize=9, bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8})  # fmt: skip
    axes[0].set_ylabel("target V + Â")
    return figure
