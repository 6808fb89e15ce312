"""A learner at work: a clone, the working copy, notebook 00 in a real JupyterLab, wrong and then right, saved.

Afterwards the repository is as it was: nothing to commit, the pristine notebook byte for byte the same, a pull goes
through, and the learner's file knows the answer.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from course.browser import Lab

from ppo_lab.course.exercises import EXERCISES
from ppo_lab.course.lab import copy_course

pytestmark = [pytest.mark.browser, pytest.mark.slow]
ROOT = Path(__file__).resolve().parents[2]
BOOK, STUB = "00_start_here.ipynb", EXERCISES["masked_mean"].stub
SETTINGS = ("user.name=a", "user.email=a@b.c", "commit.gpgsign=false", "protocol.file.allow=always")


def git(folder: Path, *words: str) -> str:
    command = ["git", *(word for setting in SETTINGS for word in ("-c", setting)), *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout with an upstream of its own, holding the notebook and what git is to leave alone."""
    upstream, here = tmp_path_factory.mktemp("upstream"), tmp_path_factory.mktemp("here") / "ppo_lab"
    (upstream / "notebooks").mkdir()
    for name in (".gitignore", f"notebooks/{BOOK}"):
        (upstream / name).write_bytes((ROOT / name).read_bytes())
    git(upstream, "init", "-q", "-b", "main")
    git(upstream, "add", "-A")
    git(upstream, "commit", "-qm", "one")
    git(upstream.parent, "clone", "-q", str(upstream), str(here))
    copy_course(here / "notebooks", here / "my_course")
    return here


@pytest.fixture(scope="module")
def page(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with Lab(clone / "my_course", tmp_path_factory.mktemp("server")) as lab:
        page = lab.open(BOOK)
        yield page


def cell_with(page: Any, text: str) -> Any:
    return page.locator(".jp-CodeCell", has=page.locator(".cm-content", has_text=text)).first


def run(page: Any, cell: Any) -> None:
    cell.locator(".cm-content").click()
    page.keyboard.press("Control+Enter")


def answer(page: Any, line: str) -> None:
    """Replace the cell by the stub with ``line`` in it, and run it."""
    cell_with(page, "def masked_mean").locator(".cm-content").click()
    page.keyboard.press("Control+A")
    page.keyboard.insert_text(STUB.replace("raise NotImplementedError  # your 1 line", line))
    page.keyboard.press("Control+Enter")


def card(page: Any, text: str) -> None:
    cell_with(page, "def masked_mean").locator(".jp-OutputArea", has_text=text).wait_for(timeout=30_000)


def test_wrong_then_right_then_saved(page: Any, clone: Path) -> None:
    before = (clone / "notebooks" / BOOK).read_bytes()
    run(page, cell_with(page, "course.start("))
    cell_with(page, "course.start(").locator(".jp-OutputArea", has_text="ready").wait_for(timeout=60_000)
    answer(page, "return (x * mask).sum() / mask.sum()")
    card(page, "FAIL")
    answer(page, "return x[mask].mean()")
    card(page, "PASS")
    page.keyboard.press("Control+S")
    mine = clone / "my_course" / BOOK
    page.wait_for_function("document.querySelector('.jp-mod-current .jp-DirtyIndicator, .jp-mod-dirty') === null",
                           timeout=30_000)  # fmt: skip
    page.wait_for_timeout(1500)
    assert "return x[mask].mean()" in mine.read_text(encoding="utf-8")
    assert (clone / "notebooks" / BOOK).read_bytes() == before
    assert git(clone, "status", "--porcelain") == ""


def test_pull_is_clean_and_progress_is_kept(page: Any, clone: Path) -> None:
    upstream = Path(git(clone, "remote", "get-url", "origin").strip())
    newer = nbformat.read(upstream / "notebooks" / BOOK, as_version=4)
    newer["cells"][0]["source"] += "\n\nA new sentence."
    nbformat.write(newer, upstream / "notebooks" / BOOK)
    git(upstream, "commit", "-qam", "two")
    git(clone, "pull", "-q", "--ff-only")
    assert git(clone, "status", "--porcelain") == ""
    assert copy_course(clone / "notebooks", clone / "my_course").waiting == [BOOK]
    assert '"masked_mean": "PASS"' in (clone / "my_course" / "progress.json").read_text(encoding="utf-8")
    assert page.errors == []
