"""What a quantity is called in a log: ours, and that of TRL, verl, OpenRLHF, CleanRL and Stable-Baselines3."""

from __future__ import annotations

from html import escape

from ppo_lab.course.html import Card, show
from ppo_lab.metrics import Metric
from ppo_lab.metrics import metric as find

SHORT = {"trl": "TRL", "verl": "verl", "openrlhf": "OpenRLHF", "cleanrl": "CleanRL", "sb3": "Stable-Baselines3"}


def named(entry: Metric) -> list[tuple[str, str]]:
    """(name, framework) pairs, ours first.

    >>> named(find("ref_kl_sum"))[:2]
    [('ref_kl_sum', 'here'), ('objective/kl', 'TRL')]
    """
    found = [(alias, title) for peer, title in SHORT.items() if (alias := entry.aliases.get(peer))]
    return [(entry.name, "here"), *found]


def metric(*names: str) -> None:
    """Show a line a metric: "In a log this is …", from the metric registry, with its unit and healthy band."""
    if not names:
        raise ValueError('metric() needs at least one name, as course.metric("clip_fraction")')
    lines, body = [], []
    for entry in map(find, names):
        pairs = named(entry)
        unit = f"; unit: {entry.unit}" if entry.unit else ""
        band = f"; healthy: {entry.healthy[0]:g} to {entry.healthy[1]:g}" if entry.healthy else ""
        head = f"In a log {entry.title} is "
        lines.append(head + ", ".join(f"{name} ({owner})" for name, owner in pairs) + unit + band)
        marked = ", ".join(f"<code>{escape(name)}</code> ({escape(owner)})" for name, owner in pairs)
        note = f'<div style="opacity:.8;margin-left:1em">{escape(entry.alias_notes)}</div>' if entry.alias_notes else ""
        body.append(f"<div><b>{escape(head)}</b>{marked}{escape(unit + band)}{note}</div>")
    show(Card("\n".join(lines), "".join(body)))
