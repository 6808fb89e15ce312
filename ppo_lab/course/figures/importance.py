"""Old samples for a new policy: the weights, what is left of the batch, and the estimate beside the truth.

An answer is T steps; the action of a step is a number, N(0, 1) under the old policy and N(m, 1) under the new one. So
everything is known: the log-ratio of an answer is normal with variance T m² and mean -T m²/2, under the old policy.
What is estimated is the new policy's mean action, m.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ppo_lab import seeding
from ppo_lab.core.distributions import gaussian_logp
from ppo_lab.core.importance import effective_sample_size, importance_weights, log_ratio
from ppo_lab.core.kl import gaussian_kl
from ppo_lab.course.panels import Panel, Slider, Steps

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LENGTHS, SIZES = (1, 4, 16, 64), (16, 64, 256, 1024, 4096)
BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#999999"
FAR = 3.0  # |r - 1| > 2 means r > 3, as no ratio is below 0
GRID = torch.linspace(-4, 4, 81, dtype=torch.float64)  # log10 of the ratio


@functools.cache
def actions(length: int, draw: int) -> Tensor:
    """Actions of the old policy, (answers, T); smaller batches are the first rows of this one."""
    generator = seeding.generator("course", "importance", length, draw)
    return torch.randn(SIZES[-1], length, generator=generator, dtype=torch.float64)


def normal_cdf(x: float) -> float:
    """Standard normal distribution function."""
    return 0.5 * math.erfc(-x / math.sqrt(2))


def above(ratio: float, variance: float) -> float:
    """Exact share of old samples whose ratio is above ``ratio``, log-ratios being N(-variance/2, variance)."""
    if variance == 0:
        return float(ratio < 1)
    return normal_cdf(-(math.log(ratio) + variance / 2) / math.sqrt(variance))


@functools.lru_cache(maxsize=32)
def all_ratios(length: int, moved: float, draw: int) -> tuple[Tensor, Tensor]:
    """Log-ratio of every answer of the largest batch, and its mean action: by the package's functions."""
    a, zero = actions(length, draw), torch.zeros(length, dtype=torch.float64)
    new, old = (gaussian_logp(torch.full_like(a, mean), zero, a) for mean in (moved, 0.0))  # a sum over the steps
    return log_ratio(new, old), a.mean(-1)


def answer_ratios(length: int, moved: float, draw: int, count: int) -> tuple[Tensor, Tensor]:
    """Log-ratio of the first ``count`` answers, and their mean action, (count,)."""
    x, mean_action = all_ratios(length, moved, draw)
    return x[:count], mean_action[:count]


def facts(moved: float, length: float, samples: float, draw: float) -> dict[str, Any]:
    """Weights of the batch, what it is worth by its own account and in truth, the estimate and the truth."""
    length, samples, draw = int(length), int(samples), int(draw)
    x, mean_action = answer_ratios(length, moved, draw, samples)
    w = importance_weights(x)
    variance = length * moved**2
    zero = torch.zeros(1, dtype=torch.float64)
    step = gaussian_kl(zero, zero, torch.full((1,), moved, dtype=torch.float64), zero).item()
    terms = w * mean_action
    running = terms.cumsum(0) / torch.arange(1, samples + 1)
    second = math.exp(variance) * ((2 * moved) ** 2 + 1 / length)  # E_old[(w ā)²]
    error = math.sqrt(second - moved**2)
    return {
        "log_ratio": x, "running": running, "truth": moved, "error": error,
        "kl": length * step, "std": math.sqrt(math.expm1(variance)), "tail": above(FAR, variance),
        "left": effective_sample_size(x).item() / samples, "left_exact": math.exp(-variance),
        "heaviest": float(w.max() / w.sum()), "estimate": float(running[-1]), "variance": variance,
    }  # fmt: skip


def build(figure: Figure) -> dict[str, Any]:
    """Left: the ratios. Right: the estimate, as samples come in."""
    left, right = figure.subplots(1, 2)
    figure.subplots_adjust(0.04, 0.13, 0.985, 0.92, 0.16)
    for ax in (left, right):
        ax.spines[["top", "right"]].set_visible(False)
    artists: dict[str, Any] = {"left": left, "right": right}
    artists["bars"] = left.bar(GRID[:-1], [0.0] * (len(GRID) - 1), width=0.1, align="edge", color=BLUE, alpha=0.55,
                               label="batch")  # fmt: skip
    (artists["density"],) = left.plot([], [], color=BLUE, lw=1.5, label="exact")
    (artists["weight"],) = left.plot([], [], color=ORANGE, lw=2, label="weighted by r")
    left.axvline(0, color=GREY, lw=0.8)
    left.set(xlim=(-4, 4), xlabel="ratio of an answer", ylabel="share")
    left.set_xticks([-4, -2, 0, 2, 4], ["10⁻⁴", "10⁻²", "1", "10²", "10⁴"])
    left.set_yticks([])  # only the shape matters
    left.legend(frameon=False, fontsize=8, loc="upper left")
    artists["band"] = None
    (artists["truth"],) = right.plot([], [], "--", color=GREY, lw=1.5, label="exact")
    (artists["running"],) = right.plot([], [], color=BLUE, lw=2, label="estimate")
    right.set(xscale="log", xlabel="answers used", title="mean action of the new policy")
    right.title.set_fontsize(10)
    left.set_title("ratios π / π_old", fontsize=10)
    right.legend(frameon=False, fontsize=8, loc="upper left")
    return artists


def draw_panel(artists: Mapping[str, Any], found: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Move bars, curves, estimate and its exact ±2 standard errors."""
    logs = (found["log_ratio"] / math.log(10)).clamp(-3.999, 3.999)
    counts = torch.histc(logs, bins=len(GRID) - 1, min=-4, max=4) / len(logs)
    for bar, height in zip(artists["bars"], counts.tolist(), strict=True):
        bar.set_height(height)
    variance = max(found["variance"], 1e-4)
    x = GRID * math.log(10)
    density = torch.exp(-((x + variance / 2) ** 2) / (2 * variance)) / math.sqrt(2 * math.pi * variance)
    weighted = torch.exp(-((x - variance / 2) ** 2) / (2 * variance)) / math.sqrt(2 * math.pi * variance)
    per_bin = 0.1 * math.log(10)
    artists["density"].set_data(GRID, density * per_bin)
    artists["weight"].set_data(GRID, weighted * per_bin)
    top = max(float(counts.max()), float((density * per_bin).max()))
    artists["left"].set_ylim(0, 1.15 * min(top, 1.0))
    right, count = artists["right"], len(found["running"])
    n = torch.arange(1, count + 1, dtype=torch.float64)
    artists["running"].set_data(n, found["running"])
    artists["truth"].set_data([1, count], [found["truth"]] * 2)
    for old in [*right.collections]:
        old.remove()
    spread = 2 * found["error"] / n.sqrt()
    right.fill_between(n, found["truth"] - spread, found["truth"] + spread, color=GREY, alpha=0.2, lw=0)
    reach = 1.5 + found["truth"]
    right.set(xlim=(1, count), ylim=(found["truth"] - reach, found["truth"] + reach))


def importance_panel() -> Panel:
    """How far the policy moved, how long answers are, how many there are, and which."""
    return Panel(
        "Old samples, new policy",
        controls=(
            Slider("moved", "each step moved by", 0.3, 0.0, 1.5, 0.05),
            Steps("length", "steps in an answer", 4, LENGTHS),
            Steps("samples", "answers", 256, SIZES),
            Steps("draw", "another batch", 0, tuple(range(5))),
        ),
        facts=facts,
        build=build,
        draw=draw_panel,
        table={
            "KL(old‖new), an answer": "{kl:.2f} nats",
            "std of the ratio, exact": "{std:.2f}",
            "ratios above 3, exact": "{tail:.1%}",
            "effective share, by the batch": "{left:.0%}",
            "effective share, exact": "{left_exact:.1%}",
            "share of the heaviest answer": "{heaviest:.0%}",
            "estimate (exact)": "{estimate:.2f} ({truth:.2f})",
        },
        alt="Each step moved by {moved:.2f}, {length:g} steps in an answer: KL {kl:.2f} nats, {left:.0%} of "
        "{samples:g} answers are left by the batch's account, {left_exact:.1%} in truth.",
        missions=(
            (
                "16 steps or more in an answer: keep between 45 % and 65 % of the batch",
                lambda f, s: s["length"] >= 16 and s["samples"] >= 256 and 0.45 <= f["left"] <= 0.65,
            ),
            (
                "1024 answers or more, and one of them carries over half of the weight",
                lambda f, s: s["samples"] >= 1024 and f["heaviest"] > 0.5,
            ),
            (
                "1 or 4 steps: the batch claims three times the effective share that it has",
                lambda f, s: s["length"] <= 4 and f["left"] > 3 * f["left_exact"] and f["left_exact"] > 0.001,
            ),
        ),
        size=(8.2, 4.2),
    )
