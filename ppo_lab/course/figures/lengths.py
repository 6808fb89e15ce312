"""How long the best policy writes, exactly, over β, the cap, the reward and the remedy; nothing is trained.

The texts are those of `ppo_lab.exact.lengths`: good words, bad words, a stop. These remedies change the objective, so
each has a best policy of its own; spreading a score or paying it by sentence does not, so they are not among them.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ppo_lab.core.kl import categorical_kl
from ppo_lab.course.experiments.length_language import language
from ppo_lab.course.panels import Choice, Panel, Steps
from ppo_lab.exact.lengths import best_logp, mean_length

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BETAS = (0.05, 0.07, 0.1, 0.14, 0.2, 0.3, 0.5, 0.8, 1.2)
CAPS = (3, 6, 12)
WORTHS = {"mean of words": "mean", "sum of praise": "praise", "minus the blame": "blame", "all the same": "same"}
REMEDIES = {"none": "none", "KL · L_ref / L": "L_ref/L", "score · L_ref / L": "score/L"}
ORANGE, GREY = "#D55E00", "#999999"


@functools.cache
def point(beta: float, cap: int, worth: str, remedy: str) -> dict[str, Any]:
    """Lengths, KL and reward of the best policy. L_ref is 3 for the KL (the short cap), the usual length for the score.

    ``worth`` and ``remedy`` are values of `WORTHS` and `REMEDIES`.
    """
    here = language(worth, cap)
    usual = mean_length(here, here.ref_logp)
    logp = best_logp(here, beta=beta, remedy=remedy, reference_length=3.0 if remedy == "L_ref/L" else usual)
    length, kl = mean_length(here, logp), float(categorical_kl(logp, here.ref_logp))
    reward = float(logp.exp() @ here.reward)
    return {"best": length, "usual": usual, "kl": kl, "kl_token": kl / length, "reward": reward,
            "shares": here.lengths(logp).tolist(), "before": here.lengths(here.ref_logp).tolist()}  # fmt: skip


def facts(beta: float, cap: float, worth: str, remedy: str) -> dict[str, Any]:
    """The point at these settings, the same without a remedy, and the length at every β."""
    chosen = int(cap), WORTHS[worth], REMEDIES[remedy]
    plain = point(beta, *chosen[:2], "none")
    curve = [point(b, *chosen)["best"] for b in BETAS]
    return {**point(beta, *chosen), "untreated": plain["best"], "curve": curve}


def build(figure: Figure) -> dict[str, Any]:
    """Left: shares of lengths. Right: mean length over β."""
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    figure.subplots_adjust(0.08, 0.15, 0.98, 0.94, 0.24)
    left.set(xlim=(0.4, 12.6), ylim=(0, 1.02), xlabel="length, tokens", ylabel="share of texts", xticks=range(1, 13))
    right.set(xscale="log", xlim=(0.045, 1.35), ylim=(0.5, 12.5), xlabel="β", ylabel="mean length, tokens")
    places = range(1, 13)
    before = left.bar([x - 0.2 for x in places], [0] * 12, width=0.4, color=GREY, label="reference")
    best = left.bar([x + 0.2 for x in places], [0] * 12, width=0.4, color=ORANGE, label="best policy π*")
    left.legend(loc="upper center", frameon=False, fontsize=9)
    (line,) = right.plot([], [], color=ORANGE, lw=2)
    (dot,) = right.plot([], [], "o", color=ORANGE, ms=8)
    return {"before": before, "best": best, "line": line, "dot": dot, "usual": right.axhline(0, color=GREY, ls="--")}


def draw(artists: Mapping[str, Any], found: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Set the bars' heights, move line and dot."""
    for name, key in (("before", "before"), ("best", "shares")):
        heights = [*found[key][1:], *[0.0] * (13 - len(found[key]))]
        for bar, height in zip(artists[name], heights, strict=True):
            bar.set_height(height)
    artists["line"].set_data(BETAS, found["curve"])
    artists["dot"].set_data([settings["beta"]], [found["best"]])
    artists["usual"].set_ydata([found["usual"]] * 2)


def lengths_panel() -> Panel:
    """β, the cap, the reward and the remedy."""
    return Panel(
        "What length is best?",
        controls=(
            Steps("beta", "β", 0.3, BETAS),
            Steps("cap", "cap, tokens", 3, CAPS),
            Choice("worth", "reward", "mean of words", (*WORTHS,)),
            Choice("remedy", "remedy", "none", (*REMEDIES,)),
        ),
        facts=facts,
        build=build,
        draw=draw,
        table={
            "mean length of π*": "{best:.2f} tokens",
            "of the reference": "{usual:.2f} tokens",
            "KL of π*": "{kl:.2f} nats, {kl_token:.2f} a token",
            "reward of π*": "{reward:.2f}",
        },
        alt="Reward {worth}, cap {cap}, remedy {remedy}, β {beta:g}: the best policy writes {best:.2f} tokens on "
        "average, the reference {usual:.2f}; KL {kl:.2f} nats.",
        missions=(
            (
                "mean of words, no remedy: π* writes less than half of what the reference does",
                lambda f, s: s["worth"] == "mean of words" and s["remedy"] == "none" and f["best"] < f["usual"] / 2,
            ),
            (
                "mean of words, cap 12, β at most 0.2: bring π* back to within 1.5 tokens of the reference",
                lambda f, s: s["worth"] == "mean of words" and s["cap"] == 12 and s["beta"] <= 0.2
                and abs(f["best"] - f["usual"]) < 1.5,
            ),
            (
                "the trap: a remedy that costs the sum of praise a token or more of length",
                lambda f, s: s["worth"] == "sum of praise" and f["best"] < f["untreated"] - 1,
            ),
        ),
    )  # fmt: skip


