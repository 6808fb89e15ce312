"""What β buys, exactly: the optimum of RLHF over a language of 256 answers, under a score that a few answers fool.

Nothing is trained. The optimum for a score R is π_ref exp(R/β), normalised, so every number of the panel is a sum over
all answers. The score is the true reward ("gold") plus a bonus on the eight worst answers: hacks, which a reward model
has never seen.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from ppo_lab.core.kl import categorical_kl
from ppo_lab.course.panels import Panel, Slider, Steps
from ppo_lab.exact.language import make_language
from ppo_lab.exact.optimum import optimal_logp

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HACKS = 8
BETAS = (0.02, 0.03, 0.05, 0.07, 0.1, 0.14, 0.2, 0.28, 0.4, 0.56, 0.8, 1.1, 1.6)
BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#999999"


class World(NamedTuple):
    """The language: log π_ref and gold reward of every answer (256,), and which are hacks."""

    ref_logp: Tensor
    gold: Tensor
    hack: Tensor


@functools.cache
def world() -> World:
    """Made once. The reference itself says a hack in 3 of 100 answers."""
    language = make_language(5)
    gold = language.reward
    hack = torch.zeros_like(gold, dtype=torch.bool)
    hack[gold.argsort()[:HACKS]] = True
    return World(language.ref_logp, gold, hack)


def point(beta: float, bonus: float) -> dict[str, float]:
    """KL, score, gold and share of hacks of the optimum at this β."""
    ref_logp, gold, hack = world()
    score = gold + bonus * hack
    logp = optimal_logp(ref_logp, score, beta=beta)
    p = logp.exp()
    return {"kl": float(categorical_kl(logp, ref_logp)), "score": float(p @ score), "gold": float(p @ gold),
            "hacked": float(p[hack].sum())}  # fmt: skip


@functools.cache
def frontier(bonus: float) -> dict[str, list[float]]:
    """The optimum at every β, from the tightest leash to the loosest."""
    points = [point(beta, bonus) for beta in sorted(BETAS, reverse=True)]
    return {key: [at[key] for at in points] for key in points[0]}


def facts(beta: float, bonus: float, target: float) -> dict[str, Any]:
    """The optimum at β, the whole frontier, and the β on it that earns the most gold."""
    ref_logp, gold, _ = world()
    here, all_of_them = point(beta, bonus), frontier(bonus)
    return {
        **here,
        "gold_before": float(ref_logp.exp() @ gold),
        "best_gold": max(all_of_them["gold"]),
        "from_target": here["kl"] - target,
        "frontier": all_of_them,
    }


def build(figure: Figure) -> dict[str, Any]:
    """Left: score and gold against KL. Right: the share of hacks."""
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    figure.subplots_adjust(0.08, 0.15, 0.98, 0.94, 0.24)
    left.set(xlim=(0, 4.2), ylim=(-1.1, 2.3), xlabel="KL(π‖reference), nats a sequence", ylabel="mean over answers")
    right.set(xlim=(0, 4.2), ylim=(-0.03, 1.03), xlabel="KL(π‖reference), nats a sequence", ylabel="share of hacks")
    artists: dict[str, Any] = {"axes": (left, right)}
    artists["target"] = [axes.axvline(0, color=GREY, ls="--", lw=1, label="KL target") for axes in (left, right)]
    for key, axes, color, label, width in (  # wide below narrow: where the two agree both are seen
        ("score", left, ORANGE, "score (what is optimised)", 6),
        ("gold", left, BLUE, "gold (what is meant)", 2),
        ("hacked", right, ORANGE, "", 2),
    ):
        (line,) = axes.plot([], [], color=color, lw=width, alpha=0.5 if width > 2 else 1, label=label)
        (dot,) = axes.plot([], [], "o", color=color, ms=8 + 1.2 * (width - 2))
        artists[key] = (line, dot)
    left.legend(loc="upper left", frameon=False, fontsize=9)
    return artists


def draw(artists: Mapping[str, Any], found: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Move lines and dots."""
    for line in artists["target"]:
        line.set_xdata([settings["target"]] * 2)
    for key in ("score", "gold", "hacked"):
        line, dot = artists[key]
        line.set_data(found["frontier"]["kl"], found["frontier"][key])
        dot.set_data([found["kl"]], [found[key]])


def beta_panel() -> Panel:
    """β, how much the hacks are over-rated, and the KL one would like to spend."""
    return Panel(
        "What β buys",
        controls=(
            Steps("beta", "β", 0.4, BETAS),
            Slider("bonus", "hacks over-rated by", 0.0, 0.0, 3.0, 0.25),
            Slider("target", "KL target, nats", 2.0, 0.5, 4.0, 0.25),
        ),
        facts=facts,
        build=build,
        draw=draw,
        table={
            "KL of the optimum": "{kl:.2f} nats",
            "score": "{score:.2f}",
            "gold": "{gold:.2f} (before: {gold_before:.2f})",
            "answers that are hacks": "{hacked:.0%}",
        },
        alt="At β {beta:g} the best policy is {kl:.2f} nats from the reference; score {score:.2f}, gold {gold:.2f}, "
        "{hacked:.0%} of its answers are hacks.",
        missions=(
            (
                "hacks over-rated by at least 1: bring the KL within 0.1 nats of its target",
                lambda f, s: s["bonus"] >= 1 and abs(f["from_target"]) < 0.1,
            ),
            (
                "hacks over-rated by 2 at most: score above 0.9, gold below where it started",
                lambda f, s: s["bonus"] <= 2 and f["score"] > 0.9 and f["gold"] < f["gold_before"],
            ),
            (
                "hacks over-rated by 2 or more: the most gold that a β can get",
                lambda f, s: s["bonus"] >= 2 and abs(f["gold"] - f["best_gold"]) < 1e-9,
            ),
        ),
    )
