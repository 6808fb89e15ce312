"""A run in words and numbers: what improved, what left its band, and what a picture shows to who cannot see it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ppo_lab.diagnose.curves import Rows, series, short
from ppo_lab.diagnose.folder import RunLog
from ppo_lab.metrics import GROUPS, REGISTRY, Metric, metric


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One headline: a number before and after training."""

    title: str
    unit: str
    before: float | None
    after: float | None
    where: str  # which prompts and which steps


HEADLINES = (  # title, held out, while training
    ("Score", "eval_score", "score_mean"),
    ("Gold", "eval_gold", "gold_mean"),
    ("KL to the reference", "eval_ref_kl_sum", "ref_kl_sum"),
    ("Response length", "eval_response_length", "response_length"),
    ("Return", "eval_return", "episode_return"),
    ("Worst episode", "eval_return_worst", "episode_return"),
    ("Episode length", "eval_episode_length", "episode_length"),
)

STEERED = ("clip", "lam", "entropy_coef", "penalty_beta", "delta")
TITLES = {  # of a control run's panels, where they differ
    "reward": "Return of training episodes",
    "evaluation": "Fresh environments",
    "reference": "Plans and rules",
    "length": "Episode length",
}


def is_control(rows: Rows) -> bool:
    """Whether these are rows of a control run."""
    return any("env_steps" in row for row in rows)


def headlines(run: RunLog) -> list[Change]:
    """Before and after: the SFT policy and the last evaluation; where there is none, the first step and the last."""
    changes = []
    for title, held_out, training in HEADLINES:
        steps, values = series(run.rows, held_out)
        if len(values):
            first = None if run.baseline is None else run.baseline.get(held_out)
            where = "fresh environments" if is_control(run.rows) else "held-out prompts"
            where, name = f"{where}, step 0 → {steps[-1]:.0f}", held_out
        else:
            steps, values = series(run.rows, training)
            first = float(values[0]) if len(values) > 1 else None
            where = "training episodes" if is_control(run.rows) else "training prompts"
            where, name = f"{where}, step {steps[0]:.0f} → {steps[-1]:.0f}" if len(values) else "", training
        if len(values):
            unit = metric(name).unit
            changes.append(Change(title=title, unit=unit, before=first, after=float(values[-1]), where=where))
    return changes


def number(value: float | None) -> str:
    """Three digits, and a true minus.

    >>> number(-0.04567), number(1234.5), number(3e-6), number(float("nan")), number(None)
    ('−0.0457', '1234', '3e−6', 'not finite', '–')
    """
    if value is None:
        return "–"
    if not math.isfinite(value):
        return "not finite"
    return short(value, digits=3)


def latest(rows: Rows) -> dict[str, tuple[int, float]]:
    """Step and value of the last measurement of every metric that is one number."""
    found: dict[str, tuple[int, float]] = {}
    for row in rows:
        for name in REGISTRY.keys() & row.keys():
            if isinstance(row[name], (int, float, str)):
                found[name] = (int(row["step"]), float(row[name]))
    return {name: found[name] for name in REGISTRY if name in found}


def verdicts(rows: Rows) -> list[tuple[Metric, float, str]]:
    """Metrics that have a healthy band or are not finite, with the latest value and its verdict."""
    judged = [(metric(name), value, metric(name).judge(value)) for name, (_, value) in latest(rows).items()]
    return [entry for entry in judged if entry[2] != "no band"]


def left_and_back(rows: Rows) -> dict[str, int]:
    """Metrics inside their band at the last look that were outside before: name to the first such step.

    >>> left_and_back([{"step": 1, "ref_kl_sum": 2.0}, {"step": 2, "ref_kl_sum": 90.0}, {"step": 3, "ref_kl_sum": 3.0}])
    {'ref_kl_sum': 2}
    """
    inside = [entry for entry, _, verdict in verdicts(rows) if verdict == "inside"]
    outside = {
        entry.name: [row["step"] for row in rows if entry.name in row and entry.judge(row[entry.name]) != "inside"]
        for entry in inside
    }
    return {name: steps[0] for name, steps in outside.items() if steps}


def band_text(entry: Metric) -> str:
    """The healthy band as text.

    >>> band_text(metric("ref_kl_sum"))
    '0 to 10'
    """
    return "" if entry.healthy is None else f"{number(entry.healthy[0])} to {number(entry.healthy[1])}"


def describe(panel: str, rows: Rows, baseline: Mapping[str, Any] | None = None) -> str:
    """What a panel shows, as a text of facts for those who cannot see it.

    >>> describe("entropy", [{"step": 1, "entropy": 2.0}, {"step": 2, "entropy": 1.5}])
    'Entropy and diversity. entropy (nats per token): 2 at step 1, 1.5 at step 2.'
    """
    start: Rows = [] if baseline is None or panel != "evaluation" else [{"step": 0, **baseline}]
    rows = [*start, *rows]
    control = is_control(rows)
    names = [name for name, entry in REGISTRY.items() if entry.group == panel and not (control and name in STEERED)]
    facts = [fact for name in (STEERED if control and panel == "reference" else names)
             if (fact := _fact(REGISTRY[name], rows))]  # fmt: skip
    title = TITLES.get(panel, GROUPS[panel]) if control else GROUPS[panel]
    return f"{title}. " + (" ".join(facts) or "Not measured.")


def _fact(entry: Metric, rows: Rows) -> str:
    if entry.name in ("step", "log_ratio_histogram"):
        return _histogram_fact(rows) if entry.name == "log_ratio_histogram" else ""
    steps, values = series(rows, entry.name)
    good = np.isfinite(values)
    if not len(values):
        return ""
    text = f"{entry.title}{f' ({entry.unit})' if entry.unit else ''}: {number(values[0])} at step {steps[0]:.0f}"
    if len(values) > 1:
        text += f", {number(values[-1])} at step {steps[-1]:.0f}"
    if good.any():
        low, high = np.nanargmin(np.where(good, values, np.inf)), np.nanargmax(np.where(good, values, -np.inf))
        for word, at in (("lowest", low), ("highest", high)):
            if at not in (0, len(values) - 1) and values[at] not in (values[0], values[-1]):
                text += f", {word} {number(values[at])} at step {steps[at]:.0f}"
    if not good.all():
        text += f", not finite at {(~good).sum()} of {len(values)} steps"
    return text + "."


def _histogram_fact(rows: Rows) -> str:
    counted = [row for row in rows if row.get("log_ratio_histogram") and sum(row["log_ratio_histogram"])]
    if not counted:
        return ""
    counts = np.array(counted[-1]["log_ratio_histogram"])
    middle = counts[19:22].sum() / counts.sum()
    return f"log-ratio histogram at step {counted[-1]['step']}: {100 * middle:.0f} % of tokens within ±0.15 nats of 0."


def pairs(samples: Iterable[Mapping[str, Any]]) -> list[tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]]:
    """The first and the last recorded answer to every prompt; ``None`` where there is only one.

    Prompts that occur several times are told apart by their order.
    """
    by_step: dict[int, dict[tuple[str, int], Mapping[str, Any]]] = {}
    for sample in samples:
        answers = by_step.setdefault(int(sample["step"]), {})
        prompt = str(sample["prompt"])
        answers[prompt, sum(key[0] == prompt for key in answers)] = sample
    if not by_step:
        return []
    first, last = by_step[min(by_step)], by_step[max(by_step)]
    if len(by_step) == 1:
        return [(answer, None) for answer in first.values()]
    return [(first.get(key), last.get(key)) for key in {**first, **last}]
