"""What a metric is: a number that says of itself how it was made, what is healthy and what to do when it is not."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

PEERS = {
    "trl": "TRL (experimental.ppo)",
    "openrlhf": "OpenRLHF",
    "verl": "verl",
    "cleanrl": "CleanRL (ppo.py)",
    "sb3": "Stable-Baselines3",
}
GROUPS = {  # the panels of the dashboard, in reading order
    "reward": "Reward and its parts",
    "evaluation": "Held-out evaluation",
    "reference": "Distance from the reference",
    "length": "Length and stopping",
    "step": "Policy KL of the update",
    "clip": "Clipping",
    "ratio": "Probability ratios",
    "gradient": "Gradient and rates",
    "loss": "Losses",
    "value": "Value fit",
    "entropy": "Entropy and diversity",
    "cost": "Time and memory",
}


def peers(**names: str) -> dict[str, str | None]:
    """What other frameworks call it; ``None`` where they log no such quantity.

    >>> peers(trl="objective/kl")
    {'trl': 'objective/kl', 'openrlhf': None, 'verl': None, 'cleanrl': None, 'sb3': None}
    """
    if unknown := names.keys() - PEERS:
        raise ValueError(f"aliases must be among {', '.join(PEERS)}, got {', '.join(sorted(unknown))}; fix the name")
    return {peer: names.get(peer) for peer in PEERS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One entry of the registry, from which documentation, dashboard and diagnosis all read.

    ``healthy`` is a closed band in ``unit``; ``None`` where no number is good or bad in itself. It is the band of a run
    that learns, not a law: leaving it means *look*, and ``reads`` says where.
    """

    name: str  # the key in metrics.jsonl and the field of its record
    title: str  # two or three words, for legends and tables
    formula: str
    unit: str  # "" for a pure number
    reduction: str  # how many numbers became one
    mask: str  # which tokens, sequences or steps count
    reads: str  # what rising and falling mean, and the first remedy
    group: str  # the panel it belongs to, a key of `GROUPS`
    estimates: str | None = None  # for a KL: its direction, and from whose samples
    healthy: tuple[float, float] | None = None
    source: str = ""  # where the band comes from
    aliases: Mapping[str, str | None] = field(default_factory=peers)  # braces stand for what the run fills in
    alias_notes: str = ""  # where a peer's quantity differs in mask, reduction, estimator, sign or scale
    rows: tuple[str, ...] = ()  # rows of the course map that use it

    def judge(self, value: float) -> str:
        """``"inside"``, ``"above"`` or ``"below"`` the healthy band, ``"not finite"``, or ``"no band"``.

        >>> clipped = Metric(name="clip_fraction", title="", formula="", unit="", reduction="", mask="", reads="",
        ...                  group="clip", healthy=(0.0, 0.3))
        >>> clipped.judge(0.1), clipped.judge(0.4), clipped.judge(float("nan"))
        ('inside', 'above', 'not finite')
        """
        if not math.isfinite(value):
            return "not finite"
        if self.healthy is None:
            return "no band"
        low, high = self.healthy
        return "below" if value < low else "above" if value > high else "inside"
