"""Recorded experiments say how they were made, and can only be made from committed code."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from ppo_lab.course import recordings
from ppo_lab.course.recordings import FOLDER, record, recorded, revision

ROWS = [{"method": "ppo", "seed": 0, "gold": 0.7}, {"method": "ppo", "seed": 1, "gold": 0.8},
        {"method": "sft", "seed": 0, "gold": 0.1}]  # fmt: skip


@pytest.fixture
def committed(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(recordings, "revision", lambda: "0123456789abcdef")
    return "0123456789abcdef"


def test_there_and_back(tmp_path: Path, committed: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert record("frontier", "python frontier.py", ROWS, tmp_path) == tmp_path / "frontier.json"
    found = recorded("frontier", tmp_path)
    assert capsys.readouterr().out == "Recorded: 3 rows at revision 0123456789, by python frontier.py\n"
    assert found.rows == ROWS and found.revision == committed
    assert found.column("gold", method="ppo") == [0.7, 0.8] and found.column("gold", method="ppo", seed=1) == [0.8]


@pytest.mark.parametrize("gone", ["command", "revision", "rows"])
def test_one_that_cannot_be_repeated_is_refused(tmp_path: Path, committed: str, gone: str) -> None:
    path = record("x", "make x", ROWS, tmp_path)
    content = {key: value for key, value in json.loads(path.read_text()).items() if key != gone}
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(ValueError, match=f"must say {gone}"):
        recorded("x", tmp_path)


def test_bad_recordings(tmp_path: Path, committed: str) -> None:
    with pytest.raises(ValueError, match="known: none yet"):
        recorded("x", tmp_path)
    for command, rows in (("", ROWS), ("make x", [])):
        with pytest.raises(ValueError, match="needs the command"):
            record("x", command, rows, tmp_path)
    with pytest.raises(ValueError, match="must stay below"):
        record("x", "make x", ROWS * 5000, tmp_path)
    with pytest.raises(ValueError):
        record("x", "make x", [{"gold": float("nan")}], tmp_path)
    assert [*tmp_path.iterdir()] == []


def test_only_committed_code_is_recorded(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false", *words]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.strip()

    git("init", "-q")
    (tmp_path / "ppo_lab").mkdir()
    (tmp_path / "ppo_lab" / "a.py").write_text("1", encoding="utf-8")
    git("add", "-A")
    git("commit", "-qm", "one")
    assert revision(tmp_path) == git("rev-parse", "HEAD")
    (tmp_path / "notes.txt").touch()
    (tmp_path / "ppo_lab" / "course" / "recorded").mkdir(parents=True)
    (tmp_path / "ppo_lab" / "course" / "recorded" / "first.json").touch()  # of the same script
    assert revision(tmp_path) == git("rev-parse", "HEAD")
    (tmp_path / "ppo_lab" / "a.py").write_text("2", encoding="utf-8")
    with pytest.raises(ValueError, match="commit before recording.*ppo_lab/a.py"):
        revision(tmp_path)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem)
def test_committed_recordings_are_whole(path: Path) -> None:
    found = recorded(path.stem)
    assert len(found.revision) == 40 and len({*map(frozenset, found.rows)}) == 1
