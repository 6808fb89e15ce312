"""`ppo-lab lab` and `ppo-lab grade`, driven as a user does; JupyterLab itself is a stand-in."""

from __future__ import annotations

import csv
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
from typer.testing import CliRunner

from ppo_lab.cli import app
from ppo_lab.course import lab
from ppo_lab.course.exercises import exercise


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Run the command line in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return lambda *words: CliRunner().invoke(app, list(words))


@pytest.fixture
def classroom(call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A folder with one pristine notebook, and a stand-in for JupyterLab that notes what it was started with."""
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks" / "00_start_here.ipynb").write_text("first", encoding="utf-8")
    monkeypatch.setattr(lab, "PACKAGE", tmp_path / "site" / "ppo_lab")
    started: list[tuple[Path, tuple[str, ...]]] = []

    def launch(folder: Path, options: tuple[str, ...] = ()) -> int:
        started.append((folder, tuple(options)))
        return 7

    monkeypatch.setattr(lab, "launch_jupyterlab", launch)
    return SimpleNamespace(call=call, started=started, copy=tmp_path / "my_course" / "00_start_here.ipynb")


def test_lab_opens_a_copy_and_ends_as_jupyterlab_ends(classroom) -> None:
    done = classroom.call("lab", "--", "--no-browser", "--port=9999")
    assert done.exit_code == 7 and "1 files new; yours are never overwritten" in done.stdout
    assert classroom.started == [(classroom.copy.parent, ("--no-browser", "--port=9999"))]
    assert classroom.copy.read_text() == "first"


def test_lab_only_copies_when_asked_and_updates_beside(classroom, tmp_path: Path) -> None:
    assert classroom.call("lab", "--no-open").exit_code == 0
    classroom.copy.write_text("solved", encoding="utf-8")
    (tmp_path / "notebooks" / "00_start_here.ipynb").write_text("second", encoding="utf-8")
    assert "ppo-lab lab --update" in classroom.call("lab", "--no-open").stdout
    updated = classroom.call("lab", "--update", "--no-open")
    assert updated.exit_code == 0 and "00_start_here.new-1.ipynb" in updated.stdout
    assert classroom.copy.read_text() == "solved" and classroom.started == []


def test_lab_without_notebooks_or_jupyterlab(classroom, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ppo_lab.cli.find_spec", lambda name: None)
    done = classroom.call("lab")
    assert done.exit_code == 2 and "jupyterlab must be installed" in done.stderr and not classroom.copy.exists()
    assert classroom.call("lab", "--no-open").exit_code == 0
    (tmp_path / "notebooks" / "00_start_here.ipynb").unlink()
    (tmp_path / "notebooks").rmdir()
    done = classroom.call("lab", "--no-open")
    assert done.exit_code == 2 and "clone the repository" in done.stderr


def test_grade_prints_a_line_a_file_and_writes_a_table(call, tmp_path: Path) -> None:
    """Two real notebooks, one of them solved, through the real grader."""
    entry = exercise("masked_mean")
    for who, cell in {"ann": entry.answer, "bob": entry.stub}.items():
        (tmp_path / "handed in" / who).mkdir(parents=True)
        book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell)])
        nbformat.write(book, tmp_path / "handed in" / who / "00_start_here.ipynb")
    done = call("grade", "handed in", "--csv", "grades.csv")
    assert done.exit_code == 0, done.output
    assert "ann/00_start_here.ipynb  1 of 1" in done.stdout and "0 of 1  (masked_mean TODO)" in done.stdout
    with (tmp_path / "grades.csv").open(encoding="utf-8") as file:
        assert [(row["exercise"], row["verdict"]) for row in csv.DictReader(file)] == [
            ("masked_mean", "PASS"), ("masked_mean", "TODO")]  # fmt: skip


def test_grade_without_anything_to_grade(call, tmp_path: Path) -> None:
    done = call("grade", "nowhere")
    assert done.exit_code == 2 and "found none" in done.stderr and "Traceback" not in done.output
