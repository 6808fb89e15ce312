"""Results of notebook 04 as pictures: reuse, one batch, promises that are kept or not, and what holds the KL.

Every figure has its data beside it, in functions that tests call.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ppo_lab.course.claims import measure
from ppo_lab.exact.mdp import clipped_surrogate_value, mean_kl, policy_gradient, solve, surrogate_value, trpo_bound
from ppo_lab.exact.mdp.counterexample import OLD, alike, two_doors

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ppo_lab.course.experiments.reuse import Epoch, Round

COLORS = ("#D55E00", "#0072B2", "#E69F00", "#009E73", "#555555")
BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#999999"


def sheet(columns: int = 2, size: tuple[float, float] = (9.2, 3.3)) -> tuple[Figure, Sequence[Any]]:
    """A figure with axes side by side."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, dpi=100)
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, columns, squeeze=False)[0]
    figure.subplots_adjust(0.09, 0.16, 0.985, 0.9, 0.26)
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
    return figure, axes


def column(rows: Sequence[Mapping[str, Any]], key: str, **where: Any) -> list[float]:
    """The values of ``key`` in all rows that match, in order of the seeds."""
    return [row[key] for row in rows if all(row[name] == value for name, value in where.items())]


def mean(x: Sequence[float]) -> float:
    """Arithmetic mean."""
    return sum(x) / len(x)


def reuse_figure(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Final gain and mean KL of an update over the epochs on a batch, a line a method; bars are 95 % intervals.

    ``rows`` as `experiments.reuse.study` gives them.
    """
    figure, (left, right) = sheet()
    epochs = sorted({row["epochs"] for row in rows})
    methods = list(dict.fromkeys(row["method"] for row in rows))
    for i, (method, color) in enumerate(zip(methods, COLORS, strict=False)):
        places = [k * 1.03 ** (i - 2) for k in epochs]  # side by side, or bars hide each other
        found = [measure(column(rows, "gain", method=method, epochs=k), least=0.0) for k in epochs]
        means = [m.mean for m in found]
        bars = [[m.mean - m.low for m in found], [m.high - m.mean for m in found]]
        left.errorbar(places, means, bars, color=color, lw=2, capsize=2, marker="o", ms=4, label=method)
        right.plot(epochs, [mean(column(rows, "kl", method=method, epochs=k)) for k in epochs], "o-", color=color, lw=2,
                   ms=4)  # fmt: skip
    for ax in (left, right):
        ax.set_xscale("log")
        ax.set_xticks(epochs, [str(k) for k in epochs])
        ax.minorticks_off()
        ax.set_xlabel("epochs on every batch")
    left.set(ylabel="gain in J: 1 is the best policy", ylim=(0, 1.02))
    right.set(yscale="log", ylabel="KL of an update, nats")
    left.legend(frameon=False, fontsize=8, loc="lower right")
    return figure


def batch_figure(runs: Mapping[str, Sequence[Sequence[Epoch]]], *, clip: float = 0.2) -> Figure:
    """Exact KL and silent share after every pass over one batch, a colour a kind of run; thin lines are seeds.

    The dotted line is the KL that no policy can pass whose ratios all stay above 1 − ε: −ln(1 − ε).
    """
    figure, (left, right) = sheet()
    for (label, seen), color in zip(runs.items(), COLORS, strict=False):
        passes = range(1, len(seen[0]) + 1)
        shown = ((left, "kl"), (right, "silent"))[: 1 if label == "surrogate" else 2]  # nothing silences the surrogate
        for ax, key in shown:
            lines = [[getattr(epoch, key) for epoch in run] for run in seen]
            for line in lines:
                ax.plot(passes, line, color=color, lw=0.5, alpha=0.35)
            ax.plot(passes, [mean(x) for x in zip(*lines, strict=True)], color=color, lw=2.5, label=label)
    left.axhline(-math.log1p(-clip), color=GREY, ls=":", lw=1.5, label="all ratios in the band")
    left.set(ylabel="KL(old‖new), exact, nats", xlabel="passes over the same batch")
    right.set(ylabel="silent share of the batch", xlabel="passes over the same batch", ylim=(-0.02, 1))
    left.legend(frameon=False, fontsize=8, loc="upper left")
    return figure


@functools.cache
def doors(clip: float = 0.2) -> dict[str, list[float]]:
    """Two doors: what J gains and what both surrogates promise, over the ratio of the one probability."""
    mdp, old = two_doors(), alike(OLD)
    start = solve(mdp, old).J.item()
    ratios = [round(0.9 + 0.01 * i, 2) for i in range(46)]
    found: dict[str, list[float]] = {"ratio": ratios, "J": [], "surrogate": [], "clipped": []}
    for ratio in ratios:
        new = alike(OLD * ratio)
        found["J"].append(solve(mdp, new).J.item() - start)
        found["surrogate"].append(surrogate_value(mdp, old, new).item() - start)
        found["clipped"].append(clipped_surrogate_value(mdp, old, new, clip=clip).item() - start)
    return found


@functools.cache
def bound_on_a_line(seed: int = 0) -> dict[str, list[float]]:
    """A random world, a step of growing length along the exact gradient: J, the surrogate, the TRPO bound."""
    from ppo_lab.course.experiments.reuse import world

    mdp = world(seed).mdp
    logits = torch.zeros_like(mdp.reward)
    old = logits.softmax(-1)
    direction, start = policy_gradient(mdp, logits), solve(mdp, old).J.item()
    found: dict[str, list[float]] = {"kl": [], "J": [], "surrogate": [], "bound": []}
    for exponent in range(-40, 13):
        new = (logits + 10 ** (exponent / 10) * direction).softmax(-1)
        parts = trpo_bound(mdp, old, new)
        found["kl"].append(mean_kl(mdp, old, new).item())
        for key, value in (("J", parts.J), ("surrogate", parts.surrogate), ("bound", parts.bound)):
            found[key].append(value.item() - start)
    return found


def promise_facts() -> dict[str, float]:
    """At the best step of the clipped surrogate: what it promises and what J gains; and the most the bound promises."""
    found, line = doors(), bound_on_a_line()
    best = max(range(len(found["ratio"])), key=found["clipped"].__getitem__)
    most = max(range(len(line["bound"])), key=line["bound"].__getitem__)
    return {"ratio": found["ratio"][best], "promised": found["clipped"][best], "gained": found["J"][best],
            "bound": line["bound"][most], "bound_kl": line["kl"][most], "reach": max(line["J"])}  # fmt: skip


def promise_figure() -> Figure:
    """Left: two doors, where the clipped surrogate rises and J falls. Right: the TRPO bound over the size of a step."""
    figure, (left, right) = sheet()
    found = doors()
    left.axvspan(0.8, 1.2, color=BLUE, alpha=0.07, lw=0, label="the band, ε = 0.2")
    left.axhline(0, color=GREY, lw=0.8)
    left.plot(found["ratio"], found["clipped"], color=BLUE, lw=2.5, label="clipped surrogate promises")
    left.plot(found["ratio"], found["J"], color=ORANGE, lw=2.5, label="J gains")
    best = promise_facts()
    for key, color in (("promised", BLUE), ("gained", ORANGE)):
        left.plot([best["ratio"]], [best[key]], "o", color=color, ms=8)
    left.set(xlim=(0.9, 1.35), xlabel="ratio of going", ylabel="change from the old policy")
    left.legend(frameon=False, fontsize=8, loc="lower left")
    line = bound_on_a_line()
    for key, color, label in (("J", ORANGE, "J gains"), ("bound", "#009E73", "the TRPO bound guarantees")):
        right.plot(line["kl"], line[key], color=color, lw=2.5, label=label)
    right.set(xscale="log", yscale="log", xlim=(1e-9, 1), ylim=(1e-5, 5), xlabel="KL of the step, nats",
              ylabel="gain over the old policy")  # fmt: skip
    right.legend(frameon=False, fontsize=8, loc="upper left")
    return figure


def control_figure(
    betas: Mapping[str, Sequence[Sequence[Round]]], clips: Mapping[str, Sequence[Sequence[Round]]], *, target: float
) -> Figure:
    """Exact KL of every update: left by the rule for β, right by the rule for ε; means over the seeds."""
    figure, axes = sheet()
    for ax, kinds, title in zip(axes, (betas, clips), ("penalty β, by rule", "clip range ε, by exponent"), strict=True):
        ax.axhline(target, color=GREY, ls=":", lw=1.5, label="target")
        for (label, seen), color in zip(kinds.items(), (GREY, *COLORS), strict=False):
            kls = [mean([r.kl for r in each]) for each in zip(*seen, strict=True)]
            ax.plot(range(1, len(kls) + 1), kls, color=color, lw=2, label=label)
        ax.set_title(title, fontsize=10, loc="left")
        ax.set(xlabel="round", yscale="log")
        ax.set_yticks([0.005, 0.01, 0.02, 0.05, 0.1], ["0.005", "0.01", "0.02", "0.05", "0.1"])
        ax.minorticks_off()
        ax.legend(frameon=False, fontsize=8, loc="upper right")
    axes[0].set_ylabel("KL of an update, nats")
    return figure


def gradient_table(clip: float = 0.2) -> dict[str, list[float]]:
    """Slope of the clipped term in r for each sign of A, left of, in and right of the band, by autograd."""
    from ppo_lab.core.objectives import clipped_surrogate

    def slopes(sign: float) -> list[float]:
        r = torch.tensor([1 - 2 * clip, 1.0, 1 + 2 * clip], dtype=torch.float64, requires_grad=True)
        advantage: Tensor = torch.full_like(r, sign)
        (slope,) = torch.autograd.grad(clipped_surrogate(r.log(), advantage, clip=clip).sum(), r)
        return [round(x, 9) + 0.0 for x in slope.tolist()]

    return {"A > 0": slopes(1.0), "A < 0": slopes(-1.0)}
