"""Boxes on the page: HTML for readers, and the same thing as constant text for terminals and tests.

Colours are JupyterLab's own variables with a fallback, so a card is readable in a light theme, a dark one and on a
static page. Nothing here needs a script.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

INK = "var(--jp-ui-font-color1, #212121)"
LINE = "var(--jp-border-color2, #bdbdbd)"
EDGES = {  # one colour a meaning, told apart by colour-blind readers too; the words never depend on it
    "note": "#0072B2",
    "open": "#777777",
    "bad": "#D55E00",
    "good": "#009E73",
}


class Card:
    """A box with a coloured edge. ``text`` is what a terminal, and the comparison of stored outputs, sees.

    Args:
        text: the same on every machine and in every run.
        body: HTML, already escaped.
        edge: a key of `EDGES`.
        width: at most, in em; 52 reads well, code needs more.
    """

    def __init__(self, text: str, body: str, *, edge: str = "note", width: int = 52) -> None:
        self.text, self.body, self.edge, self.width = text, body, edge, width

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        style = (
            f"color:{INK};border:1px solid {LINE};border-left:6px solid {EDGES[self.edge]};border-radius:4px;"
            f"padding:.5em .9em;max-width:{self.width}em;line-height:1.45;overflow-x:auto"
        )
        return f'<div style="{style}">{self.body}</div>'


def show(thing: Any) -> None:
    """Display in a notebook, print elsewhere."""
    ipython = sys.modules.get("IPython")
    if ipython is not None and ipython.get_ipython() is not None:
        from IPython.display import display

        display(thing)
    else:
        print(repr(thing))


def details(summary: str, body: str) -> str:
    """Something that opens on a click; ``body`` is HTML, ``summary`` plain text.

    >>> details("a < b", "<p>think</p>")[:61]
    '<details style="margin-top:.2em"><summary>a &lt; b</summary><'
    """
    inside = f'<div style="margin-left:1.2em">{body}</div>'
    return f'<details style="margin-top:.2em"><summary>{escape(summary)}</summary>{inside}</details>'


def table(rows: Iterable[Sequence[str]], *, head: Sequence[str] = (), align: str = "left") -> str:
    """A plain table of text; the last column may be aligned ``right`` for numbers.

    >>> table([("a", "<1")]).count("&lt;1")
    1
    """
    line = f"border-bottom:1px solid {LINE};text-align:left;padding:.1em .9em .1em 0"
    top = "".join(f'<th scope="col" style="{line}">{escape(cell)}</th>' for cell in head)
    body = "".join(f"<tr>{_cells(row, align)}</tr>" for row in rows)
    thead = f"<thead><tr>{top}</tr></thead>" if head else ""
    return f'<table style="color:{INK};border-collapse:collapse;margin:0">{thead}<tbody>{body}</tbody></table>'


def _cells(row: Sequence[str], align: str) -> str:
    """The cells of one line, padded, the last one aligned."""
    sides = ["left"] * (len(row) - 1) + [align]
    style = "padding:.1em .9em .1em 0;vertical-align:top;text-align:{}"
    return "".join(
        f'<td style="{style.format(side)}">{escape(cell)}</td>' for cell, side in zip(row, sides, strict=True)
    )


def code(source: str) -> str:
    """Source text as a block.

    >>> code("a < b")
    '<pre style="margin:.2em 0;white-space:pre;overflow-x:auto">a &lt; b</pre>'
    """
    return f'<pre style="margin:.2em 0;white-space:pre;overflow-x:auto">{escape(source)}</pre>'
