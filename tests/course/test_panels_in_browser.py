"""Every panel of every notebook, in a real JupyterLab: only the cell that sets up and the cells with panels are run.

Each must draw, be named for a screen reader, follow keyboard and mouse, end a burst of changes on the last one, keep
the console quiet, and fit in a dark page and a narrow one. Pictures go to ``runs/screens`` to be looked at.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from course.browser import Lab
from notebook_lint import calls, tree

from ppo_lab import course
from ppo_lab.course import Choice, Panel, Slider, Steps, Switch

pytestmark = [pytest.mark.browser, pytest.mark.slow]
ROOT = Path(__file__).resolve().parents[2]
SCREENS = ROOT / "runs" / "screens"
WIDE, NARROW = {"width": 1400, "height": 1500}, {"width": 640, "height": 1500}
BURST = 30


def panels_of(notebook: Any) -> list[str]:
    """Names that a notebook gives to ``course.panel``, in order."""
    nodes = [node for cell in notebook["cells"] if cell["cell_type"] == "code" for node in ast.walk(tree(cell))]
    return [node.args[0].value for node in nodes if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute) and ast.unparse(node.func) == "course.panel"]  # fmt: skip


def shortened(notebook: Any) -> Any:
    """The cell that starts the session, and those that show a panel; nothing stored."""
    short = copy.deepcopy(notebook)
    code = [cell for cell in short["cells"] if cell["cell_type"] == "code"]
    short["cells"] = [cell for cell in code if {"start", "panel"} & {*calls(tree(cell))}]
    for cell in short["cells"]:
        cell["outputs"], cell["execution_count"] = [], None
    return short


BOOKS = {path.stem: nbformat.read(path, as_version=4) for path in sorted((ROOT / "notebooks").glob("*.ipynb"))}
BOOKS = {name: book for name, book in BOOKS.items() if panels_of(book)}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("books")
    for name, book in BOOKS.items():
        nbformat.write(shortened(book), folder / f"{name}.ipynb")
    SCREENS.mkdir(parents=True, exist_ok=True)
    with Lab(folder, tmp_path_factory.mktemp("server"), dark=True) as running:
        yield running


@pytest.fixture(scope="module", params=BOOKS)
def shown(request: pytest.FixtureRequest, lab: Lab) -> Iterator[tuple[Any, list[tuple[Any, Panel]]]]:
    """The page of one notebook, and each box on it with a panel of our own that knows what it must show."""
    page = lab.open(f"{request.param}.ipynb", width=WIDE["width"], height=WIDE["height"])
    page.name = request.param
    lab.run_all(page)
    own = [course.panel(name) for name in panels_of(BOOKS[request.param])]
    page.locator(".ppo-panel img").nth(len(own) - 1).wait_for(timeout=60_000)
    page.wait_for_timeout(2000)
    yield page, [(page.locator(".ppo-panel").nth(i), panel) for i, panel in enumerate(own)]
    page.close()


def handle(box: Any, control: Any) -> Any:
    """The control as assistive technology finds it: by role and name."""
    role = {Slider: "slider", Steps: "slider", Choice: "combobox", Switch: "checkbox"}[type(control)]
    return box.get_by_role(role, name=control.label, exact=True)


def reset(box: Any, panel: Panel) -> None:
    box.get_by_role("button", name="Reset").click()
    wait_for(box, panel.reset().alt)


def wait_for(box: Any, alt: str) -> None:
    """Until the picture says so."""
    for _ in range(200):
        if (shown := box.locator("img").get_attribute("alt")) == alt:
            return
        box.page.wait_for_timeout(150)
    raise AssertionError(f"the picture says {shown!r}, not {alt!r}")


def press(box: Any, control: Any, key: str) -> None:
    """One key on a slider; pressed again only where the page was too busy to notice, and the handle has not moved."""
    knob = handle(box, control)
    before = knob.get_attribute("aria-valuetext")
    for _ in range(3):
        knob.focus()
        box.page.keyboard.press(key)
        for _ in range(20):
            if knob.get_attribute("aria-valuetext") != before:
                return
            box.page.wait_for_timeout(150)
    raise AssertionError(f"{control.label} does not follow {key}")


def settled(box: Any, script: str) -> Any:
    """What ``script`` says of the picture once it is no longer being exchanged."""
    there = f"e => e.isConnected && e.complete && e.naturalWidth > 0 ? ({script}) : null"
    for _ in range(40):
        found = box.locator("img").evaluate(there)
        if found:
            return found
        box.page.wait_for_timeout(150)
    raise AssertionError("the picture is never there")


PLACE = "(r => ({x: r.x, y: r.y, width: r.width}))(e.getBoundingClientRect())"


def sliders(panel: Panel) -> list[Any]:
    return [control for control in panel.controls if isinstance(control, Slider | Steps)]


def test_drawn_and_named(shown: Any) -> None:
    _, boxes = shown
    for box, panel in boxes:
        assert box.locator("img").get_attribute("alt") == panel.alt
        assert box.locator("img").evaluate("e => e.complete && e.naturalWidth") > 300
        assert box.locator("[aria-live=polite]").count() == 1
        for control in panel.controls:
            assert handle(box, control).count() == 1, control.label


def test_keyboard_moves_every_slider(shown: Any) -> None:
    """One key, one step: the picture then says what our own panel says of that setting."""
    for box, panel in shown[1]:
        for control in sliders(panel):
            reset(box, panel)
            values = control.values()
            at = next(i for i, value in enumerate(values) if value == panel.settings[control.name])
            key, after = ("ArrowRight", at + 1) if at + 1 < len(values) else ("ArrowLeft", at - 1)
            press(box, control, key)
            wait_for(box, panel.set(**{control.name: values[after]}).alt)


def test_a_burst_ends_on_the_last_value(shown: Any) -> None:
    for box, panel in shown[1]:
        control = max(sliders(panel), key=lambda one: len(one.values()))
        reset(box, panel)
        handle(box, control).focus()
        box.page.keyboard.press("Home")
        for _ in range(BURST):
            box.page.keyboard.press("ArrowRight")
        values = control.values()
        wait_for(box, panel.set(**{control.name: values[min(BURST, len(values) - 1)]}).alt)
        box.page.wait_for_timeout(700)
        assert box.locator("img").get_attribute("alt") == panel.alt  # and stays there


def test_mouse_drags(shown: Any) -> None:
    for box, panel in shown[1]:
        control = sliders(panel)[0]
        reset(box, panel)
        before = handle(box, control).get_attribute("aria-valuetext")
        place = handle(box, control).bounding_box()
        x, y = place["x"] + place["width"] / 2, place["y"] + place["height"] / 2
        box.page.mouse.move(x, y)
        box.page.mouse.down()
        box.page.mouse.move(x + (60 if control.start != control.values()[-1] else -60), y, steps=6)
        box.page.mouse.up()
        box.page.wait_for_function("([e, was]) => e.getAttribute('aria-valuetext') !== was",
                                   arg=[handle(box, control).element_handle(), before], timeout=20_000)  # fmt: skip


def test_dark_light_wide_and_narrow(shown: Any) -> None:
    """White picture beside the controls on a dark page, below them on a narrow one, nothing sticking out."""
    page, boxes = shown
    for box, panel in boxes:
        reset(box, panel)
        facts = box.locator(".ppo-facts")
        assert settled(box, "getComputedStyle(e).backgroundColor") == "rgb(255, 255, 255)"
        ink = facts.evaluate("e => getComputedStyle(e).color")
        assert min(int(part) for part in ink[ink.index("(") + 1 : -1].split(",")[:3]) > 150, ink
        assert settled(box, PLACE)["x"] > facts.bounding_box()["x"] + 100
    page.wait_for_timeout(800)  # a picture just exchanged is blank until it is decoded
    page.screenshot(path=SCREENS / f"{page.name}_panels_dark.png")
    page.set_viewport_size(NARROW)
    page.wait_for_timeout(1200)
    for box, _ in boxes:
        below = settled(box, PLACE)
        assert below["y"] > box.locator(".ppo-facts").bounding_box()["y"]
        assert below["x"] + below["width"] <= NARROW["width"]
    page.screenshot(path=SCREENS / f"{page.name}_panels_narrow.png")
    page.set_viewport_size(WIDE)


def test_the_console_is_quiet(shown: Any) -> None:
    page, _ = shown
    assert page.errors == []
    assert page.locator("[data-mime-type='application/vnd.jupyter.stderr']").count() == 0


def test_every_registered_panel_is_in_a_notebook() -> None:
    """No panel is left out of this file: what a written notebook does not show is no panel of the course."""
    used = {name for book in BOOKS.values() for name in panels_of(book)}
    assert {*course.figures.PANELS} == used
