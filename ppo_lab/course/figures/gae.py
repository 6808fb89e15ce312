"""GAE taken apart: the weights of the surprises, where they may not cross, and what they cost in bias and in noise.

The world is a slippery corridor of nine places whose every advantage is known. Bias and noise of the estimate are
solved exactly; the dots beside the lines were measured on sampled episodes with the package's `gae`. A number that
depends on the state alone moves no policy gradient (a baseline), so the bias is taken between the actions of a state.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from ppo_lab import seeding
from ppo_lab.core.returns import gae
from ppo_lab.course.panels import Panel, Steps
from ppo_lab.exact.advantages import between_actions, gae_moments
from ppo_lab.exact.agent import sample
from ppo_lab.exact.mdp import MDP, corridor, solve
from ppo_lab.records import ControlRollout

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LAMS = (0.0, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.97, 0.99, 1.0)
GAMMAS = (0.8, 0.9, 0.95, 0.99, 0.995, 1.0)
ERRORS = (0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0)
COUNTS = (1, 4, 16, 64, 256)
EPISODES, LONGEST = 3000, 160  # measured on; one episode in a thousand is longer
STEPS, TERMINATED_AT, CUT_AT = 24, 7, 15  # of the rollout in the heat map
LOOK = 24  # weights shown
BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#999999"


class World(NamedTuple):
    """The corridor at one discount, its policy, and what is true of it."""

    mdp: MDP
    probs: Tensor  # (S, A)
    value: Tensor  # (S,) V^π
    advantage: Tensor  # (S, A) A^π
    weight: Tensor  # (S, A) how often a step is (s, a), sums to 1


@functools.cache
def world(gamma: float = 0.99) -> World:
    """A policy that goes right three times in five; a move slips one time in five."""
    mdp = corridor(9, slip=0.2, gamma=gamma)
    probs = torch.tensor([[0.4, 0.6]], dtype=torch.float64).expand(mdp.states, 2).clone()
    found = solve(mdp, probs)
    visits = solve(replace(mdp, gamma=1.0), probs).visits[:, None] * probs
    return World(mdp, probs, found.value, found.advantage, visits / visits.sum())


def critic(world: World, error: float, seed: int = 0) -> Tensor:
    """V^π plus random errors, ``error`` times as large as V^π varies from state to state. (S,)."""
    noise = torch.randn(len(world.value), generator=seeding.generator("course", "critic", seed), dtype=torch.float64)
    noise = (noise - noise.mean()) / noise.std()
    return world.value + error * world.value.std() * noise


def rms(x: Tensor, weight: Tensor) -> float:
    """Root of the mean square under weights that sum to 1."""
    return math.sqrt(float((weight * x.square()).sum()))


@functools.cache
def errors(gamma: float, lam: float, error: float) -> tuple[float, float]:
    """Exact (bias, noise of one sample), each as a share of the size of the advantages."""
    here = world(gamma)
    moments = gae_moments(here.mdp, here.probs, critic(here, error), lam=lam)
    bias = between_actions(moments.mean, here.probs) - here.advantage
    size = rms(here.advantage, here.weight)
    return rms(bias, here.weight) / size, rms(moments.variance.sqrt(), here.weight) / size


@functools.cache
def episodes() -> tuple[ControlRollout, Tensor]:
    """Sampled once, one episode a row, and the number of the state that each step led to, (B, T).

    The critic says a state's own number here, so what it says of the next state is the next state.
    """
    here = world()
    number = torch.arange(here.mdp.states, dtype=torch.float64)
    seen = sample(here.mdp, here.probs, episodes=EPISODES, steps=LONGEST, seed=0, value=number, after_end="mask")
    return seen, seen.next_value.long()


@functools.cache
def estimates(gamma: float, lam: float, error: float) -> Tensor:
    """What `gae` says of every sampled step, less the state's exact mean and the exact advantage, (N,), shuffled."""
    here, (seen, there) = world(gamma), episodes()
    value = critic(here, error)
    found = gae(seen.reward, value[seen.obs], value[there], terminated=seen.terminated, ended=seen.ended, gamma=gamma,
                lam=lam, mask=seen.mask)  # fmt: skip
    mean = gae_moments(here.mdp, here.probs, value, lam=lam).mean
    shift = mean - between_actions(mean, here.probs) + here.advantage
    off = (found - shift[seen.obs, seen.action])[seen.mask]
    return off[seeding.permutation(len(off), "course", "gae")]


def measured(gamma: float, lam: float, error: float, count: int) -> float:
    """Error of a mean of ``count`` samples of the same state and action, as a share of the advantages' size."""
    here, (seen, _) = world(gamma), episodes()
    off = estimates(gamma, lam, error)
    order = seeding.permutation(len(off), "course", "gae")
    cell = (seen.obs * here.mdp.actions + seen.action)[seen.mask][order]
    total = 0.0
    for which, weight in enumerate(here.weight.flatten().tolist()):
        x = off[cell == which]
        groups = x[: len(x) // count * count].reshape(-1, count).mean(-1)
        total += weight * float(groups.square().mean())
    return math.sqrt(total) / rms(here.advantage, here.weight)


def weights(gamma: float, lam: float) -> Tensor:
    """Weight of the surprise in column j in the advantage of row i of a rollout with an end and a cut, (T, T)."""
    ended = torch.zeros(STEPS, dtype=torch.bool)
    ended[[TERMINATED_AT, CUT_AT]] = True
    delta, none = torch.eye(STEPS, dtype=torch.float64), torch.zeros(STEPS, STEPS, dtype=torch.float64)
    flags = ended.expand(STEPS, STEPS)
    return gae(delta, none, none, terminated=flags & False, ended=flags, gamma=gamma, lam=lam).T


def facts(gamma: float, lam: float, error: float, count: int) -> dict[str, Any]:
    """Bias, noise and total over all λ, and at this one."""
    curve = [errors(gamma, x, error) for x in LAMS]
    bias, noise = [b for b, _ in curve], [s / math.sqrt(count) for _, s in curve]
    total = [math.hypot(b, s) for b, s in zip(bias, noise, strict=True)]
    here = LAMS.index(lam)
    decay = gamma * lam
    return {
        "bias": bias[here],
        "noise": noise[here],
        "total": total[here],
        "best_lam": LAMS[total.index(min(total))],
        "best": min(total),
        "ahead": 1 / (1 - decay) if decay < 1 else math.inf,
        "curves": {"bias": bias, "noise": noise, "total": total},
        "weights": [decay**step for step in range(LOOK)],
        "map": weights(gamma, lam),
    }


def build(figure: Figure) -> dict[str, Any]:
    """Weights, heat map, errors over λ."""
    bars, heat, curve = figure.subplots(1, 3, width_ratios=(3, 4, 5))
    figure.subplots_adjust(0.06, 0.15, 0.99, 0.9, 0.28)
    bars.set(xlim=(-0.8, LOOK - 0.2), ylim=(0, 1.05), xlabel="steps ahead, l", title="weight of $\\delta_{t+l}$")
    picture = heat.imshow(torch.zeros(STEPS, STEPS).numpy(), cmap="Blues", vmin=0, vmax=1, interpolation="nearest")
    heat.set(xlabel="surprise of step", ylabel="advantage of step", title="one rollout")
    for at, low, color, word in ((TERMINATED_AT, 18, ORANGE, "terminated"), (CUT_AT, 22, GREEN, "cut")):
        heat.axvline(at + 0.5, color=color, lw=1.2)
        heat.text(at + 0.2, low, word, color=color, fontsize=8, ha="right", va="center")
    places = range(len(LAMS))
    curve.set(xlim=(-0.4, len(LAMS) - 0.6), xlabel="λ", title="error of Â, in sizes of A")
    curve.set_xticks(places, [f"{x:g}" for x in LAMS], fontsize=8)
    artists: dict[str, Any] = {"axes": (bars, heat, curve), "map": picture}
    artists["weights"] = bars.bar(range(LOOK), [0] * LOOK, color=BLUE, width=0.8)
    (artists["measured"],) = curve.plot([], [], "x", color="black", ms=6, label="both, measured")
    for key, color, style, label in (
        ("bias", ORANGE, "-", "bias"),
        ("noise", BLUE, "-", "noise"),
        ("total", "black", "--", "both"),
    ):
        (line,) = curve.plot([], [], style, color=color, lw=2 if style == "-" else 1.5, label=label)
        (dot,) = curve.plot([], [], "o", color=color, ms=8)
        artists[key] = (line, dot)
    curve.legend(loc="upper center", frameon=False, fontsize=8, ncols=4, columnspacing=1, handlelength=1.5)
    return artists


def draw(artists: Mapping[str, Any], found: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Move bars, map and lines; measure where the crosses go."""
    for bar, height in zip(artists["weights"], found["weights"], strict=True):
        bar.set_height(height)
    artists["map"].set_data(found["map"].numpy())
    here = LAMS.index(settings["lam"])
    for key in ("bias", "noise", "total"):
        line, dot = artists[key]
        line.set_data(range(len(LAMS)), found["curves"][key])
        dot.set_data([here], [found["curves"][key][here]])
    gamma, error, count = settings["gamma"], settings["error"], settings["count"]
    artists["measured"].set_data(range(len(LAMS)), [measured(gamma, lam, error, count) for lam in LAMS])
    artists["axes"][2].set_ylim(0, 1.25 * max(found["curves"]["total"]))


def gae_panel() -> Panel:
    """γ, λ, how wrong the critic is, and how many samples are averaged."""
    return Panel(
        "What λ trades",
        controls=(
            Steps("gamma", "discount γ", 0.99, GAMMAS),
            Steps("lam", "λ", 0.5, LAMS),
            Steps("error", "critic's error", 0.5, ERRORS),
            Steps("count", "samples averaged", 64, COUNTS),
        ),
        facts=facts,
        build=build,
        draw=draw,
        table={
            "looks ahead, 1/(1−γλ)": "{ahead:.1f} steps",
            "bias": "{bias:.2f} of A",
            "noise": "{noise:.2f} of A",
            "both": "{total:.2f} of A",
        },
        alt="With γ {gamma:g}, λ {lam:g} and a critic that is wrong by {error:g} times the spread of V, the estimate "
        "of an advantage is off by {bias:.2f} (bias) and {noise:.2f} (noise of {count} samples) of its size.",
        missions=(
            (
                "a critic off by 1 or more, γ at least 0.95: the λ with the least of both",
                lambda f, s: s["error"] >= 1 and s["gamma"] >= 0.95 and s["lam"] == f["best_lam"],
            ),
            (
                "λ at most 0.9, yet the advantage looks ten steps ahead or more",
                lambda f, s: s["lam"] <= 0.9 and f["ahead"] >= 10 - 1e-9,
            ),
            (
                "a critic off by 1 or more: noise below 0.5, bias below 0.2",
                lambda f, s: s["error"] >= 1 and f["noise"] < 0.5 and f["bias"] < 0.2,
            ),
        ),
        size=(9.6, 3.3),
    )
