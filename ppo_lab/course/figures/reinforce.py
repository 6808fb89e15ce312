"""REINFORCE on the simplex: the exact gradient as a field of arrows, and where single estimates send the policy.

Three arms, so a policy is a point in a triangle. Arrows are solved; the cloud is sampled: four hundred policies, each
after one step of plain gradient ascent from the same start on its own small batch.
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
from ppo_lab.exact.mdp import gradient_moments

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAYS = (0.0, 0.5, 1.0)
STARTS = {"undecided": (1.0, 1.0, 1.0), "mostly the worst": (0.8, 0.15, 0.05), "mostly the best": (0.1, 0.2, 0.7)}
RATES = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
CLOUD, GONE = 400, 0.01  # single steps drawn; below this probability an arm is as good as gone
BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#999999"
CORNERS = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.5, math.sqrt(3) / 2]], dtype=torch.float64)


def pays() -> Tensor:
    """What the arms pay, (3,)."""
    return torch.tensor(PAYS, dtype=torch.float64)


def start(name: str) -> Tensor:
    """The policy a step starts from, (3,)."""
    found = torch.tensor(STARTS[name], dtype=torch.float64)
    return found / found.sum()


@functools.cache
def shares(name: str, batch: int) -> Tensor:
    """How often each arm came up in each of the batches, as a share, (CLOUD, 3)."""
    noise = torch.rand(CLOUD, batch, generator=seeding.generator("course", "simplex", batch), dtype=torch.float64)
    arm = (noise[..., None] >= start(name).cumsum(-1)[:2]).sum(-1)
    return torch.stack([(arm == a).double().mean(-1) for a in range(3)], dim=-1)


def stepped(p: Tensor, gradient: Tensor, rate: float) -> Tensor:
    """The policy after one step on the logits."""
    return (p.log() + rate * gradient).softmax(-1)


def facts(rate: float, batch: int, offset: float, policy: str) -> dict[str, Any]:
    """Exact gradient and moments of its estimate; the cloud of next policies and what each gains."""
    p, reward = start(policy), pays()
    moments = gradient_moments(p, reward + offset, baseline=0.0)
    weighted = shares(policy, batch) * (reward + offset)
    estimates = weighted - weighted.sum(-1, keepdim=True) * p  # mean of R (e_a - p) over the batch
    cloud, aim = stepped(p, estimates, rate), stepped(p, moments.mean, rate)
    gain = (cloud - p) @ reward
    size = float(moments.mean.norm())
    return {
        "here": p, "cloud": cloud, "aim": aim, "gain": gain, "J": float(p @ reward), "size": size,
        "exact_gain": float((aim - p) @ reward), "mean_gain": float(gain.mean()),
        "noise": math.sqrt(float(moments.trace_variance) / batch) / size,
        "worse": float((gain < -1e-12).double().mean()), "gone": float((cloud[:, 2] < GONE).double().mean()),
    }  # fmt: skip


def field() -> tuple[Tensor, Tensor]:
    """Points of the simplex, and where the exact gradient moves each: dp = (diag p - p pᵀ) g, both (N, 3)."""
    n = 9
    points = torch.tensor([(i, j, n - i - j) for i in range(1, n) for j in range(1, n - i)], dtype=torch.float64) / n
    moves = []
    for p in points:
        gradient = gradient_moments(p, pays(), baseline=0.0).mean
        moves.append(p * (gradient - p @ gradient))
    return points, torch.stack(moves)


def build(figure: Figure) -> dict[str, Any]:
    """Left: the triangle. Right: what the steps gain."""
    triangle = figure.add_axes((0.0, 0.0, 0.55, 1.0))
    right = figure.add_axes((0.61, 0.15, 0.375, 0.65))
    triangle.set_aspect("equal")
    triangle.axis("off")
    triangle.set(xlim=(-0.18, 1.18), ylim=(-0.1, 0.96))
    outline = torch.cat([CORNERS, CORNERS[:1]])
    triangle.plot(outline[:, 0], outline[:, 1], color=GREY, lw=1)
    places = (("center", "top", -0.03), ("center", "top", -0.03), ("center", "bottom", 0.02))
    for corner, pay, (across, up, by) in zip(CORNERS, PAYS, places, strict=True):
        triangle.text(corner[0], corner[1] + by, f"arm that pays {pay:g}", ha=across, va=up, fontsize=9)
    points, moves = (x @ CORNERS for x in field())
    triangle.quiver(points[:, 0], points[:, 1], moves[:, 0], moves[:, 1], color="#b5b5b5", width=0.006, scale=0.9)
    (cloud,) = triangle.plot([], [], "o", color=BLUE, ms=3, alpha=0.35, mew=0, label="after one estimate")
    (aim,) = triangle.plot([], [], "*", color=ORANGE, ms=14, mec="white", label="after the exact gradient")
    (here,) = triangle.plot([], [], "o", color="black", ms=7, mec="white", label="before")
    (arrow,) = triangle.plot([], [], color="#b5b5b5", lw=2, marker=">", ms=5, label="exact gradient")
    figure.legend(handles=[here, cloud, arrow, aim], loc="upper right", bbox_to_anchor=(0.995, 1.0), ncols=2,
                  frameon=False, fontsize=8.5, handletextpad=0.4, columnspacing=1.2)  # fmt: skip
    edges = torch.linspace(-1, 1, 42)
    bars = right.bar(edges[:-1] + 0.025, [0.0] * 41, width=2 / 41, color=BLUE, alpha=0.75)
    right.axvline(0, color=GREY, lw=1)
    line = right.axvline(0, color=ORANGE, lw=2.5)
    right.set(xlim=(-1, 1), ylim=(0, 1), xlabel="change of J in one step", ylabel="share of steps")
    return {"cloud": cloud, "aim": aim, "here": here, "bars": bars, "line": line, "edges": edges, "right": right}


def draw(artists: Mapping[str, Any], found: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Move the points, the bars and the exact gain."""
    for name in ("cloud", "aim", "here"):
        places = found[name].reshape(-1, 3) @ CORNERS
        artists[name].set_data(places[:, 0], places[:, 1])
    counts = torch.histc(found["gain"], bins=41, min=-1, max=1) / CLOUD
    for bar, height in zip(artists["bars"], counts.tolist(), strict=True):
        bar.set_height(height)
    artists["right"].set_ylim(0, max(0.1, 1.1 * counts.max().item()))
    artists["line"].set_xdata([found["exact_gain"]] * 2)


def reinforce_panel() -> Panel:
    """One step of REINFORCE: its rate, its batch, where the rewards' zero lies, and where it starts."""
    return Panel(
        "One step of REINFORCE",
        controls=(
            Steps("rate", "learning rate α", 3.0, RATES),
            Steps("batch", "samples a step", 4, BATCHES, "{:d}"),
            Slider("offset", "added to all rewards", 0.0, -10.0, 10.0, 1.0, digits=0),
            Choice("policy", "policy before", "mostly the best", tuple(STARTS)),
        ),
        facts=facts,
        build=build,
        draw=draw,
        table={
            "noise ÷ gradient": "{noise:.2f}",
            "steps that lower J": "{worse:.0%}",
            "best arm below 1% then": "{gone:.0%}",
            "J gained, exact gradient": "{exact_gain:+.3f}",
            "J gained, mean step": "{mean_gain:+.3f}",
        },
        alt="From a policy worth {J:.2f}, one step at rate {rate:g} on {batch} samples, rewards moved by {offset:g}: "
        "noise {noise:.2f} times the gradient, {worse:.0%} of the steps lower J.",
        missions=(
            ("mostly the worst before, at most 4 samples, and fewer than a tenth of the steps lower J",
             lambda f, s: s["policy"] == "mostly the worst" and s["batch"] <= 4 and f["worse"] < 0.1),
            ("rewards moved by 4 or more, either way, and yet less noise than twice the gradient",
             lambda f, s: abs(s["offset"]) >= 4 and f["noise"] < 2),
            ("a rate at which the exact gradient gains, and the steps lose on average",
             lambda f, s: f["exact_gain"] > 0.1 and f["mean_gain"] < -0.02),
        ),
    )  # fmt: skip
