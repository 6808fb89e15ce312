"""The cheat sheet: every number of a log, and what other frameworks call it."""

from __future__ import annotations

from pathlib import Path

from ppo_lab.course.docs.markdown import books_of, code, shown_in, span, table
from ppo_lab.course.logging_names import SHORT
from ppo_lab.metrics import GROUPS, REGISTRY, Metric, group


def cheat_sheet(root: Path) -> str:
    """Formula, our name, unit, healthy band, notebook; then the names elsewhere."""
    sections = "\n\n".join(f"### {title}\n\n{formulas(group(key))}" for key, title in GROUPS.items() if group(key))
    return f"""\
# Cheat sheet

A line for every number in `metrics.jsonl`, in the order of the dashboard. The healthy band is where runs that learn
were seen; leaving it means look, not alarm ([when it breaks](when_it_breaks.md)). r is the probability ratio π/π_old, A
the advantage, G the return, V the critic's value; symbols are in the [glossary](glossary.md).

## What they are

{sections}

## What they are called elsewhere

Read in the sources of TRL 1.12 (experimental.ppo), OpenRLHF, verl, CleanRL (ppo.py) and Stable-Baselines3. A dash: no
such quantity is logged.

{aliases()}

Where the same name hides another quantity:

{notes()}
"""


def formulas(entries: tuple[Metric, ...]) -> str:
    """One panel's metrics."""
    head = ("metric", "name in the log", "formula", "unit", "healthy", "notebook")
    return table(head, (
        (e.title, code(e.name), code(e.formula), e.unit or "–", span(*e.healthy) if e.healthy else "–",
         shown_in(books_of(e.rows)) or "–")
        for e in entries
    ))  # fmt: skip


def aliases() -> str:
    """Our name against theirs."""
    named = [e for e in REGISTRY.values() if any(e.aliases.values())]
    rows = ((code(e.name), *(code(e.aliases.get(peer) or "") or "–" for peer in SHORT)) for e in named)
    return table(("here", *SHORT.values()), rows)


def notes() -> str:
    """Differences in mask, reduction, estimator, sign or scale."""
    return "\n".join(f"- `{e.name}`: {e.alias_notes}" for e in REGISTRY.values() if e.alias_notes)
