"""What the figures draw, as data: comparing outputs does not look at pictures."""

from __future__ import annotations

from typing import Any

import pytest
from matplotlib.colors import same_color

from ppo_lab import course
from ppo_lab.course import catalogue
from ppo_lab.course.catalogue import NOTEBOOKS, PATHS
from ppo_lab.course.figures.course_map import COLORS, course_map, facts


def dots(figure: Any) -> list[tuple[int, int, bool]]:
    """(notebook, lane, filled) of every dot."""
    single = [line for line in figure.axes[0].get_lines() if len(line.get_xdata()) == 1]
    return [(line.get_xdata()[0], -line.get_ydata()[0], not same_color(line.get_markerfacecolor(), "white"))
            for line in single]  # fmt: skip


def test_a_line_a_path_and_a_dot_a_notebook() -> None:
    figure = course_map()
    lines = [line for line in figure.axes[0].get_lines() if len(line.get_xdata()) > 1]
    assert [[f"{x:02}" for x in line.get_xdata()] for line in lines] == [[*path] for path in PATHS.values()]
    assert [line.get_color() for line in lines] == [*COLORS]
    assert len(dots(figure)) == sum(map(len, PATHS.values()))


def test_written_notebooks_are_filled(monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    books = {name: replace(book, written=book.number in ("00", "10")) for name, book in NOTEBOOKS.items()}
    for module in ("figures.course_map", "maps"):
        monkeypatch.setattr(f"ppo_lab.course.{module}.NOTEBOOKS", books)
    assert {x for x, _, filled in dots(course_map()) if filled} == {0, 10}
    assert facts() == {"notebooks": 19, "written": 2, "paths": 4, "shortest": 4}


def test_map_lists_all_and_links_only_what_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    from dataclasses import replace

    from ppo_lab.course.maps import _row

    course.map()
    out = capsys.readouterr().out
    assert all(name in out for name in NOTEBOOKS) and "my run is broken: 00 08 13 14" in out
    book = catalogue.notebook("05_gae")
    assert "href" not in _row(replace(book, written=False)) and "planned" in _row(replace(book, written=False))
    assert 'href="05_gae.ipynb"' in _row(replace(book, written=True))
