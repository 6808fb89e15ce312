r"""Panel of notebook 12: how hard to press on a proxy, exactly, over a language of 1,024 answers.

Nothing is trained and nothing is drawn at random but the language itself. The proxy is gold plus an error that knows
nothing of gold. Two ways to press: best-of-n, and the optimum of a leash, π_ref exp(proxy/β). Both have an exact KL,
and so both are curves over √KL. What the figure asks: does gold keep up? It hangs on the error's tail.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from ppo_lab import seeding
from ppo_lab.core.kl import categorical_kl
from ppo_lab.course.panels import Choice, Panel, Steps
from ppo_lab.exact.best_of_n import best_of_n_logp
from ppo_lab.exact.language import make_language
from ppo_lab.exact.optimum import optimal_logp

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
BETAS = (5.0, 2.0, 1.0, 0.7, 0.5, 0.35, 0.25, 0.18, 0.12, 0.08, 0.05)
ERRORS = (0.0, 0.25, 0.5, 1.0, 2.0)
TAILS = ("light", "heavy")
BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#999999"


class World(NamedTuple):
    """log π_ref, gold in deviations, and the error of each answer for both tails, ``(S,)`` float64."""

    ref_logp: Tensor
    gold: Tensor
    error: dict[str, Tensor]


@functools.cache
def world() -> World:
    """A light tail: normal. A heavy one: Student's t with 2 degrees of freedom, the same middle (quartiles) as normal.

    Of one rank in both, so that switching the tail changes how large errors are and not who has them.
    """
    language = make_language(11, tokens=4, length=5)
    p, gold = language.ref_logp.exp(), language.reward
    mean = p @ gold
    gold = (gold - mean) / (p @ (gold - mean).square()).sqrt()
    order = torch.rand(len(gold), generator=seeding.generator("pressure", "error"), dtype=torch.float64).argsort()
    rank = torch.empty_like(gold)
    rank[order] = (torch.arange(len(gold), dtype=torch.float64) + 0.5) / len(gold)
    heavy = (2 * rank - 1) / (2 * rank * (1 - rank)).sqrt()  # quantiles of t with 2 degrees of freedom
    normal = torch.special.ndtri(rank)
    scale = float(torch.special.ndtri(torch.tensor(0.75, dtype=torch.float64))) / (0.5 / math.sqrt(2 * 0.75 * 0.25))
    return World(language.ref_logp, gold, {"light": normal, "heavy": heavy * scale})


def point(logp: Tensor, proxy: Tensor) -> dict[str, float]:
    """√KL, proxy and gold of a policy."""
    ref_logp, gold, _ = world()
    p = logp.exp()
    kl = max(0.0, float(categorical_kl(logp, ref_logp)))
    return {"root": math.sqrt(kl), "kl": kl, "proxy": float(p @ proxy), "gold": float(p @ gold)}


@functools.cache
def curves(error: float, tail: str) -> dict[str, list[dict[str, float]]]:
    """Every n and every β under this error."""
    ref_logp, gold, errors = world()
    proxy = gold + error * errors[tail]
    return {"n": [point(best_of_n_logp(ref_logp, proxy, n=n), proxy) for n in NS],
            "beta": [point(optimal_logp(ref_logp, proxy, beta=beta), proxy) for beta in BETAS]}  # fmt: skip


def facts(*, error: float, tail: str, n: int, beta: float) -> dict[str, Any]:
    """Both ways at this pressure, and the best gold on either way."""
    all_of_them = curves(error, tail)
    best_of, leash = all_of_them["n"][NS.index(n)], all_of_them["beta"][BETAS.index(beta)]
    tops = {way: max(x["gold"] for x in found) for way, found in all_of_them.items()}
    return {
        "curves": all_of_them, "best_of": best_of, "leash": leash,
        "n_kl": best_of["kl"], "n_proxy": best_of["proxy"], "n_gold": best_of["gold"],
        "b_kl": leash["kl"], "b_proxy": leash["proxy"], "b_gold": leash["gold"],
        "lost_n": tops["n"] - best_of["gold"], "lost_b": tops["beta"] - leash["gold"],
        "top": max(tops.values()), "apart": abs(best_of["kl"] - leash["kl"]),
    }  # fmt: skip


def build(figure: Figure) -> dict[str, Any]:
    """Left: proxy and gold over √KL on both ways. Right: gold of every answer over its proxy."""
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    figure.subplots_adjust(0.08, 0.15, 0.98, 0.94, 0.24)
    left.set(xlim=(0, 2.8), xlabel="√KL(π‖reference), √nats", ylabel="deviations of the reference")
    right.set(xlabel="proxy of an answer", ylabel="its gold", ylim=(-2.2, 2.2))
    left.axhline(0, color=GREY, lw=0.8)
    artists: dict[str, Any] = {"axes": (left, right)}
    for key, color, label in (("proxy", ORANGE, "proxy"), ("gold", BLUE, "gold")):
        for way, style, name, marker in (("n", "-", "best-of-n", "o"), ("beta", "--", "leash β", "s")):
            (line,) = left.plot([], [], style, color=color, lw=2, label=f"{label}, {name}")
            (dot,) = left.plot([], [], marker, color=color, ms=8)
            artists[f"{key} {way}"] = (line, dot)
    left.legend(loc="upper left", frameon=False, fontsize=8)
    artists["all"] = right.scatter([], [], s=5, color=GREY, alpha=0.6)
    artists["liked"] = right.scatter([], [], s=40, facecolors="none", edgecolors=ORANGE, linewidths=1.5)
    right.set_title("ring: said oftener than before, at this n", fontsize=9, loc="left")
    return artists


def draw(artists: Mapping[str, Any], found: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Move lines, dots and the cloud."""
    ref_logp, gold, errors = world()
    left, right = artists["axes"]
    highest = 0.0
    for way, here in (("n", found["best_of"]), ("beta", found["leash"])):
        rows = found["curves"][way]
        for key in ("proxy", "gold"):
            line, dot = artists[f"{key} {way}"]
            line.set_data([0.0, *(row["root"] for row in rows)], [0.0, *(row[key] for row in rows)])
            dot.set_data([here["root"]], [here[key]])
        highest = max(highest, *(row["proxy"] for row in rows))
    left.set_ylim(-1.6, max(3.2, 1.05 * highest))
    proxy = gold + settings["error"] * errors[settings["tail"]]
    artists["all"].set_offsets(torch.stack([proxy, gold], dim=-1).numpy())
    right.set_xlim(float(proxy.min()) - 0.5, float(proxy.max()) + 0.5)
    kept = best_of_n_logp(ref_logp, proxy, n=settings["n"])
    liked = (kept.exp() > 0.02) & (kept > ref_logp)
    artists["liked"].set_offsets(torch.stack([proxy[liked], gold[liked]], dim=-1).numpy())


def pressure_panel() -> Panel:
    """n, β, the error's size and its tail."""
    return Panel(
        "How hard to press",
        controls=(
            Choice("tail", "the error's tail", "light", TAILS),
            Steps("error", "size of the error", 0.5, ERRORS),
            Steps("n", "best of n", 4, NS),
            Steps("beta", "β", 1.0, BETAS),
        ),
        facts=facts,
        build=build,
        draw=draw,
        table={
            "best-of-n": "{n_kl:.2f} nats, proxy {n_proxy:.2f}, gold {n_gold:.2f}",
            "leash": "{b_kl:.2f} nats, proxy {b_proxy:.2f}, gold {b_gold:.2f}",
            "gold lost by pressing on": "n: {lost_n:.2f}, β: {lost_b:.2f}",
        },
        alt="Error {error:g} with a {tail} tail. Best of {n}: {n_kl:.2f} nats, proxy {n_proxy:.2f}, gold {n_gold:.2f}. "
        "Leash β {beta:g}: {b_kl:.2f} nats, proxy {b_proxy:.2f}, gold {b_gold:.2f}.",
        missions=(
            (
                "a heavy tail, n of 16 or more: proxy above 3, and gold lost by pressing on more than 0.4",
                lambda f, s: s["tail"] == "heavy" and s["n"] >= 16 and f["n_proxy"] > 3 and f["lost_n"] > 0.4,
            ),
            (
                "an error of 0.5 or more: bring both ways within 0.2 nats of each other, at least 1 nat out",
                lambda f, s: s["error"] >= 0.5 and f["apart"] < 0.2 and f["n_kl"] >= 1,
            ),
            (
                "a heavy tail and an error of 0.5 or more: the most gold that either way can get",
                lambda f, s: s["tail"] == "heavy" and s["error"] >= 0.5
                and max(f["n_gold"], f["b_gold"]) > f["top"] - 1e-9,
            ),
        ),
    )  # fmt: skip
