"""Symbols on demand: `symbols("r", "A", "ε")` shows a collapsed card built from the registry `SYMBOLS`.

One entry a symbol: how it is written, what it means, its shape and unit, where the package computes or keeps it, and
its English and Chinese name. The documentation's glossary is made from the same entries.
"""

from __future__ import annotations

from difflib import get_close_matches

from ppo_lab.course.glossary import CONTROL, LANGUAGE, PROBABILITY, SCALE, Symbol
from ppo_lab.course.html import Card, details, show, table

SYMBOLS: dict[str, Symbol] = {entry.key: entry for entry in CONTROL + PROBABILITY + LANGUAGE + SCALE}
HEAD = ("symbol", "name", "meaning", "shape", "unit", "in code", "中文")


def symbol(key: str) -> Symbol:
    """The entry written so; `ValueError` with the nearest one otherwise.

    >>> symbol("ε").name, symbol("ε").chinese
    ('clip range', '截断范围')
    """
    if key in SYMBOLS:
        return SYMBOLS[key]
    named = {entry.name: entry.key for entry in SYMBOLS.values()}
    near = [*get_close_matches(key, SYMBOLS, n=1), *(named[n] for n in get_close_matches(key, named, n=1))]
    raise ValueError(f"{key!r} is not in the glossary; did you mean {(near or ['one of SYMBOLS'])[0]!r}?")


def symbols(*keys: str) -> None:
    """Show a collapsed card that explains these symbols."""
    if not keys:
        raise ValueError('symbols() needs at least one symbol, as course.symbols("r", "A")')
    entries = [symbol(key) for key in keys]
    rows = [(e.key, e.name, e.meaning, e.shape, e.unit, e.code, e.chinese) for e in entries]
    title = f"Symbols: {', '.join(keys)}"
    show(Card("; ".join(f"{e.key} {e.name}" for e in entries), details(title, table(rows, head=HEAD))))
