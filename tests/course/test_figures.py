"""What the figures draw, as data: comparing outputs does not look at pictures."""

from __future__ import annotations

import math
from typing import Any

import pytest
from matplotlib.colors import same_color

from ppo_lab import course
from ppo_lab.course import catalogue
from ppo_lab.course.catalogue import NOTEBOOKS, PATHS
from ppo_lab.course.figures import PANELS
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


# --- panels ----------------------------------------------------------------------------------------------------------

each_panel = pytest.mark.parametrize("name", PANELS)


@each_panel
def test_missions_are_worth_it(name: str) -> None:
    assert course.panel(name).mission_faults() == []


@each_panel
def test_every_control_moves_the_picture(name: str) -> None:
    """A control that changes nothing at either of its ends is dead."""
    panel = course.panel(name)
    for control in panel.controls:
        seen = {panel.set(**{control.name: value}).png for value in (control.values()[0], control.values()[-1])}
        assert len(seen) == 2, control.name
        panel.reset()


@each_panel
def test_texts_fit(name: str) -> None:
    """Alternative text is a sentence with numbers; labels are short enough for their place."""
    panel = course.panel(name)
    assert panel.alt.endswith(".") and any(mark.isdigit() for mark in panel.alt)
    assert max(len(control.label) for control in panel.controls) <= 22 and 1 <= len(panel.missions) <= 4


def test_unknown_panel() -> None:
    with pytest.raises(ValueError, match="did you mean beta"):
        course.panel("betta")


def test_beta_draws_the_exact_optimum() -> None:
    """Against the identity J* = β log Z, and against the same sums done the long way."""
    from ppo_lab.course.figures.beta import HACKS, beta_panel, world

    panel = beta_panel().set(beta=0.1, bonus=2.0, target=1.5)
    ref_logp, gold, hack = (x.tolist() for x in world())
    score = [g + 2.0 * h for g, h in zip(gold, hack, strict=True)]
    weight = [math.exp(q + r / 0.1) for q, r in zip(ref_logp, score, strict=True)]
    total = sum(weight)
    share = sum(w for w, h in zip(weight, hack, strict=True) if h) / total
    assert len(gold) == 256 and sum(hack) == HACKS and sum(map(math.exp, ref_logp)) == pytest.approx(1, abs=1e-9)
    assert panel.facts["hacked"] == pytest.approx(share, abs=1e-9)
    assert panel.facts["score"] - 0.1 * panel.facts["kl"] == pytest.approx(0.1 * math.log(total), abs=1e-9)
    left, right = panel.figure.axes
    drawn = {line.get_label(): line for line in left.get_lines()}
    assert [*drawn["gold (what is meant)"].get_ydata()] == panel.facts["frontier"]["gold"]
    assert [*drawn["KL target"].get_xdata()] == [1.5, 1.5]
    (dot,) = [line for line in right.get_lines() if line.get_marker() == "o"]
    assert (dot.get_xdata()[0], dot.get_ydata()[0]) == (panel.facts["kl"], panel.facts["hacked"])


def test_beta_shows_over_optimisation_and_its_absence() -> None:
    """Score rises with the KL always; gold does where nothing is over-rated, and turns round where something is."""
    from ppo_lab.course.figures.beta import frontier

    honest, fooled = frontier(0.0), frontier(2.0)
    for curve in (honest["kl"], honest["score"], honest["gold"], fooled["kl"], fooled["score"]):
        assert curve == sorted(curve)
    peak = max(range(len(fooled["gold"])), key=fooled["gold"].__getitem__)
    assert 0 < peak < len(fooled["gold"]) - 1 and fooled["gold"][-1] < -0.5
