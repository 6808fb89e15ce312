"""PPO's objective over the ratio, and on it the samples of a batch: which still push, which fell silent.

The batch is sixty steps of an old policy in twelve states with four actions, their advantages exact. The new policy
lies a chosen distance away from the old one. Whether a sample pushes is not decided by rule: the package's objective
is differentiated, and a gradient of exactly 0 counts as silent.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from ppo_lab import seeding
from ppo_lab.core.importance import log_ratio
from ppo_lab.core.kl import categorical_kl
from ppo_lab.core.objectives import clip_fraction, clipped_surrogate
from ppo_lab.course.panels import Choice, Panel, Slider

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STATES, ACTIONS, SAMPLES, WIDEST = 12, 4, 60, 2.8
WAYS = ("to better actions", "at random", "to worse actions")
DUAL = {"none": float("inf"), "3": 3.0, "2": 2.0, "1.5": 1.5}
BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#999999"


class Batch(NamedTuple):
    """Old logits and advantages of every action (S, A), and which (state, action) each sample is (N,)."""

    logits: Tensor
    advantage: Tensor
    state: Tensor
    action: Tensor
    ways: dict[str, Tensor]  # directions of logits, (S, A), of the same size


@functools.cache
def batch() -> Batch:
    """Made once, from fixed random numbers."""
    draw = seeding.generator("course", "clipping", 0)
    logits = 0.7 * torch.randn(STATES, ACTIONS, generator=draw, dtype=torch.float64)
    q = torch.randn(STATES, ACTIONS, generator=draw, dtype=torch.float64)
    random = torch.randn(STATES, ACTIONS, generator=draw, dtype=torch.float64)
    probs = logits.softmax(-1)
    advantage = q - (probs * q).sum(-1, keepdim=True)
    state = torch.arange(SAMPLES) % STATES
    action = torch.multinomial(probs[state], 1, generator=draw)[:, 0]

    def scaled(direction: Tensor) -> Tensor:
        centred = direction - (probs * direction).sum(-1, keepdim=True)
        return centred / (probs * centred.square()).sum(-1).mean().sqrt()

    ways = dict(zip(WAYS, map(scaled, (advantage, random, -advantage)), strict=True))
    return Batch(logits, advantage, state, action, ways)


def slopes(x: Tensor, advantage: Tensor, *, clip: float, dual_clip: float) -> tuple[Tensor, Tensor]:
    """The clipped objective at log-ratios ``x``, and its gradient with respect to them, by autograd."""
    x = x.clone().requires_grad_()
    terms = clipped_surrogate(x, advantage, clip=clip, dual_clip=dual_clip)
    (gradient,) = torch.autograd.grad(terms.sum(), x)
    return terms.detach(), gradient


def facts(clip: float, moved: float, way: str, dual: str) -> dict[str, Any]:
    """Ratios, objective and gradient of every sample, and the shares of the batch by what their gradient does."""
    world = batch()
    new = world.logits + moved * world.ways[way]
    old_logp, logp = (z.log_softmax(-1)[world.state, world.action] for z in (world.logits, new))
    x, advantage = log_ratio(logp, old_logp), world.advantage[world.state, world.action]
    terms, gradient = slopes(x, advantage, clip=clip, dual_clip=DUAL[dual])
    silent, outside = gradient == 0, (x.exp() < 1 - clip) | (x.exp() > 1 + clip)

    def share(which: Tensor) -> float:
        return float(which.double().mean())

    return {
        "ratio": x.exp(), "advantage": advantage, "term": terms, "silent": silent,
        "push_back": outside & ~silent, "off": share(silent), "back": share(outside & ~silent),
        "push": share(~outside & ~silent), "outside": float(clip_fraction(x, clip=clip)),
        "kl": float(categorical_kl(world.logits, new).mean()), "largest": float(x.exp().max()),
    }  # fmt: skip


def build(figure: Figure) -> dict[str, Any]:
    """Upper row: the objective for A > 0 and A < 0. Below it its gradient, then the batch as one bar."""
    figure.subplots_adjust(0.075, 0.275, 0.985, 0.945, 0.16, 0.09)
    grid = figure.add_gridspec(2, 2, height_ratios=(10, 4))
    artists: dict[str, Any] = {"sides": [build_side(figure, grid, sign) for sign in (1, -1)]}
    curve_and_samples = artists["sides"][0]["axes"].get_legend_handles_labels()
    figure.legend(*curve_and_samples, fontsize=9, frameon=False, loc="lower center", ncols=6, columnspacing=1.4,
                  handletextpad=0.5, handlelength=1.5, borderpad=0)  # fmt: skip
    bar = figure.add_axes((0.075, 0.08, 0.91, 0.062))
    bar.set(xlim=(0, 1), ylim=(-0.5, 0.5), yticks=[], xticks=[])
    for side in bar.spines.values():
        side.set_visible(False)
    artists["bar"] = [
        (bar.barh([0], [0.1], left=[0], color=color, height=1.0)[0], bar.text(0, 0, "", va="center", ha="center",
                                                                          color="white", fontsize=9))
        for color in (BLUE, GREEN, ORANGE)
    ]  # fmt: skip
    return artists


def build_side(figure: Figure, grid: Any, sign: int) -> dict[str, Any]:
    """Objective and gradient for one sign of the advantage."""
    column = 0 if sign > 0 else 1
    top, low = figure.add_subplot(grid[0, column]), figure.add_subplot(grid[1, column])
    ratio = torch.linspace(1e-3, WIDEST, 561, dtype=torch.float64)
    top.plot(ratio, sign * ratio, "--", color=GREY, lw=1.2, label="r A, never clipped")
    (curve,) = top.plot([], [], color=BLUE, lw=2.5, label="clipped", zorder=2)
    (slope,) = low.plot([], [], color=BLUE, lw=2)
    spans = [[axes.axvspan(0, 0, color=ORANGE, alpha=0.13, lw=0, label=label) for label in ("gradient off", "_dual")]
             for axes in (top, low)]  # fmt: skip
    (on,) = top.plot([], [], "o", color=BLUE, ms=6, mec="white", mew=0.8, zorder=3, label="pushes")
    (back,) = top.plot([], [], "D", color=GREEN, ms=6, mec="white", mew=0.8, zorder=3, label="pushes back")
    (off,) = top.plot([], [], "x", color=ORANGE, ms=7, mew=1.8, zorder=3, label="silent")
    for axes in (top, low):
        axes.axvline(1, color=GREY, lw=0.8)
    top.set(xlim=(0, WIDEST), ylim=(-0.15, 2.9) if sign > 0 else (-2.9, 0.15))
    top.tick_params(labelbottom=False)
    top.set_title("A > 0: good actions" if sign > 0 else "A < 0: bad actions", fontsize=11)
    low.set(xlim=(0, WIDEST), ylim=(-0.3, 2.9) if sign > 0 else (-2.9, 0.3), xlabel="ratio r")
    low.xaxis.labelpad = 1
    if sign > 0:
        top.set_ylabel("objective / |A|")
        low.set_ylabel("gradient")
    return {"axes": top, "sign": sign, "grid": ratio, "curve": curve, "slope": slope, "spans": spans, "on": on,
            "back": back, "off": off}  # fmt: skip


def draw(artists: Mapping[str, Any], found: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Move curves, shades, samples and the bar."""
    clip, dual = settings["clip"], DUAL[settings["dual"]]
    for side in artists["sides"]:
        sign, grid = side["sign"], side["grid"]
        terms, gradient = slopes(grid.log(), torch.full_like(grid, sign), clip=clip, dual_clip=dual)
        side["curve"].set_data(grid, terms)
        side["slope"].set_data(grid, gradient)
        silent = [(1 + clip, WIDEST), (0, 0)] if sign > 0 else [(0, 1 - clip), (min(dual, WIDEST), WIDEST)]
        for spans in side["spans"]:
            for span, (low, high) in zip(spans, silent, strict=True):
                span.set_x(low)
                span.set_width(high - low)
        mine = found["advantage"] * sign > 0
        height = found["term"] / found["advantage"].abs()
        kinds = {"on": ~found["silent"] & ~found["push_back"], "back": found["push_back"], "off": found["silent"]}
        for name, chosen in kinds.items():
            which = mine & chosen
            side[name].set_data(found["ratio"][which].clamp(max=WIDEST - 0.03), height[which].clamp(-2.85, 2.85))
    left = 0.0
    words = ("push", "push back", "silent")
    for (patch, text), word, share in zip(artists["bar"], words, (found["push"], found["back"], found["off"]),
                                          strict=True):  # fmt: skip
        patch.set_x(left)
        patch.set_width(share)
        text.set_position((left + share / 2, 0))
        text.set_text(f"{word} {share:.0%}" if share > 0.11 else "")
        left += share


def clipping_panel() -> Panel:
    """ε, how far and where to the policy has moved, and the dual clip."""
    return Panel(
        "Clipping",
        controls=(
            Slider("clip", "clip range ε", 0.2, 0.05, 0.6, 0.05),
            Slider("moved", "policy moved", 0.3, 0.0, 2.0, 0.1, 1),
            Choice("way", "moved", WAYS[0], WAYS),
            Choice("dual", "dual clip c", "none", tuple(DUAL)),
        ),
        facts=facts,
        build=build,
        draw=draw,
        table={
            "silent: gradient exactly 0": "{off:.0%}",
            "outside the band (clip_fraction)": "{outside:.0%}",
            "outside, but pushing back": "{back:.0%}",
            "largest ratio": "{largest:.2f}",
            "KL(old‖new), exact": "{kl:.3f} nats",
        },
        alt="At ε {clip:.2f}, policy moved by {moved:.1f} {way}: {off:.0%} of the samples have no gradient, {back:.0%} "
        "lie outside the band and still push back; KL {kl:.3f} nats.",
        missions=(
            (
                "ε at least 0.4, no dual clip: silence more than half of the batch",
                lambda f, s: s["clip"] >= 0.4 and s["dual"] == "none" and f["off"] > 0.5,
            ),
            (
                "more than half outside the band, yet under a tenth silent",
                lambda f, s: f["outside"] > 0.5 and f["off"] < 0.1,
            ),
            (
                "moving to better actions: KL above 0.2 nats, under a third silent",
                lambda f, s: s["way"] == WAYS[0] and f["kl"] > 0.2 and f["off"] < 1 / 3,
            ),
        ),
        size=(8.2, 4.9),
    )
