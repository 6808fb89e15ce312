"""The committed notebooks keep the rules; and each rule is shown to fail on a good notebook with a planted fault."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from notebook_lint import links, row_table
from notebook_outputs import CHANGING, MOST_BYTES, faults, speaks
from notebook_planted import AUTHORED, STORED, Change, stored
from notebook_sample import BOOK, cell, sample

from ppo_lab.course.build import execute, normalise, text_of
from ppo_lab.course.catalogue import NOTEBOOKS, rows_of
from ppo_lab.course.exercises import of_notebook
from ppo_lab.course.instructor import solved, verdicts

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "notebooks"
WRITTEN = sorted(FOLDER.glob("*.ipynb"))
NBVAL = ("--nbval", "--nbval-current-env", "--nbval-cell-timeout", "120", "--nbval-sanitize-with",
         str(ROOT / "tests" / "nbval_sanitize.cfg"), "-p", "no:cacheprovider", "-q")  # fmt: skip


# --- the repository's notebooks --------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.stem)
def test_notebook_keeps_the_rules(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    notebook: Any = nbformat.reads(text, as_version=4)
    nbformat.validate(notebook)
    assert faults(notebook, NOTEBOOKS[path.stem], len(text.encode())) == []
    assert [*links(notebook, NOTEBOOKS[path.stem], FOLDER)] == []
    assert text == text_of(normalise(nbformat.reads(text, as_version=4))), "run make notebooks"


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.stem)
def test_notebook_has_one_transfer_exercise(path: Path) -> None:
    book = NOTEBOOKS[path.stem]
    transfer = [entry.name for entry in of_notebook(book.name) if entry.reference is None]
    assert len(transfer) == (bool(of_notebook(book.name)) and book.kind != "start")


def test_catalogue_and_folder_agree() -> None:
    assert {path.stem for path in WRITTEN} == {name for name, book in NOTEBOOKS.items() if book.written}


def test_every_row_has_a_notebook() -> None:
    table = row_table()
    every = rows_of("A1-A15", "B1-B14", "C1-C16", "D1-D20", "E1-E13", "F", "G", "H1-H6", "I")
    assert {line["id"] for line in table} == {*every}
    assert [(line["id"], line["notebook"]) for line in table] == sorted(
        ((id, book.name) for book in NOTEBOOKS.values() for id in book.rows),
        key=lambda pair: (pair[0][0], int(pair[0][1:] or 0), pair[1]),
    )
    for line in table:
        assert line["status"] == ("shown" if NOTEBOOKS[line["notebook"]].written else "planned"), line


# --- a good notebook, executed once ----------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def kernel_path() -> Iterator[None]:
    """The sample's kernel finds the tests' small panel, and the package where it is not installed."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "tests"), str(ROOT), *filter(None, [before])])
    yield
    if before is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = before


@pytest.fixture(scope="session")
def good(tmp_path_factory: pytest.TempPathFactory, kernel_path: None) -> Any:
    folder = tmp_path_factory.mktemp("notebooks")
    return normalise(execute(sample(), folder), folder)


def found(notebook: Any, change: Change, stored_bytes: int = 0) -> list[str]:
    """Faults of the good notebook after a change."""
    changed = copy.deepcopy(notebook)
    change(changed)
    return faults(changed, BOOK, stored_bytes)


def test_the_good_notebook_is_good(good: Any) -> None:
    assert found(good, lambda n: None, len(text_of(good))) == []


@pytest.mark.parametrize("name", AUTHORED)
def test_planted_fault_of_writing(good: Any, name: str) -> None:
    change, words = AUTHORED[name]
    messages = found(good, change)
    assert messages == [] if not words else any(words in message for message in messages), messages


@pytest.mark.parametrize("name", STORED)
def test_planted_fault_of_storing(good: Any, name: str) -> None:
    change, words = STORED[name]
    messages = found(good, change)
    assert any(words in message for message in messages), messages
    assert len(messages) <= 2, messages


def test_large_files_are_refused(good: Any) -> None:
    assert found(good, lambda n: None, MOST_BYTES) == ["the file has 1000000 bytes, at most 1000000"]


def test_a_time_may_be_marked_as_this_machines(good: Any) -> None:
    assert found(good, stored("bug", "took [this machine: 12.3 s]\n")) == []


def test_every_pattern_of_changing_text_is_planted() -> None:
    planted = Counter(words for _, words in STORED.values())
    assert all(any(name.split(" (")[0] in words for words in planted) for name in CHANGING)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("x", True), ("x + 1", True), ("f(x)", True), ("print(1)", True), ("y = course.check(y)", True), ("x[0]", True),
        ("x = 1", False), ("loss.backward()", False), ("x.zero_()", False), ("None", False), ("def f(): ...", False),
        ("", False), ("for i in x:\n    y = i", False), ("import a", False),
    ],
)  # fmt: skip
def test_which_cells_must_show_something(text: str, answer: bool) -> None:
    import ast

    assert speaks(ast.parse(text)) is answer


# --- comparison of outputs, for real ---------------------------------------------------------------------------------


def nbval(notebook: Any, path: Path) -> subprocess.CompletedProcess[str]:
    nbformat.write(notebook, path)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", *NBVAL, str(path)]
    return subprocess.run(command, cwd=path.parent, env=environment, capture_output=True, text=True)


@pytest.fixture
def short(good: Any) -> Any:
    """The first cells of the good notebook: setup, bet, panel, caption, by hand and an exercise."""
    some = copy.deepcopy(good)
    some["cells"] = [cell(some, id) for id in ("setup", "bet", "panel", "see", "by-hand", "your-turn")]
    return some


def test_comparison_accepts_the_good_notebook(good: Any, tmp_path: Path) -> None:
    done = nbval(good, tmp_path / "good.ipynb")
    assert done.returncode == 0 and "13 passed" in done.stdout, done.stdout[-2000:]


def falsify(id: str, old: str, new: str) -> Change:
    def change(notebook: Any) -> None:
        data = cell(notebook, id)["outputs"][0]["data"]
        hit = [kind for kind, text in data.items() if kind.startswith("text/") and old in text]
        assert hit
        for kind in hit:
            data[kind] = data[kind].replace(old, new)

    return change


def test_comparison_finds_falsified_outputs(short: Any, tmp_path: Path) -> None:
    """A wrong number, a falsified caption, a fact of a panel and a verdict: each cell fails, the others do not."""
    for change in (
        falsify("by-hand", "-0.8", "-0.9"),
        falsify("see", "0.50", "0.60"),
        falsify("panel", "end 0.50 m", "end 0.51 m"),
        falsify("your-turn", "TODO", "PASS"),
    ):
        change(short)
    done = nbval(short, tmp_path / "false.ipynb")
    assert done.returncode == 1 and "4 failed, 2 passed" in done.stdout, done.stdout[-2000:]


def test_marked_numbers_are_not_compared(good: Any, tmp_path: Path) -> None:
    timed = copy.deepcopy(good)
    timed["cells"] = [cell(timed, "by-hand")]
    text = "'took [this machine: 12.3 s], found 4'"
    timed["cells"][0]["source"] = text.replace("12.3", "0.7")
    timed["cells"][0]["outputs"][0]["data"] = {"text/plain": text}
    assert nbval(timed, tmp_path / "timed.ipynb").returncode == 0
    timed["cells"][0]["outputs"][0]["data"] = {"text/plain": text.replace("found 4", "found 5")}
    assert nbval(timed, tmp_path / "timed.ipynb").returncode == 1


# --- instructor mode -------------------------------------------------------------------------------------------------


def test_solutions_pass_in_the_good_notebook(tmp_path: Path, kernel_path: None) -> None:
    """Stubs answered, the whole notebook run: every check passes, and all that follows works with the answers."""
    notebook = execute(solved(sample()), tmp_path)
    assert [*verdicts(notebook)] == [(entry.name, "PASS") for entry in of_notebook(BOOK.name)]


def test_unsolved_notebooks_say_todo(good: Any) -> None:
    assert [*verdicts(good)] == [(entry.name, "TODO") for entry in of_notebook(BOOK.name)]


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.stem)
def test_solutions_pass(path: Path) -> None:
    short = solved(nbformat.read(path, as_version=4), only_exercises=True)
    found = [*verdicts(execute(short, path.parent))]
    assert {name for name, _ in found} == {entry.name for entry in of_notebook(path.stem)}
    assert {verdict for _, verdict in found} <= {"PASS"}
