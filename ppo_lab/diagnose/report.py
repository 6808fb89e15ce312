"""The HTML report: one file that needs no other, read from a `RunLog` alone and written from our own template."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

import numpy as np

from ppo_lab.diagnose import calibration
from ppo_lab.diagnose.control import panels_of
from ppo_lab.diagnose.curves import series
from ppo_lab.diagnose.folder import RunLog
from ppo_lab.diagnose.svg import picture
from ppo_lab.diagnose.words import (
    Change,
    band_text,
    describe,
    headlines,
    latest,
    left_and_back,
    number,
    pairs,
    verdicts,
)
from ppo_lab.metrics import GROUPS, PEERS, REGISTRY, Metric, metric

CHAPTERS = {
    "Is it getting better?": ("reward", "evaluation", "reference", "length"),
    "Is each step healthy?": ("step", "clip", "ratio", "gradient"),
    "Critic, variety, cost": ("loss", "value", "entropy", "cost"),
}
MARKS = {"inside": "✓ inside", "above": "▲ above", "below": "▼ below", "not finite": "× not finite", "no band": ""}
COLUMNS = (
    '<thead><tr><th scope="col">Metric</th><th scope="col" class="num">Latest</th><th scope="col" class="num">Healthy'
    '</th><th scope="col">Verdict</th><th scope="col">How to read it</th></tr></thead>'
)
MODEL_TITLES = {"sft": "SFT policy, also the reference", "reward_model": "Reward model, on held-out pairs"}
FIGURES = {"ece": "Expected calibration error", "accuracy": "Pair accuracy", "margin": "Mean margin"}
PHASES = ("rollout", "score", "update")
SETTINGS = (  # what a reader asks for first; the rest is in the complete config
    ("Seed", "seed"), ("Corpus", "corpus.kind"), ("Policy", "policy.path"), ("Prompts a step", "sampling.prompts"),
    ("Answers a prompt", "sampling.samples"), ("Longest answer, tokens", "sampling.max_new_tokens"),
    ("Temperature", "sampling.temperature"), ("β", "kl.beta"), ("KL stands in", "kl.placement"),
    ("KL estimator", "kl.estimator"), ("KL controller", "kl.controller"), ("Objective", "ppo.objective"),
    ("Clip ε", "ppo.clip"), ("Epochs", "ppo.epochs"), ("Minibatches", "ppo.minibatches"), ("γ", "ppo.gamma"),
    ("λ", "ppo.lam"), ("Target KL", "ppo.target_kl"), ("Actor rate", "optimizer.actor_rate"),
    ("Critic rate", "optimizer.critic_rate"), ("Schedule", "optimizer.schedule"), ("Critic from", "critic.init"),
    ("Precision", "precision"), ("Environment", "env.id"), ("Environments", "env.count"), ("Rollout", "rollout"),
    ("Algorithm", "algorithm"), ("Environment steps", "total_steps"),
)  # fmt: skip


def page(run: RunLog) -> str:
    """The whole report. Texts of the run are escaped, and a content security policy lets the page load nothing."""
    place = files("ppo_lab.diagnose")
    sections = (cards(run), panels(run), samples(run), table(run), cost(run), made(run), config(run))
    return Template(place.joinpath("report.html").read_text("utf-8")).substitute(
        title=escape(run.name),
        state=escape(run.state + _best(run)),
        remarks="".join(f'<p class="remark">{escape(remark)}</p>' for remark in run.remarks),
        css=place.joinpath("report.css").read_text("utf-8"),
        sections="\n".join(filter(None, sections)),
    )


def cards(run: RunLog) -> str:
    """Before and after, and whether the last step is within its bands."""
    if not run.rows:
        return '<p class="state">No step has finished yet.</p>'
    judged = verdicts(run.rows)
    outside = [f"{entry.title} {verdict}" for entry, _, verdict in judged if verdict != "inside"]
    health = (
        f"{len(outside)} of {len(judged)} outside their healthy band at the last look: {'; '.join(outside)}."
        if outside
        else f"All {len(judged)} metrics that have a healthy band are inside it at the last look."
    )
    if earlier := left_and_back(run.rows):
        were = "; ".join(f"{metric(name).title} at step {step}" for name, step in earlier.items())
        health += f" Outside before that: {were}."
    changes = headlines(run)
    where = "; ".join(dict.fromkeys(change.where for change in changes))
    return (
        f'<section class="cards" aria-label="Before and after">{"".join(map(_card, changes))}</section>'
        f'<p class="hint">Before → after: {escape(where)}</p>'
        f'<p class="health {"above" if outside else "inside"}">{escape(health)}</p>'
    )


def panels(run: RunLog) -> str:
    """The dashboard, a picture a panel, so that it folds on narrow screens."""
    html, drawers = ['<h2 class="screen">Dashboard</h2><div class="chapters">'], panels_of(run.rows)
    for chapter, names in CHAPTERS.items():
        html.append(f'<h3>{chapter}</h3><div class="panels">')
        for name in names:
            options: dict[str, Any] = {"baseline": run.baseline} if name == "evaluation" else {}
            draw = partial(drawers[name], rows=run.rows, **options)
            html.append(f"<figure>{picture(draw, name=name, alt=describe(name, run.rows, run.baseline))}</figure>")
        html.append("</div>")
    return "\n".join([*html, "</div>"])


def samples(run: RunLog) -> str:
    """Answers to the same held-out prompts before and after, side by side."""
    found = pairs(run.samples)
    if not found:
        return ""
    steps = sorted({int(sample["step"]) for sample in run.samples})
    before = "Before training" if steps[0] == 0 else f"Step {steps[0]}"
    after = f"Step {steps[-1]}" if len(steps) > 1 else "Not yet"
    rows = [f'<div class="sample head"><div>Prompt</div><div>{before}</div><div>{after}</div></div>']
    for first, last in found:
        prompt = str((first or last or {}).get("prompt", ""))
        rows.append(
            f'<div class="sample"><div class="prompt" data-label="Prompt">{_text(prompt)}</div>'
            f"{_answer(first, before)}{_answer(last, after)}</div>"
        )
    return "<h2>Samples</h2>\n" + "\n".join(rows)


def table(run: RunLog) -> str:
    """Every metric measured: latest value, unit, band, verdict and how to read it, by panel."""
    values = latest(run.rows)
    body = []
    for group, title in GROUPS.items():
        entries = [entry for entry in REGISTRY.values() if entry.group == group and entry.name in values]
        if entries:
            body.append(f'<tr><th class="group" colspan="5" scope="rowgroup">{title}</th></tr>')
            body += [_row(entry, *values[entry.name], last=run.step) for entry in entries]
    if not body:
        return ""
    return f'<h2>Metrics</h2>\n<table class="metrics">{COLUMNS}<tbody>{"".join(body)}</tbody></table>'


def cost(run: RunLog) -> str:
    """Time, its split, throughput and memory."""
    seconds = {name: float(np.nansum(series(run.rows, f"seconds_{name}")[1])) for name in PHASES}
    total = sum(seconds.values())
    if not total:
        return ""
    tokens = float(np.nansum(series(run.rows, "tokens")[1]))
    env_steps = series(run.rows, "env_steps")[1]
    memory = series(run.rows, "peak_memory_mb")[1]
    facts = {
        "Time in steps": f"{duration(total)}",
        "A step": f"{number(total / len(run.rows))} s",
        "Response tokens": None if len(env_steps) else f"{tokens:,.0f}".replace(",", " "),
        "Response tokens a second": None if len(env_steps) else number(tokens / total),
        "Environment steps": f"{env_steps[-1]:,.0f}".replace(",", " ") if len(env_steps) else None,
        "Environment steps a second": number(env_steps[-1] / total) if len(env_steps) else None,
        "Peak memory": f"{number(float(np.nanmax(memory)))} MiB" if len(memory) else None,
    }
    bar = "".join(f'<i class="{name}" style="width:{100 * seconds[name] / total:.2f}%"></i>' for name in PHASES)
    key = "".join(f'<span><i class="{name}"></i>{name} {100 * seconds[name] / total:.0f} %</span>' for name in PHASES)
    split = f'<div class="split" aria-hidden="true">{bar}</div><div class="key">{key}</div>'
    return f"<h2>Time and memory</h2>\n{split}\n{_facts(facts)}<p class='hint'>Without evaluation and checkpoints.</p>"


def made(run: RunLog) -> str:
    """What was measured while the SFT model and the reward model were made, as their quality.json have it."""
    html = []
    for model, figures in run.made.items():
        html.append(f"<h3>{MODEL_TITLES[model]}</h3>{_facts(_plain(figures))}")
        if figures.get("bins"):
            draw, alt = partial(calibration.calibration, figures=figures), calibration.describe(figures)
            html.append(f'<figure class="single">{picture(draw, name="calibration", alt=alt)}</figure>')
    return "<h2>Made before PPO</h2>\n" + "\n".join(html) if html else ""


def config(run: RunLog) -> str:
    """The settings a reader asks for first, and all of them folded away."""
    if not run.config:
        return ""
    found = {label: _dig(run.config, path) for label, path in SETTINGS}
    facts = {label: _value(value) for label, value in found.items() if value is not None}
    full = f"<details><summary>Complete config</summary><pre>{_text(run.config_text)}</pre></details>"
    return f'<section class="config"><h2>Config</h2>\n{_facts(facts)}{full}</section>'


def duration(seconds: float) -> str:
    """Seconds as people say them.

    >>> duration(42.31), duration(125), duration(7380)
    ('42.3 s', '2 min 5 s', '2 h 3 min')
    """
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _best(run: RunLog) -> str:
    step = (run.best or {}).get("step")
    return "" if step is None else f" · best held-out objective at step {step}"


def _card(change: Change) -> str:
    before = f'<span class="before">{number(change.before)} →</span> ' if change.before is not None else ""
    return (
        f'<div class="card"><div class="name">{change.title}</div>'
        f'<div class="change">{before}<strong>{number(change.after)}</strong></div>'
        f'<div class="small">{escape(change.unit)}</div></div>'
    )


def _answer(sample: Mapping[str, Any] | None, label: str) -> str:
    if sample is None:
        return f'<div data-label="{label}"><span class="empty">none</span></div>'
    text = str(sample["response"]).lstrip()  # the space between prompt and answer
    parts = [("score", "score"), ("gold", "gold"), ("ref_kl_sum", "KL")]
    marks = " · ".join(f"{word} {number(float(sample[key]))}" for key, word in parts if sample.get(key) is not None)
    body = _text(text) if text.strip() else '<span class="empty">empty answer</span>'
    return f'<div data-label="{label}">{body}<span class="marks">{marks}</span></div>'


def _row(entry: Metric, step: int, value: float, *, last: int) -> str:
    verdict = entry.judge(value)
    small = ", ".join(filter(None, (entry.unit, f"step {step}" if step != last else "")))
    unit = f' <span class="unit">{escape(small)}</span>' if small else ""
    return (
        f'<tr><td><span class="title">{escape(entry.title)}</span><br><code>{entry.name}</code></td>'
        f'<td class="num" data-label="latest">{number(value)}{unit}</td>'
        f'<td class="num" data-label="healthy">{band_text(entry)}</td>'
        f'<td class="verdict {verdict.replace(" ", "")}">{MARKS[verdict]}</td>'
        f"<td>{escape(entry.reads)}{_more(entry)}</td></tr>"
    )


def _more(entry: Metric) -> str:
    names = ", ".join(f"{PEERS[peer]}: {name}" for peer, name in entry.aliases.items() if name)
    facts = {
        "Formula": entry.formula,
        "Reduced by": entry.reduction,
        "Over": entry.mask,
        "Estimates": entry.estimates,
        "Band from": entry.source,
        "Elsewhere": ". ".join(filter(None, (names, entry.alias_notes))),
    }
    items = "".join(f"<dt>{key}</dt><dd>{escape(text)}</dd>" for key, text in facts.items() if text)
    return f"<details><summary>definition, other names</summary><dl>{items}</dl></details>"


def _facts(facts: Mapping[str, str | None]) -> str:
    items = "".join(f"<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>" for k, v in facts.items() if v)
    return f'<dl class="facts">{items}</dl>'


def _plain(figures: Mapping[str, Any], what: str = "") -> dict[str, str]:
    """Single figures by readable name, those of an inner mapping with its name behind; lists are left to pictures."""
    found: dict[str, str] = {}
    for key, value in figures.items():
        name = FIGURES.get(key, key.replace("_", " ").capitalize()) + what
        if isinstance(value, dict):
            found |= _plain(value, f", {key.replace('_', ' ')}")
        elif not isinstance(value, list):
            found[name] = _value(value)
    return found


def _value(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_value, value))
    if isinstance(value, float):
        return number(value)
    return f"{value:,}".replace(",", " ") if type(value) is int else str(value)


def _dig(config: Mapping[str, Any], path: str) -> Any:
    node: Any = config
    for part in path.split("."):
        node = node.get(part) if isinstance(node, Mapping) else None
    return node


def _text(text: str) -> str:
    """Text of a run, safe in HTML; control characters become visible."""
    shown = "".join(c if c in "\n\t" or ord(c) >= 32 else "�" for c in text)
    return escape(shown.encode("utf-8", "replace").decode("utf-8"))
