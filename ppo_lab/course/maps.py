"""`course.map()`: the picture of the course, its notebooks in order, and the paths through them."""

from __future__ import annotations

from html import escape

from ppo_lab.course.captions import Drawn
from ppo_lab.course.catalogue import NOTEBOOKS, PATHS, Notebook
from ppo_lab.course.figures.course_map import course_map, facts
from ppo_lab.course.html import INK, Card, show


def map() -> None:
    """Show the map: a picture, then every notebook with its goal. One that is only planned is no link."""
    counted = facts()
    text = "{written} of {notebooks} notebooks are written (filled dots), {paths} paths lead through them"
    show(Drawn(course_map(), text.format(**counted)))
    rows = "".join(_row(book) for book in NOTEBOOKS.values())
    paths = "".join(f"<div><b>{escape(name)}</b>: {' '.join(path)}</div>" for name, path in PATHS.items())
    body = f'<table style="color:{INK};border-collapse:collapse"><tbody>{rows}</tbody></table>{paths}'
    lines = [f"{book.name}: {'written' if book.written else 'planned'}" for book in NOTEBOOKS.values()]
    lines += [f"{name}: {' '.join(path)}" for name, path in PATHS.items()]
    show(Card("\n".join(lines), body))


def _row(book: Notebook) -> str:
    """Number and title (a link where there is something to open), goal, minutes."""
    title = escape(f"{book.number} {book.title}")
    if book.written:
        title = f'<a href="{book.name}.ipynb">{title}</a>'
    minutes = f"{book.minutes} min" if book.written else "planned"
    style = "padding:.1em .9em .1em 0;vertical-align:top;text-align:left"
    return "".join(
        ["<tr>", *(f'<td style="{style}">{cell}</td>' for cell in (title, escape(book.goal), minutes)), "</tr>"]
    )
