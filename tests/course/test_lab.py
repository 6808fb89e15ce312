"""The working copy: nothing of a learner's is ever overwritten, and the repository stays clean."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ppo_lab.course import lab
from ppo_lab.course.lab import MARKER, copy_course, open_course

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def pristine(tmp_path: Path) -> Path:
    folder = tmp_path / "notebooks"
    (folder / "figures").mkdir(parents=True)
    (folder / ".ipynb_checkpoints").mkdir()
    for name in ("00_start_here.ipynb", "04_clipping.ipynb", "figures/flow.svg", ".ipynb_checkpoints/x.ipynb"):
        (folder / name).write_text(f"first {name}", encoding="utf-8")
    return folder


def files(folder: Path) -> set[str]:
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}


def test_copies_all_and_tells(pristine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = open_course(tmp_path / "my_course", source=pristine, launch=False)
    assert files(done.folder) == {"00_start_here.ipynb", "04_clipping.ipynb", "figures/flow.svg", MARKER}
    assert "3 files new; yours are never overwritten" in capsys.readouterr().out


def test_a_learners_file_survives_everything(pristine: Path, tmp_path: Path) -> None:
    mine = copy_course(pristine, tmp_path / "my").folder / "04_clipping.ipynb"
    mine.write_text("solved", encoding="utf-8")
    (pristine / "04_clipping.ipynb").write_text("second", encoding="utf-8")
    (pristine / "05_gae.ipynb").write_text("new", encoding="utf-8")
    again = copy_course(pristine, tmp_path / "my")
    assert again.added == ["05_gae.ipynb"] and again.waiting == ["04_clipping.ipynb"] and again.beside == []
    assert "ppo-lab lab --update" in "\n".join(again.lines())
    updated = copy_course(pristine, tmp_path / "my", update=True)
    assert updated.beside == ["04_clipping.new-1.ipynb"] and updated.waiting == []
    assert mine.read_text() == "solved" and mine.with_name("04_clipping.new-1.ipynb").read_text() == "second"


def test_an_update_comes_once(pristine: Path, tmp_path: Path) -> None:
    copy_course(pristine, tmp_path / "my")
    (pristine / "04_clipping.ipynb").write_text("second", encoding="utf-8")
    copy_course(pristine, tmp_path / "my", update=True)
    again = copy_course(pristine, tmp_path / "my", update=True)
    assert (again.added, again.beside, again.waiting) == ([], [], [])
    (pristine / "04_clipping.ipynb").write_text("third", encoding="utf-8")
    assert copy_course(pristine, tmp_path / "my", update=True).beside == ["04_clipping.new-2.ipynb"]


def test_a_deleted_file_comes_back(pristine: Path, tmp_path: Path) -> None:
    (copy_course(pristine, tmp_path / "my").folder / "04_clipping.ipynb").unlink()
    assert copy_course(pristine, tmp_path / "my").added == ["04_clipping.ipynb"]


@pytest.mark.parametrize("torn", ["", "{", "[]", '{"given": 3}'])
def test_a_torn_record_costs_no_file(pristine: Path, tmp_path: Path, torn: str) -> None:
    folder = copy_course(pristine, tmp_path / "my").folder
    (folder / "04_clipping.ipynb").write_text("solved", encoding="utf-8")
    (folder / MARKER).write_text(torn, encoding="utf-8")
    again = copy_course(pristine, folder, update=True)
    assert (folder / "04_clipping.ipynb").read_text() == "solved" and again.beside == ["04_clipping.new-1.ipynb"]
    assert {*json.loads((folder / MARKER).read_text())["given"]} == files(pristine) - {".ipynb_checkpoints/x.ipynb"}


def test_copying_into_the_pristine_folder_is_refused(pristine: Path) -> None:
    for target in (pristine, pristine / "mine"):
        with pytest.raises(ValueError, match="must lie outside of notebooks/"):
            copy_course(pristine, target)


def test_no_pristine_notebooks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab, "PACKAGE", tmp_path / "site" / "ppo_lab")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="clone the repository"):
        open_course(launch=False)


def test_opens_jupyterlab_in_the_copy(pristine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for the interpreter notes what it was asked to run."""
    script = tmp_path / "python"
    script.write_text('#!/bin/sh\necho "$JUPYTER_CONFIG_PATH" "$OMP_NUM_THREADS" "$@" > "$NOTE"\nexit 7\n')
    script.chmod(0o755)
    monkeypatch.setenv("NOTE", str(tmp_path / "note"))
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setattr(sys, "executable", str(script))
    done = open_course(tmp_path / "my", source=pristine, options=("--no-browser",))
    words = (tmp_path / "note").read_text().split()
    assert words[:4] == [str(lab.SETTINGS), "2", "-m", "jupyterlab"] and words[-1] == "--no-browser"
    assert f"--ServerApp.root_dir={done.folder}" in words
    assert "--LabApp.default_url=/lab/tree/00_start_here.ipynb" in words and "--LabApp.news_url=None" in words
    assert lab.launch_jupyterlab(done.folder) == 7


def test_jupyterlab_asks_nothing_about_news(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """JupyterLab's own reader of settings finds our default; a learner's own setting is not touched by it."""
    from jupyterlab_server.settings_utils import _get_overrides

    monkeypatch.setenv("JUPYTER_CONFIG_PATH", lab.environment()["JUPYTER_CONFIG_PATH"])
    overrides, error = _get_overrides(str(tmp_path))
    assert not error and overrides["@jupyterlab/apputils-extension:notification"]["fetchNews"] == "false"


def test_flags_are_known_to_jupyterlab() -> None:
    """A flag that JupyterLab no longer has would be ignored in silence."""
    from jupyterlab.labapp import LabApp

    assert {flag.partition("=")[0] for flag in lab.FLAGS} <= {f"--LabApp.{name}" for name in LabApp.class_traits()}


# --- the repository stays clean --------------------------------------------------------------------------------------


def git(folder: Path, *words: str) -> str:
    settings = ("user.name=a", "user.email=a@b.c", "commit.gpgsign=false", "protocol.file.allow=always")
    command = ["git", *(word for setting in settings for word in ("-c", setting)), *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout


def test_working_leaves_git_clean_and_pull_easy(tmp_path: Path, pristine: Path) -> None:
    """With this repository's .gitignore: copy, solve, pull a new version of the same notebook."""
    upstream = tmp_path / "upstream"
    upstream.mkdir()
    git(upstream, "init", "-q", "-b", "main")
    (upstream / ".gitignore").write_text((ROOT / ".gitignore").read_text(encoding="utf-8"), encoding="utf-8")
    pristine.rename(upstream / "notebooks")
    git(upstream, "add", "-A")
    git(upstream, "commit", "-qm", "one")
    git(tmp_path, "clone", "-q", str(upstream), "clone")
    clone = tmp_path / "clone"
    copy_course(clone / "notebooks", clone / "my_course")
    (clone / "my_course" / "04_clipping.ipynb").write_text("solved", encoding="utf-8")
    (clone / "my_course" / "progress.json").write_text("{}", encoding="utf-8")
    assert git(clone, "status", "--porcelain") == ""
    (upstream / "notebooks" / "04_clipping.ipynb").write_text("second", encoding="utf-8")
    git(upstream, "commit", "-qam", "two")
    git(clone, "pull", "-q", "--ff-only")
    assert git(clone, "status", "--porcelain") == ""
    assert copy_course(clone / "notebooks", clone / "my_course").waiting == ["04_clipping.ipynb"]
    assert (clone / "my_course" / "04_clipping.ipynb").read_text() == "solved"
