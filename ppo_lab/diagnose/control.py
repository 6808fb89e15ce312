"""The panels in which a control run differs from a language model's; the others are the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from ppo_lab.diagnose.curves import Rows, curve
from ppo_lab.diagnose.plots import PANELS
from ppo_lab.diagnose.scales import close, dots, right_scale
from ppo_lab.diagnose.style import BLUE, DASHDOT, DASHED, DOTTED, GREEN, ORANGE, PURPLE, VERMILLION
from ppo_lab.diagnose.words import TITLES, is_control


def panels_of(rows: Rows) -> dict[str, Callable[..., None]]:
    """The panels for these rows, in reading order."""
    return PANELS | OWN if is_control(rows) else PANELS


def reward(ax: Axes, rows: Rows) -> None:
    """Return of the episodes that ended, with the noise of training; what rewards are divided by on the right."""
    drawn = [curve(ax, rows, "episode_return", "return", BLUE)]
    right = right_scale(ax, rows, "reward", [("reward_scale", "scale", ORANGE, DOTTED)])
    close(ax, rows, "reward", "return", drawn, ("episode_return",), right=right, title=TITLES["reward"])


def evaluation(ax: Axes, rows: Rows, *, baseline: Mapping[str, Any] | None = None) -> None:
    """Greedy return, mean and worst, and the sampled one; ``baseline`` is the untouched policy, drawn at step 0."""
    start: Rows = [] if baseline is None else [{"step": 0, **baseline}]
    rows = [*start, *rows]
    drawn = [
        curve(ax, rows, "eval_return", "greedy", BLUE, marker="o"),
        curve(ax, rows, "eval_return_worst", "worst", VERMILLION, DASHED, marker="s"),
        curve(ax, rows, "eval_return_sampled", "sampled", GREEN, DASHDOT, marker="D"),
    ]
    close(ax, rows, "evaluation", "return", drawn, ("eval_return",), title=TITLES["evaluation"])


def reference(ax: Axes, rows: Rows) -> None:
    """What a plan or a rule moves: ε, λ and c2 on the left, β or δ on the right."""
    drawn = [
        curve(ax, rows, "clip", "ε", BLUE),
        curve(ax, rows, "lam", "λ", VERMILLION, DASHED),
        curve(ax, rows, "entropy_coef", "c2", GREEN, DASHDOT),
    ]
    right = right_scale(ax, rows, "β or δ", [("penalty_beta", "β", PURPLE, DASHED), ("delta", "δ", ORANGE, DOTTED)])
    close(ax, rows, "reference", "", drawn, (), right=right, low=0.0, title=TITLES["reference"])


def length(ax: Axes, rows: Rows) -> None:
    """Steps in an episode, and how many the time limit cut."""
    drawn = [
        curve(ax, rows, "episode_length", "training", BLUE),
        dots(ax, rows, "eval_episode_length", "greedy"),
    ]
    cut = right_scale(ax, rows, "share", [("truncated_share", "cut", ORANGE, DOTTED)], low=0.0, high=1.05)
    close(ax, rows, "length", "steps", drawn, ("episode_length",), right=cut, title=TITLES["length"])


def step(ax: Axes, rows: Rows) -> None:
    """How far one update moved the policy, nats a step: on the way, and in the end."""
    drawn = [
        curve(ax, rows, "policy_kl_exact", "after the epochs", BLUE),
        curve(ax, rows, "policy_kl_k3", "k3 on the way", VERMILLION, DASHED),
    ]
    stopped = [row["step"] for row in rows if row.get("early_stop") == 1]
    if stopped:
        ax.plot(stopped, np.full(len(stopped), 0.02), "|", color=GREEN, markersize=5, gid="early_stop",
                label="stopped early", transform=ax.get_xaxis_transform())  # fmt: skip
    close(ax, rows, "step", "nats per step", drawn, ("policy_kl_exact",), low=0.0, healthy="policy_kl_exact")


def entropy(ax: Axes, rows: Rows) -> None:
    """Entropy of the policy, nats per step; σ of a Gaussian one on the right."""
    drawn = [curve(ax, rows, "entropy", "entropy", BLUE)]
    right = right_scale(ax, rows, "σ", [("action_std", "σ", VERMILLION, DASHED)], low=0.0)
    close(ax, rows, "entropy", "nats per step", drawn, ("entropy",), right=right)


OWN: dict[str, Callable[..., None]] = {
    "reward": reward, "evaluation": evaluation, "reference": reference, "length": length, "step": step,
    "entropy": entropy,
}  # fmt: skip
