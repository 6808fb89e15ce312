"""`course.map()`: the course as picture and list, and its paths; `course.broken()`: which notebook helps a sick run."""

from __future__ import annotations

from html import escape

from ppo_lab.course.captions import Drawn
from ppo_lab.course.catalogue import NOTEBOOKS, PATHS, Notebook
from ppo_lab.course.figures.course_map import course_map, facts
from ppo_lab.course.html import INK, Card, show

CELL = "padding:.1em .9em .1em 0;vertical-align:top;text-align:left"


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
    minutes = f"{book.minutes} min" if book.written else "planned"
    cells = (_title(book), escape(book.goal), minutes)
    return "".join(["<tr>", *(f'<td style="{CELL}">{cell}</td>' for cell in cells), "</tr>"])


def _title(book: Notebook) -> str:
    """A link where there is something to open."""
    title = escape(f"{book.number} {book.title}")
    return f'<a href="{book.name}.ipynb">{title}</a>' if book.written else title


BROKEN: tuple[tuple[str, str, tuple[str, ...]], ...] = (  # what one sees, where to look first, which notebooks
    ("a light is red, or a NaN", "mask, shift, padding, dropout", ("08", "14")),
    ("the score stays flat", "explained variance, rates, clip fraction", ("13",)),
    ("the KL runs away", "β, rates, early stop", ("10", "13")),
    ("score up, answers worse", "gold beside the score, diversity", ("12",)),
    ("answers shrink, or never end", "stop rate, length", ("11",)),
    ("out of memory, or too slow", "the planner", ("16", "17")),
)


def broken() -> None:
    """My run is broken: go here. A table from what one sees to the notebook; planned ones are plain text."""
    books = {book.number: book for book in NOTEBOOKS.values()}
    body, lines = "", []
    for seen, look, numbers in BROKEN:
        titles = [_title(books[n]) + ("" if books[n].written else " (planned)") for n in numbers]
        cells = (escape(seen), escape(look), "<br>".join(titles))
        body += "<tr>" + "".join(f'<td style="{CELL}">{cell}</td>' for cell in cells) + "</tr>"
        lines.append(f"{seen}: {look}; {' '.join(numbers)}")
    head = "".join(f'<th scope="col" style="{CELL}">{text}</th>' for text in ("you see", "look at", "then open"))
    style = f"color:{INK};border-collapse:collapse"
    whole = f'<table style="{style}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    show(Card("\n".join(lines), whole))
