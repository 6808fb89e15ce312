"""Panels: settings, pictures, facts, missions, bursts, and what is left on a page without a kernel."""

from __future__ import annotations

import asyncio
import base64
import gc
from typing import Any

import matplotlib.image
import pytest
from course.probe_panel import CONTROLS, facts, panel
from matplotlib.figure import Figure

from ppo_lab.course import Choice, Slider, Switch
from ppo_lab.course.panels.missions import grid, mission_report, thinned
from ppo_lab.course.panels.panel import QUIET_SECONDS
from ppo_lab.course.session import SESSION


def test_starts_with_picture_facts_and_text() -> None:
    p = panel()
    assert p.settings == {"height": 0.5, "tilt": 0.0, "rate": 0.01, "side": "left", "dashed": False}
    assert p.facts == {"end": 0.5} and p.renders == 1 and p.done == set()
    assert repr(p) == (
        "Panel Line: height h 0.5, tilt 0.0, rate 0.01, side left, dashed off\nend 0.50 m, rate 0.01\n"
        "(run this cell to move the controls)"
    )
    assert p._picture.value.startswith('<img alt="a line from 0.5 to 0.50" ')


def test_set_moves_several_and_draws_once() -> None:
    p = panel()
    before = p.png
    assert p.set(height=0.9, side="right", tilt=0.3, dashed=True, rate=0.1) is p
    assert p.renders == 2 and p.facts["end"] == pytest.approx(1.2) and p.png != before
    assert "1.20 m" in p._text.value and 'alt="a line from 0.9 to 1.20"' in p._picture.value


def test_reset_goes_back_to_the_same_picture() -> None:
    p = panel()
    first = p.png
    p.set(height=0.9).reset()
    assert p.settings["height"] == 0.5 and p.png == first


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"heigth": 1}, "no control heigth; it has height, tilt, rate, side, dashed"),
        ({"height": 0.55}, "height must be one of 0.0 to 1.0 in steps of 0.1, got 0.55"),
        ({"height": 2}, "got 2"),
        ({"height": True}, "got True"),
        ({"side": "up"}, "side must be one of left, right, got 'up'"),
        ({"rate": 0.02}, "rate must be one of 0.001, 0.01, 0.1"),
    ],
)
def test_bad_settings_change_nothing(change: dict[str, Any], words: str) -> None:
    p = panel()
    with pytest.raises(ValueError, match=words.replace("(", r"\(")):
        p.set(tilt=0.5, **change)
    assert p.settings["tilt"] == 0.0 and p.renders == 1


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"controls": (*CONTROLS, Switch("tilt", "again"))}, "controls must have different names, got 'tilt' twice"),
        ({"controls": (*CONTROLS[:-1], Choice("dashed", "x", "c", ("a", "b")))}, "dashed must be one of a, b, got 'c'"),
        ({"alt": "{ende}"}, "the alternative text names 'ende', which is not among the facts"),
        ({"table": {"end": "{end:.2x}"}}, "the table '{end:.2x}' cannot be filled in"),
    ],
)
def test_bad_declarations_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError) as error:
        panel(**changes)
    assert words in str(error.value)


def test_text_is_escaped() -> None:
    p = panel(alt='<"{height}"> & more', missions=[("a < b", lambda f, s: False)])
    assert 'alt="&lt;&quot;0.5&quot;&gt; &amp; more"' in p._picture.value and "a &lt; b" in p._text.value


def test_one_figure_and_its_artists() -> None:
    def figures() -> int:
        gc.collect()
        return sum(type(thing) is Figure for thing in gc.get_objects())

    p = panel()
    before, artists = figures(), len(p.figure.axes[0].get_children())
    for value in (0.1, 0.2, 0.3, 0.4):
        p.set(height=value)
    assert figures() == before and len(p.figure.axes[0].get_children()) == artists


def test_pyplot_is_never_used() -> None:
    import sys

    panel()
    if (pyplot := sys.modules.get("matplotlib.pyplot")) is not None:
        assert pyplot.get_fignums() == []


def test_face_is_opaque_white() -> None:
    import io

    pixels = matplotlib.image.imread(io.BytesIO(panel().png))
    assert pixels.shape == (200, 300, 4) and (pixels[..., 3] == 1).all() and (pixels[0, 0] == 1).all()


def test_picture_bytes_do_not_depend_on_the_moment() -> None:
    assert panel("a").png == panel("b").png and b"Software" not in panel("c").png and b"tIME" not in panel("d").png


def test_running_the_cell_again_replaces_the_panel() -> None:
    first = panel()
    second = panel()
    assert first.box.comm is None and second.box.comm is not None


# --- the page --------------------------------------------------------------------------------------------------------


def test_bundle_has_view_picture_and_text() -> None:
    p = panel()
    bundle = p._repr_mimebundle_()
    assert {*bundle} == {"text/plain", "image/png", "application/vnd.jupyter.widget-view+json"}
    assert base64.b64decode(bundle["image/png"]) == p.png and bundle["text/plain"] == repr(p)
    assert bundle["application/vnd.jupyter.widget-view+json"]["model_id"] == p.box.model_id


def test_controls_have_names_and_wait_for_the_end_of_a_move() -> None:
    widgets = panel()._widgets
    assert [w.description for w in widgets.values()] == [c.label for c in CONTROLS]
    assert [getattr(w, "continuous_update", False) for w in widgets.values()] == [False] * 5


def test_layout_wraps_and_facts_are_announced() -> None:
    p = panel()
    assert p.box.layout.flex_flow == "row wrap" and "ppo-panel" in p.box._dom_classes
    assert 'aria-live="polite"' in p._text.value and "--jp-ui-font-color1" in p._text.value
    assert "36em" in p.box.children[1].layout.min_width and "background:white" in p._picture.value


# --- missions --------------------------------------------------------------------------------------------------------


def test_missions_tick_and_stay() -> None:
    p = panel()
    assert p._text.value.count("</span> mission") == 2
    p.set(height=1.0, tilt=0.5, side="right", dashed=True)
    assert p.done == {0} and "✓</span> done 1" in p._text.value
    p.reset()
    assert p.done == {0} and "✓</span> done 1" in p._text.value and "○</span> mission 2" in p._text.value
    assert SESSION.done["mission"] == {"Line: lift the end above 1.4": "met"}


def test_good_missions_have_no_faults() -> None:
    p = panel()
    renders = p.renders
    reports = p.mission_report()
    assert p.mission_faults() == [] and p.renders == renders
    assert all(r.reachable and not r.at_start and r.one_move == () for r in reports)
    assert 0.005 < reports[0].share < 0.15


@pytest.mark.parametrize(
    ("met", "words"),
    [
        (lambda f, s: s["height"] == 0.5 and s["tilt"] < 0.05, "is met at the start"),
        (lambda f, s: f["end"] > 5, "cannot be met"),
        (lambda f, s: f["end"] > -1.5 and s["dashed"], "of the settings, not in 0.5% to 15%"),
        (lambda f, s: s["height"] == 1 and s["tilt"] == 0, "is met by height alone at its end"),
        (lambda f, s: s["height"] == 0.9 and s["tilt"] == 0.2 and s["rate"] == 0.1 and s["side"] == "left"
         and s["dashed"], "0.04% of the settings"),
    ],
)  # fmt: skip
def test_planted_bad_missions(met: Any, words: str) -> None:
    faults = panel(missions=[("planted", met)]).mission_faults()
    assert any(words in fault and "'planted'" in fault for fault in faults), faults


def test_share_is_counted() -> None:
    (report,) = mission_report(CONTROLS[:2], lambda height, tilt: {}, [("x", lambda f, s: s["tilt"] > 0.85)])
    assert report.share == pytest.approx(2 / 21) and report.one_move == ("tilt",)


def test_large_grids_are_thinned_with_both_ends() -> None:
    many = [Slider(name, name, 0.0, 0.0, 1.0, 0.01) for name in "abc"]
    settings = [*grid(many, most=1000)]
    assert 500 < len(settings) <= 1000
    assert {s["a"] for s in settings} >= {0.0, 1.0} and len({*map(str, settings)}) == len(settings)
    assert thinned([1, 2, 3], 5) == [1, 2, 3]


# --- bursts ----------------------------------------------------------------------------------------------------------


def test_a_burst_draws_twice_and_shows_the_last_value() -> None:
    p = panel()

    async def burst() -> None:
        for i in range(30):
            p._widgets["height"].value = (i % 10) / 10
            await asyncio.sleep(0.004)
        p._widgets["height"].value = 0.7
        await asyncio.sleep(3 * QUIET_SECONDS)

    asyncio.run(burst())
    assert p.renders == 3 and p.facts["end"] == pytest.approx(0.7) and 'to 0.70"' in p._picture.value


def test_a_single_change_is_drawn_at_once() -> None:
    p = panel()

    async def change() -> int:
        p._widgets["height"].value = 0.7
        return p.renders

    assert asyncio.run(change()) == 2


def test_a_page_never_shows_an_old_picture() -> None:
    """Displaying in the middle of a burst draws what is still waiting."""
    p = panel()

    async def burst() -> str:
        for value in (0.1, 0.2, 0.3):
            p._widgets["height"].value = value
        return str(p._repr_mimebundle_()["text/plain"])

    assert "height h 0.3" in asyncio.run(burst()) and p.renders == 3


def test_without_a_loop_changes_are_drawn() -> None:
    p = panel()
    p._widgets["height"].value = 0.7
    assert p.renders == 2 and p.facts["end"] == 0.7


def test_a_setting_that_fails_says_so() -> None:
    def fragile(**settings: Any) -> dict[str, float]:
        if settings["height"] > 0.8:
            raise ZeroDivisionError("nothing <left>")
        return facts(**settings)

    p = panel(facts=fragile)
    p._widgets["height"].value = 0.9
    assert "ZeroDivisionError: nothing &lt;left&gt;" in p._text.value and 'role="alert"' in p._text.value
    p._widgets["height"].value = 0.2
    assert "0.20 m" in p._text.value and "alert" not in p._text.value
    with pytest.raises(ZeroDivisionError):
        p.set(height=0.9)


@pytest.mark.parametrize(("low", "said", "meant"), [(1, 3.9999999999999996, 4), (0.0, 0.30000000000000004, 0.3)])
def test_a_sliders_rounding_is_no_other_value(low: float, said: float, meant: float) -> None:
    from ppo_lab.course.panels.controls import check_value

    slider = Slider("x", "x", low, low, 10 * max(low, 1), 1 if low else 0.1)
    assert check_value(slider, said) == meant
    with pytest.raises(ValueError, match="x must be one of"):
        check_value(slider, said + 0.01)
