"""One function a panel: ``panel(ax, rows)`` draws on the axes it is given, from rows of metrics.jsonl and nothing else.

Every panel copes with one step and with ten thousand, with NaN, with spikes, and says "not measured" for what is not
there. The healthy band is the registry's. `PANELS` lists them in reading order: is it getting better, is the step
healthy, what about the critic, the variety and the cost.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from ppo_lab.diagnose.curves import Rows, absent, bulk, curve, finish, note, series, short
from ppo_lab.diagnose.scales import close, dots, right_scale
from ppo_lab.diagnose.style import (
    BLUE,
    DASHDOT,
    DASHED,
    DOTTED,
    GREEN,
    INK,
    NOTE,
    ORANGE,
    PURPLE,
    SKY,
    VERMILLION,
    drawable,
)
from ppo_lab.diagnose.words import pairs
from ppo_lab.metrics import GROUPS
from ppo_lab.records import HISTOGRAM_EDGES


def reward(ax: Axes, rows: Rows) -> None:
    """Score, the price of the KL, and their sum; the gold reward on its own scale."""
    drawn = [
        curve(ax, rows, "score_mean", "score", BLUE),
        curve(ax, rows, "reward_mean", "total", VERMILLION, DASHED),
        curve(ax, rows, "non_score_reward", "−β·KL", GREEN, DASHDOT),
    ]
    gold = right_scale(ax, rows, "gold", [("gold_mean", "gold", ORANGE, DOTTED)])
    close(ax, rows, "reward", "reward", drawn, ("score_mean", "reward_mean", "non_score_reward"), right=gold)


def evaluation(ax: Axes, rows: Rows, *, baseline: Mapping[str, Any] | None = None) -> None:
    """Held-out score, objective and gold; ``baseline`` is the untouched SFT policy, drawn at step 0 and as a level."""
    start: Rows = [] if baseline is None else [{"step": 0, **baseline}]
    rows = [*start, *rows]
    drawn = [
        curve(ax, rows, "eval_score", "score", BLUE, marker="o"),
        curve(ax, rows, "eval_objective", "score − β₀·KL", VERMILLION, DASHED, marker="s"),
    ]
    gold = right_scale(ax, rows, "gold", [("eval_gold", "gold", ORANGE, DOTTED)], marker="D")
    close(ax, rows, "evaluation", "reward", drawn, ("eval_score", "eval_objective"), right=gold)
    for axes, name, color in ((ax, "eval_score", BLUE), (gold, "eval_gold", ORANGE)):
        if axes is not None and baseline is not None and np.isfinite(float(baseline.get(name, np.nan))):
            level = float(baseline[name])
            axes.axhline(level, color=color, linewidth=0.8, alpha=0.7, gid=f"{name} baseline", label="_", zorder=0.6)


def reference(ax: Axes, rows: Rows) -> None:
    """KL to the reference, nats per sequence; β on the right where it moved."""
    drawn = [curve(ax, rows, "ref_kl_sum", "rollout", BLUE), dots(ax, rows, "eval_ref_kl_sum", "held out")]
    moved = len(set(series(rows, "beta")[1].tolist())) > 1
    beta = right_scale(ax, rows, "β", [("beta", "β", PURPLE, DASHED)]) if moved else None
    close(ax, rows, "reference", "nats per sequence", drawn, ("ref_kl_sum",), right=beta, healthy="ref_kl_sum")


def length(ax: Axes, rows: Rows) -> None:
    """Tokens in an answer, and how many answers end by themselves."""
    drawn = [curve(ax, rows, "response_length", "rollout", BLUE), dots(ax, rows, "eval_response_length", "held out")]
    stop = right_scale(ax, rows, "share", [("stop_rate", "stopped", ORANGE, DOTTED)], low=0.0, high=1.05)
    close(ax, rows, "length", "tokens", drawn, ("response_length", "stop_rate"), right=stop)


def step(ax: Axes, rows: Rows) -> None:
    """How far one update moved the policy, nats per token; a tick below marks an update the KL limit cut short."""
    drawn = [
        curve(ax, rows, "policy_kl_k3", "k3", BLUE),
        curve(ax, rows, "policy_kl_k1", "k1", VERMILLION, DASHED),
    ]
    stopped = [row["step"] for row in rows if row.get("early_stop") == 1]
    if stopped:
        ax.plot(stopped, np.full(len(stopped), 0.02), "|", color=NOTE, markersize=5, gid="early_stop",
                label="stopped early", transform=ax.get_xaxis_transform())  # fmt: skip
    close(ax, rows, "step", "nats per token", drawn, ("policy_kl_k3", "policy_kl_k1"), healthy="policy_kl_k3")


def clip(ax: Axes, rows: Rows) -> None:
    """Tokens outside the ratio band, those without gradient, and values the value clip ruled."""
    drawn = [
        curve(ax, rows, "clip_fraction", "outside", BLUE),
        curve(ax, rows, "active_clip_fraction", "no gradient", VERMILLION, DASHED),
        curve(ax, rows, "value_clip_fraction", "value", GREEN, DASHDOT),
    ]
    close(ax, rows, "clip", "share of tokens", drawn, ("clip_fraction", "active_clip_fraction"), low=0.0,
           healthy="clip_fraction")  # fmt: skip


def ratio(ax: Axes, rows: Rows) -> None:
    """Histogram of log ratios, 41 bins with open ends, of the last step and the first."""
    counted = [row for row in rows if row.get("log_ratio_histogram") is not None and sum(row["log_ratio_histogram"])]
    if not counted:
        ax.set_title(GROUPS["ratio"], pad=6)
        return absent(ax, "log_ratio_histogram")
    width = HISTOGRAM_EDGES[1] - HISTOGRAM_EDGES[0]
    edges = np.array([HISTOGRAM_EDGES[0] - width, *HISTOGRAM_EDGES, HISTOGRAM_EDGES[-1] + width])
    last, first = (np.array(row["log_ratio_histogram"], dtype=float) for row in (counted[-1], counted[0]))
    floor = 0.5 / max(last.sum(), first.sum())  # below one token: where a logarithm has to stand on something
    ax.stairs(np.maximum(last / last.sum(), floor), edges, baseline=floor, fill=True, color=SKY, alpha=0.55, gid="last",
              label=f"step {counted[-1]['step']}")  # fmt: skip
    if len(counted) > 1:
        ax.stairs(np.maximum(first / first.sum(), floor), edges, baseline=floor, color=VERMILLION, linestyle=DASHED,
                  linewidth=1.2, gid="first", label=f"step {counted[0]['step']}")  # fmt: skip
    ax.set_yscale("log")
    ax.set_ylim(floor, 1.3)
    finish(ax, [], GROUPS["ratio"], "share of tokens")
    ax.set_xlim(edges[0], edges[-1])
    ax.set_xticks([-2, -1, 0, 1, 2], ["≤−2", "−1", "0", "1", "≥2"])
    ax.set_xlabel("log ratio, nats", labelpad=1)


def gradient(ax: Axes, rows: Rows) -> None:
    """Gradient norm before clipping, mean and largest, and both learning rates."""
    drawn = [
        curve(ax, rows, "gradient_norm", "mean", BLUE),
        curve(ax, rows, "gradient_norm_max", "largest", VERMILLION, DASHED),
    ]
    rates = [("actor_rate", "actor", GREEN, DASHDOT), ("critic_rate", "critic", ORANGE, DOTTED)]
    right = right_scale(ax, rows, "rate", rates, low=0.0)
    close(ax, rows, "gradient", "norm", drawn, ("gradient_norm", "gradient_norm_max"), right=right, log=True,
           healthy="gradient_norm")  # fmt: skip


def loss(ax: Axes, rows: Rows) -> None:
    """Policy loss, and the value loss on its own scale."""
    drawn = [
        curve(ax, rows, "policy_loss", "policy", BLUE),
        curve(ax, rows, "ref_kl_loss", "reference KL", GREEN, DASHDOT),
    ]
    right = right_scale(ax, rows, "reward²", [("value_loss", "value", VERMILLION, DASHED)], low=0.0)
    close(ax, rows, "loss", "policy loss", drawn, ("policy_loss", "value_loss"), right=right)


def value(ax: Axes, rows: Rows) -> None:
    """Explained variance, and whether values follow returns."""
    drawn = [curve(ax, rows, "explained_variance", "explained", BLUE)]
    means = [("value_mean", "value", VERMILLION, DASHED), ("return_mean", "return", ORANGE, DOTTED)]
    right = right_scale(ax, rows, "reward", means)
    close(ax, rows, "value", "explained variance", drawn, ("explained_variance",), right=right, high=1.05,
           healthy="explained_variance")  # fmt: skip


def entropy(ax: Axes, rows: Rows) -> None:
    """Entropy of the policy, nats per token, and how many words and pairs of words differ."""
    drawn = [curve(ax, rows, "entropy", "entropy", BLUE)]
    distinct = [("distinct_2", "distinct-2", VERMILLION, DASHED), ("distinct_1", "distinct-1", GREEN, DASHDOT)]
    right = right_scale(ax, rows, "share", distinct, low=0.0)
    close(ax, rows, "entropy", "nats per token", drawn, ("entropy",), right=right, low=0.0)


def cost(ax: Axes, rows: Rows) -> None:
    """Seconds of a step, stacked: rollout, scoring, update; peak memory on the right."""
    parts = [("seconds_rollout", "rollout", BLUE, 0.75), ("seconds_score", "score", ORANGE, 0.75),
             ("seconds_update", "update", GREEN, 0.45)]  # fmt: skip
    timed = [row for row in rows if all(row.get(name) is not None for name, *_ in parts)]
    if not timed:
        ax.set_title(GROUPS["cost"], pad=6)
        return absent(ax, *(name for name, *_ in parts))
    groups = np.array_split(np.arange(len(timed)), min(len(timed), 200))
    steps = np.array([float(row["step"]) for row in timed])
    edges = np.array([steps[g[0]] - 0.5 for g in groups] + [steps[-1] + 0.5])
    below = np.zeros(len(groups))
    for name, label, color, alpha in parts:
        seconds = series(timed, name)[1]
        top = below + np.array([np.nanmean(np.where(np.isfinite(seconds[g]), seconds[g], 0.0)) for g in groups])
        ax.stairs(top, edges, baseline=below, fill=True, color=color, alpha=alpha, linewidth=0, label=label, gid=name)
        below = top
    memory = right_scale(ax, rows, "MiB", [("peak_memory_mb", "memory", NOTE, DOTTED)], low=0.0)
    if memory is not None:
        memory.set_ylim(0, 1.25 * memory.get_ylim()[1])
    top = bulk(below)[1]
    ax.set_ylim(0, 1.08 * top or 1.0)
    if below.max() > top:
        worst = int(below.argmax())
        note(ax, f"▲ off scale, to {short(below[worst])} s at step {steps[groups[worst][0]]:.0f}")
    finish(ax, rows, GROUPS["cost"], "seconds per step", right=memory)
    ax.set_xlim(edges[0], edges[-1])


def samples_strip(ax: Axes, samples: Sequence[Mapping[str, Any]], *, most: int = 4) -> None:
    """A few answers to the same prompts, before and after; what does not fit ends in ``…``."""
    ax.axis("off")
    found = pairs(samples)[:most]
    steps = sorted({int(sample["step"]) for sample in samples})
    heads = ["Prompt", f"Step {steps[0]}", f"Step {steps[-1]}" if len(steps) > 1 else ""]
    columns = ((0.0, 28), (0.17, 74), (0.59, 74))
    for (x, _), head in zip(columns, heads, strict=True):
        ax.text(x, 1.0, head, transform=ax.transAxes, va="top", fontsize=8, fontweight="bold")
    for line, (first, last) in enumerate(found):
        texts = [str((first or last or {}).get("prompt", "")), _said(first), _said(last)]
        for (x, width), text in zip(columns, texts, strict=True):
            ax.text(x, 0.8 - 0.2 * line, _cut(drawable(" ".join(text.split())), width), transform=ax.transAxes,
                    va="top", fontsize=7.5, color=NOTE if x == 0 else INK, parse_math=False)  # fmt: skip


def _said(sample: Mapping[str, Any] | None) -> str:
    if sample is None:
        return ""
    score = sample.get("score")
    return ("" if score is None else f"({short(float(score), digits=3)}) ") + str(sample["response"])


def _cut(text: str, width: int) -> str:
    """The text cut to so many letters, wide scripts counting double.

    >>> _cut("a long answer", 8), _cut("短い", 8)
    ('a long …', '短い')
    """
    taken = 0
    for at, letter in enumerate(text):
        taken += 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        if taken > width:
            return text[: at - 1] + "…"
    return text


PANELS: dict[str, Callable[..., None]] = {
    "reward": reward,
    "evaluation": evaluation,
    "reference": reference,
    "length": length,
    "step": step,
    "clip": clip,
    "ratio": ratio,
    "gradient": gradient,
    "loss": loss,
    "value": value,
    "entropy": entropy,
    "cost": cost,
}
