"""Markdown that GitHub shows: tables, code in cells, and notebooks as links only where they exist."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ppo_lab.course.catalogue import NOTEBOOKS, Notebook


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; bars in cells are escaped, also in code.

    >>> print(table(["a", "b"], [["|x|", "2"]]))
    | a | b |
    |---|---|
    | \\|x\\| | 2 |
    """
    lines = [line(head), f"|{'---|' * len(head)}", *map(line, rows)]
    return "\n".join(lines)


def line(cells: Sequence[str]) -> str:
    """One row."""
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def code(text: str) -> str:
    """The text as code; nothing stays nothing."""
    return f"`{text}`" if text else ""


def span(low: float, high: float) -> str:
    """A closed band.

    >>> span(-0.1, 50.0)
    '−0.1 to 50'
    """
    return f"{low:g} to {high:g}".replace("-", "−")


def linked(book: Notebook, text: str, *, above: str = "../") -> str:
    """The text, as a link where the notebook exists."""
    return f"[{text}]({above}notebooks/{book.name}.ipynb)" if book.written else text


def shown_in(books: Iterable[Notebook], *, above: str = "../", planned: str = "planned: ") -> str:
    """Numbers of notebooks: links to those that exist, then the others, marked.

    >>> shown_in([])
    ''
    """
    some = list(books)
    there = ", ".join(linked(book, book.number, above=above) for book in some if book.written)
    later = ", ".join(book.number for book in some if not book.written)
    return "; ".join(filter(None, [there, later and planned + later]))


def books_of(rows: Iterable[str]) -> list[Notebook]:
    """The notebooks that show one of these rows of the course map."""
    wanted = {*rows}
    return [book for book in NOTEBOOKS.values() if wanted & {*book.rows}]


def book_of(number: str) -> Notebook:
    """The notebook with that number.

    >>> book_of("04").name
    '04_clipping'
    """
    return next(book for book in NOTEBOOKS.values() if book.number == number)
