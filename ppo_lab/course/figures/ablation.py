"""What one changed detail does, from the recorded runs of notebook 07: effects, lights, and the numbers behind both."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ppo_lab.course.claims import ERRORS_AWAY, measure
from ppo_lab.course.experiments.what_matters import BASE, SWITCHES, TEXT, Switch
from ppo_lab.course.figures.gae_study import mean, sheet
from ppo_lab.course.html import Card, show, table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Rows = Sequence[Mapping[str, Any]]
BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#999999"
SEEN = {  # the signal that each switch is judged by in the table
    "advantages as they are": "advantage_mean", "value clip 0.2": "explained_variance",
    "rewards as they are": "return_mean", "constant rate": "actor_rate", "λ 0": "advantage_std", "λ 1": "advantage_std",
    "1 epoch": "policy_kl_exact",
    "16 epochs": "policy_kl_exact", "quotient of probabilities": "not_finite", "entropy bonus 0.01": "entropy",
    "entropy bonus 0.1": "entropy", "no gradient clipping": "gradient_norm_max",
    "16 epochs, stop at KL 0.01": "early_stop", "ε 0.1": "clip_fraction", "ε 0.3": "clip_fraction",
    "padding is read": "sampler_mismatch", "padding is counted": "first_ratio_error",
    "reference off by one token": "first_kl", "reference without the temperature": "first_kl",
}  # fmt: skip
LIGHTS = (  # of a language run: name, where it is, what is still healthy
    ("sampler_mismatch", "sampler =\nforward", 1e-3),
    ("first_ratio_error", "first\nratio = 1", 1e-4),
    ("first_kl", "KL at\nstep 1 = 0", 1e-3),
    ("counted", "only answers\ncounted", 1.0),
)


def values(rows: Rows, key: str, **where: Any) -> list[Any]:
    """The values of ``key`` in all rows that match, in order of the seeds."""
    return [row[key] for row in rows if all(row[name] == value for name, value in where.items())]


def paired(rows: Rows, key: str, switch: str, against: str = BASE, **where: Any) -> list[float]:
    """``key`` with the switch turned less ``key`` without, seed by seed; ``where`` as env="CartPole-v1".

    Raises:
        ValueError: the two have not the same seeds.
    """
    seeds = [values(rows, "seed", switch=name, **where) for name in (switch, against)]
    if seeds[0] != seeds[1] or not seeds[0]:
        raise ValueError(f"{switch!r} and {against!r} must have the same seeds, got {seeds[0]} and {seeds[1]}")
    with_, without = (values(rows, key, switch=name, **where) for name in (switch, against))
    return [a - b for a, b in zip(with_, without, strict=True)]


def told(x: Sequence[float]) -> int:
    """-1 or 1 where the mean is that side of 0 by three standard errors, else 0.

    >>> told([1.0, 1.1, 0.9, 1.0, 1.0]), told([1.0, -1.0, 2.0, -2.0, 1.0])
    (1, 0)
    """
    center = mean(x)
    error = math.sqrt(sum((v - center) ** 2 for v in x) / (len(x) - 1) / len(x))
    return 0 if abs(center) <= ERRORS_AWAY * error else int(math.copysign(1, center))


def effects_figure(rows: Rows, env: str = "CartPole-v1") -> Figure:
    """Paired differences of every switch, left of the mean return over the run, right of the last quarter's.

    Dots are seeds, bars 95 % intervals; orange and blue where three standard errors tell it from 0.
    """
    switches = [switch for switch in SWITCHES[env] if switch.name != BASE]
    figure, axes = sheet(2, size=(9.6, 0.3 * len(switches) + 1.0))
    figure.subplots_adjust(0.25, 0.5 / (0.3 * len(switches) + 1.0), 0.99, 0.93, 0.06)
    for ax, key, title in ((axes[0], "area", "mean return over the run"), (axes[1], "final", "return, last quarter")):
        for place, switch in enumerate(switches):
            x = paired(rows, key, switch.name, switch.against, env=env)
            found = measure(x, least=0.0)
            color = {-1: ORANGE, 0: GREY, 1: BLUE}[told(x)]
            ax.plot(x, [place] * len(x), ".", color=color, alpha=0.45, ms=6)
            ax.plot([found.low, found.high], [place] * 2, color=color, lw=2.5)
            ax.plot([found.mean], [place], "o", color=color, ms=6)
        ax.axvline(0, color="black", lw=0.8)
        ax.set_title(title, fontsize=10, loc="left")
        ax.set_xlabel("difference of returns, paired")
        ax.set_ylim(len(switches) - 0.5, -0.5)
        ax.grid(axis="y", color="#eeeeee")
    axes[0].set_yticks(range(len(switches)), [_label(s) for s in switches], fontsize=9)
    axes[1].set_yticks(range(len(switches)), [""] * len(switches))
    return figure


def _label(switch: Switch) -> str:
    return switch.name if switch.name == BASE else f"{switch.point}  {switch.name}"


def summary(rows: Rows, env: str | None = "CartPole-v1", key: str = "area") -> list[tuple[str, str, str, str, str]]:
    """(point, switch, difference with its interval, what can be told, signal before → after) of every switch."""
    where = {} if env is None else {"env": env}
    among = TEXT if env is None else SWITCHES[env]
    found = []
    for switch in among:
        if switch.name not in SEEN:
            continue
        x = paired(rows, key, switch.name, switch.against, **where)
        m, name = measure(x, least=0.0), SEEN[switch.name]
        digits = 2 if env is None else 0
        gap = f"{m.mean:+.{digits}f} ({m.low:+.{digits}f} to {m.high:+.{digits}f})"
        sides = [_number(mean(values(rows, name, switch=s, **where))) for s in (switch.against, switch.name)]
        words = {-1: "lower", 0: "cannot tell", 1: "higher"}[told(x)]
        found.append((switch.point, switch.name, gap, words, f"{name} {sides[0]} → {sides[1]}"))
    return found


def _number(x: float) -> str:
    """Two digits that matter; 0 for rounding noise."""
    return "0" if abs(x) < 1e-5 else f"{x:.0f}" if abs(x) >= 100 else f"{x:.2g}"


def effects_table(rows: Rows, env: str | None = "CartPole-v1", key: str = "area") -> None:
    """Show `summary` as a table; ``env`` None: the language runs."""
    found = summary(rows, env, key)
    head = ("", "switch", "paired difference (95 %)", "", "the log shows")
    text = "\n".join(f"{point} {name}: {gap}, {words}; {seen}" for point, name, gap, words, seen in found)
    title = f"{'words' if env is None else env}, {len(values(rows, 'seed', switch=BASE, **_env(env)))} seeds"
    show(Card(f"{title}\n{text}", f"<b>{title}</b>{table(found, head=head)}", width=70))


def _env(env: str | None) -> dict[str, Any]:
    return {} if env is None else {"env": env}


def lit(rows: Rows, switch: str) -> dict[str, float]:
    """The four numbers of `LIGHTS` in the runs of a switch, each the worst of the seeds."""
    return {name: max(abs(v) for v in values(rows, name, switch=switch)) for name, *_ in LIGHTS}


def text_figure(rows: Rows) -> Figure:
    """Language runs: held-out score of every seed and switch, and the lights, red where an identity is broken."""
    faults = [switch for switch in TEXT if switch.fault or switch.name in (BASE, "temperature 0.7")]
    figure, (left, right) = sheet(2, size=(9.6, 3.2))
    figure.subplots_adjust(0.3, 0.1, 0.99, 0.86, 0.05)
    for place, switch in enumerate(faults):
        x = values(rows, "score", switch=switch.name)
        color = ORANGE if switch.fault else BLUE
        left.plot(x, [place] * len(x), ".", color=color, alpha=0.5, ms=7)
        left.plot([mean(x)], [place], "o", color=color, ms=8)
        found = lit(rows, switch.name)
        for column, (name, _, healthy) in enumerate(LIGHTS):
            bad = found[name] > healthy
            right.add_patch(_cell(column, place, ORANGE if bad else GREEN))
            word = _number(found[name])
            right.text(column, place, word, ha="center", va="center", color="white", fontsize=10,
                       fontweight="bold" if bad else "normal")  # fmt: skip
    left.set_yticks(range(len(faults)), [_label(s) for s in faults], fontsize=9)
    left.set_ylim(len(faults) - 0.5, -0.5)
    left.set_title("score on held-out prompts", fontsize=10, loc="left")
    left.grid(axis="y", color="#eeeeee")
    right.set(xlim=(-0.5, len(LIGHTS) - 0.5), ylim=(len(faults) - 0.5, -0.5))
    right.set_xticks(range(len(LIGHTS)), [label for _, label, _ in LIGHTS], fontsize=9)
    right.xaxis.tick_top()
    right.set_yticks([])
    right.tick_params(length=0)
    for side in right.spines.values():
        side.set_visible(False)
    return figure


def _cell(column: int, place: int, color: str) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((column - 0.46, place - 0.4), 0.92, 0.8, color=color, lw=0)


def same_seed(logs: Mapping[int, Sequence[str]]) -> tuple[bool, bool]:
    """Fingerprints of logs by seed: are those of one seed all equal, and those of different seeds all different?

    >>> same_seed({0: ["a", "a"], 1: ["b"]}), same_seed({0: ["a", "c"], 1: ["a"]})
    ((True, True), (False, False))
    """
    equal = all(len({*found}) == 1 for found in logs.values())
    names = [name for found in logs.values() for name in {*found}]
    return equal, len({*names}) == len(names)


def eps_effects(rows: Rows) -> dict[str, list[float]]:
    """ε 0.3 against ε 0.1, relative, seed by seed: ``stability`` (1 / spread of the last quarter's returns), ``speed``
    (1 / steps until the return is good), ``final`` return.
    """

    def both(key: str) -> list[tuple[float, float]]:
        low, high = (values(rows, key, switch=f"ε {eps}", env="CartPole-v1") for eps in (0.1, 0.3))
        return [*zip(low, high, strict=True)]

    return {
        "stability": [max(a, 1.0) / max(b, 1.0) - 1 for a, b in both("spread")],
        "speed": [a / b - 1 for a, b in both("reach")],
        "final": [b / a - 1 for a, b in both("final")],
    }
