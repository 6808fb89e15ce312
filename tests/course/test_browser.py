"""A learner in front of a panel: keyboard, mouse, screen reader, a burst of changes, a dark theme, a narrow window."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from course.browser import Lab

from ppo_lab.course.exercises import EXERCISES

pytestmark = [pytest.mark.browser, pytest.mark.slow]
SCREENS = Path(__file__).resolve().parents[2] / "runs" / "screens"  # looked at by people, never committed
MEAN = EXERCISES["masked_mean"]
CELLS = (
    'from course.probe_panel import panel\nfrom ppo_lab import course\n\ncourse.start("00_start_here")',
    'which = course.bet("Which way?", "up", "down")',
    "line = panel()\nline",
    MEAN.stub,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("lab")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    notebook["metadata"]["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(notebook, place / "probe.ipynb")
    return place


@pytest.fixture(scope="module")
def lab(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with Lab(folder, tmp_path_factory.mktemp("server"), dark=True) as running:
        yield running


@pytest.fixture(scope="module")
def page(lab: Lab) -> Any:
    page = lab.open("probe.ipynb")
    lab.run_all(page)
    page.locator(".ppo-panel img").wait_for()
    page.wait_for_timeout(2000)
    return page


def alt(page: Any) -> str:
    return str(page.locator(".ppo-panel img").get_attribute("alt"))


def wait_for_alt(page: Any, text: str) -> None:
    page.locator(f'.ppo-panel img[alt="{text}"]').wait_for(timeout=20_000)


def test_nothing_pops_up(page: Any) -> None:
    assert page.locator(".Toastify__toast").count() == 0 and page.locator(".jp-Dialog").count() == 0


def test_every_control_has_a_name(page: Any) -> None:
    box = page.locator(".ppo-panel")
    names = [("slider", "height h"), ("slider", "tilt"), ("slider", "rate"), ("combobox", "side"),
             ("checkbox", "dashed"), ("button", "Reset"), ("textbox", "height h, value")]  # fmt: skip
    for role, name in names:
        assert box.get_by_role(role, name=name, exact=True).count() == 1, (role, name)
    assert box.get_by_role("slider").count() == 3
    assert box.locator("[aria-live=polite]").count() == 1
    assert page.locator(".ppo-bet").get_by_role("radio", name="up", exact=True).count() == 1


def test_keyboard(page: Any) -> None:
    page.get_by_role("button", name="Reset").click()
    wait_for_alt(page, "a line from 0.5 to 0.50")
    page.get_by_role("slider", name="height h").focus()
    page.keyboard.press("ArrowRight")
    wait_for_alt(page, "a line from 0.6 to 0.60")


def test_mouse(page: Any) -> None:
    before = alt(page)
    box = page.get_by_role("slider", name="tilt").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 40, y, steps=5)
    page.mouse.up()
    page.wait_for_function("before => document.querySelector('.ppo-panel img').alt !== before", arg=before)


def test_burst_ends_on_the_last_value(page: Any) -> None:
    page.get_by_role("button", name="Reset").click()
    page.get_by_role("slider", name="height h").focus()
    for _ in range(15):
        page.keyboard.press("ArrowLeft")
    for _ in range(15):
        page.keyboard.press("ArrowRight")
    wait_for_alt(page, "a line from 1.0 to 1.00")
    page.wait_for_timeout(1000)
    assert alt(page) == "a line from 1.0 to 1.00"
    assert float(page.get_by_role("slider", name="height h").get_attribute("aria-valuetext")) == 1


def test_missions_tick(page: Any) -> None:
    page.get_by_role("combobox", name="side").select_option("right")
    page.get_by_role("checkbox", name="dashed").check()
    page.get_by_role("slider", name="height h").focus()
    page.keyboard.press("End")
    page.get_by_role("slider", name="tilt").focus()
    page.keyboard.press("End")
    page.locator(".ppo-facts", has_text="✓ done 1").wait_for(timeout=20_000)


def test_solve_wrongly_then_rightly(page: Any, lab: Lab) -> None:
    """Type into the exercise cell, run it, read the card."""
    cell = page.locator(".jp-CodeCell").nth(3)

    def answer(line: str) -> None:
        cell.locator(".cm-content").click()
        page.keyboard.press("Control+A")
        page.keyboard.insert_text(MEAN.stub.replace("raise NotImplementedError  # your 1 line", line))
        page.keyboard.press("Control+Enter")

    assert "TODO" in cell.locator(".jp-OutputArea").inner_text()
    answer("return x.mean()")
    cell.locator(".jp-OutputArea", has_text="You average over all tokens").wait_for(timeout=20_000)
    assert cell.locator("details[open]").count() == 0
    answer("return x[mask].mean()")
    cell.locator(".jp-OutputArea", has_text="PASS").wait_for(timeout=20_000)


def test_dark_wide_and_narrow(page: Any, lab: Lab) -> None:
    """The picture stays white on a dark page, wraps below the controls in a narrow window, and nothing sticks out."""
    SCREENS.mkdir(parents=True, exist_ok=True)
    image, facts = page.locator(".ppo-panel img"), page.locator(".ppo-facts")
    assert image.evaluate("e => getComputedStyle(e).backgroundColor") == "rgb(255, 255, 255)"
    ink = facts.evaluate("e => getComputedStyle(e).color")
    assert min(int(part) for part in ink[ink.index("(") + 1 : -1].split(",")[:3]) > 150, ink
    beside = image.bounding_box()
    assert beside["x"] > facts.bounding_box()["x"] + 100
    page.screenshot(path=SCREENS / "panel_dark_wide.png")
    page.set_viewport_size({"width": 700, "height": 1600})
    page.wait_for_timeout(1500)
    below = image.bounding_box()
    assert below["y"] > facts.bounding_box()["y"] and below["x"] + below["width"] <= 700
    page.screenshot(path=SCREENS / "panel_dark_narrow.png")


def test_the_console_is_quiet(page: Any) -> None:
    assert page.errors == []
    assert page.locator("[data-mime-type='application/vnd.jupyter.stderr']").count() == 0
