"""What a baseline does to a gradient estimate: histograms on one axis, along the exact gradient; 1 is the truth.

Five arms. An estimate depends on its batch by the arms' counts only, so a thousand batches are a thousand rows of
counts, and every baseline is judged on the same ones.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ppo_lab import seeding
from ppo_lab.course.panels import Choice, Panel, Slider, Steps
from ppo_lab.exact.mdp import GradientMoments, gradient_moments

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ARMS, DRAWS, EDGE, BINS = 5, 1000, 5.0, 60
KINDS = ("none", "expected reward", "batch mean", "leave-one-out", "optimal constant")
STARTS = {"undecided": (1.0, 1.0, 1.0, 1.0, 1.0), "half decided": (0.05, 0.1, 0.15, 0.2, 0.5),
          "nearly sure, and wrong": (0.9, 0.025, 0.025, 0.025, 0.025)}  # fmt: skip
BATCHES = (2, 3, 4, 6, 8, 12, 16, 32, 64)
BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#999999"


def pays(offset: float = 0.0) -> Tensor:
    """What the arms pay: 0 to 1 in equal steps, and the offset, (5,)."""
    return torch.linspace(0, 1, ARMS, dtype=torch.float64) + offset


def start(name: str) -> Tensor:
    """The policy whose gradient is estimated, (5,)."""
    found = torch.tensor(STARTS[name], dtype=torch.float64)
    return found / found.sum()


@functools.cache
def counts(name: str, batch: int) -> Tensor:
    """How often each arm came up in each batch, (DRAWS, 5)."""
    noise = torch.rand(DRAWS, batch, generator=seeding.generator("course", "baselines", batch), dtype=torch.float64)
    arm = (noise[..., None] >= start(name).cumsum(-1)[:-1]).sum(-1)
    return torch.nn.functional.one_hot(arm, ARMS).sum(1).double()


def constants(moments: GradientMoments) -> dict[str, Tensor]:
    """The baselines that do not depend on the batch."""
    return {"none": torch.zeros(()), "expected reward": moments.value_baseline,
            "optimal constant": moments.optimal_baseline}  # fmt: skip


def estimates(kind: str, p: Tensor, reward: Tensor, seen: Tensor) -> Tensor:
    """The batch gradients with this baseline, (DRAWS, 5), from counts."""
    batch = float(seen[0].sum())
    if kind in ("batch mean", "leave-one-out"):
        centred = reward - (seen @ reward / batch)[:, None]
        # R_i less the mean of the others is (R_i less the mean of all) · n/(n-1)
        weight = centred * (batch / (batch - 1) if kind == "leave-one-out" else 1.0)
    else:
        weight = reward - constants(gradient_moments(p, reward, baseline=0.0))[kind]
    weighted = seen / batch * weight
    return weighted - weighted.sum(-1, keepdim=True) * p


def facts(baseline: str, batch: int, offset: float, policy: str) -> dict[str, Any]:
    """Estimates along the exact gradient, without and with the baseline; squared noise of every kind."""
    p, reward, seen = start(policy), pays(offset), counts(policy, batch)
    truth = gradient_moments(p, reward, baseline=0.0).mean
    size = truth.norm()
    noise, error, along = {}, {}, {}
    for kind in KINDS:
        found = estimates(kind, p, reward, seen)
        mean = truth * (1 - 1 / batch) if kind == "batch mean" else truth  # exact, see notebook 02
        noise[kind] = float((found - mean).square().sum(-1).mean() / size**2)
        error[kind] = float((found - truth).square().sum(-1).mean() / size**2)
        along[kind] = found @ truth / size**2
    return {
        "along": along[baseline], "without": along["none"], "noise": noise, "error": error,
        "mean": 1 - 1 / batch if baseline == "batch mean" else 1.0, "cut": 1 - noise[baseline] / noise["none"],
        "spread": math.sqrt(noise[baseline]), "off": math.sqrt(error[baseline]),
        "wrong": float((along[baseline] < 0).double().mean()), "astray": float((along["none"] < 0).double().mean()),
    }  # fmt: skip


def build(figure: Figure) -> dict[str, Any]:
    """Left: the two histograms. Right: squared noise of all five kinds."""
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    figure.subplots_adjust(0.085, 0.15, 0.985, 0.86, 0.56)
    width = 2 * EDGE / BINS
    places = torch.linspace(-EDGE, EDGE, BINS + 1)[:-1] + width / 2
    kinds = (("without", GREY, 0.5, "no baseline"), ("along", BLUE, 0.7, "with this one"))
    artists: dict[str, Any] = {"axes": (left, right)}
    for key, color, alpha, label in kinds:
        artists[key] = left.bar(places, [0.0] * BINS, width=width, color=color, alpha=alpha, label=label)
    left.axvline(0, color=GREY, lw=0.8)
    left.axvline(1, color=ORANGE, lw=2, label="exact gradient")
    (artists["mean"],) = left.plot([], [], "v", color="black", ms=9, clip_on=False, label="mean with this one")
    left.set(xlim=(-EDGE, EDGE), xlabel="estimate ÷ exact gradient, along it",
             ylabel="share of batches")  # fmt: skip
    left.locator_params(axis="y", nbins=4)
    figure.legend(loc="upper left", bbox_to_anchor=(0.05, 1.0), fontsize=9, frameon=False, ncols=4, handlelength=1.4)
    artists["bars"] = right.barh(range(len(KINDS)), [1.0] * len(KINDS), color=BLUE)
    right.set(xscale="log", xlim=(0.01, 3000), xlabel="squared noise ÷ squared gradient", yticks=range(len(KINDS)))
    right.set_yticklabels(KINDS, fontsize=9)
    right.set_xticks([0.01, 1, 100], ["0.01", "1", "100"])
    right.invert_yaxis()
    return artists


def draw(artists: Mapping[str, Any], found: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Move bars and the mean; what lies outside the axis is piled up at its ends."""
    left = artists["axes"][0]
    highest = 0.0
    for key in ("without", "along"):
        inside = found[key].clamp(-EDGE + 1e-9, EDGE - 1e-9)
        heights = (torch.histc(inside, bins=BINS, min=-EDGE, max=EDGE) / DRAWS).tolist()
        highest = max(highest, *heights)
        for bar, height in zip(artists[key], heights, strict=True):
            bar.set_height(height)
    left.set_ylim(0, 1.12 * highest)
    artists["mean"].set_data([found["mean"]], [1.06 * highest])
    for kind, bar in zip(KINDS, artists["bars"], strict=True):
        bar.set_width(found["noise"][kind])
        bar.set_color(BLUE if kind == settings["baseline"] else GREY)


def baselines_panel() -> Panel:
    """Which baseline, how many samples, where the rewards' zero lies, and the policy."""
    return Panel(
        "A thousand gradients",
        controls=(
            Choice("baseline", "baseline", "leave-one-out", KINDS),
            Steps("batch", "samples a batch", 4, BATCHES, "{:d}"),
            Slider("offset", "added to all rewards", 1.0, -3.0, 3.0, 0.5),
            Choice("policy", "policy", "half decided", tuple(STARTS)),
        ),
        facts=facts,
        build=build,
        draw=draw,
        table={
            "mean ÷ exact gradient": "{mean:.3f}",
            "noise ÷ gradient": "{spread:.2f}",
            "error ÷ gradient": "{off:.2f}",
            "variance taken off": "{cut:.0%}",
            "batches that point away": "{wrong:.0%} (bare {astray:.0%})",
        },
        alt="Baseline {baseline}, {batch} samples: the mean is {mean:.3f} of the exact gradient, the noise "
        "{spread:.2f} times as long, {wrong:.0%} of the batches point away from it.",
        missions=(
            ("no baseline, and yet at most a tenth above the noise² of the best constant",
             lambda f, s: s["baseline"] == "none" and f["noise"]["none"] < 1.1 * f["noise"]["optimal constant"]),
            ("the expected reward as baseline: at least a third more noise² than the best constant",
             lambda f, s: s["baseline"] == "expected reward"
             and f["noise"]["expected reward"] > 4 / 3 * f["noise"]["optimal constant"]),
            ("biased by more than a tenth, and still nearer to the truth than leave-one-out",
             lambda f, s: f["mean"] < 0.9 and f["error"]["batch mean"] < f["error"]["leave-one-out"]),
        ),
    )  # fmt: skip
