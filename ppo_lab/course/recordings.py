"""Experiments that take too long for a notebook: recorded once, with the command that made them, and replayed.

A recording is a small JSON file in ``ppo_lab/course/recorded/``: ``command``, ``revision`` (of git), ``rows`` (a list
of flat objects). `record` writes one, `recorded` reads it, and the notebook says where its numbers are from.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ppo_lab.course.html import Card, code, show
from ppo_lab.paths import PACKAGE

FOLDER = Path(__file__).parent / "recorded"
MOST_BYTES = 200_000
FIELDS = {"command", "revision", "rows"}


@dataclass(frozen=True, slots=True)
class Recording:
    """What an experiment gave, and how to repeat it."""

    name: str
    command: str
    revision: str
    rows: list[dict[str, Any]]

    def column(self, key: str, **where: Any) -> list[Any]:
        """The values of ``key`` in all rows that match, in order, as ``column("gold", method="ppo")``."""
        return [row[key] for row in self.rows if all(row.get(k) == v for k, v in where.items())]


def load(name: str, folder: Path = FOLDER) -> Recording:
    """Read a recording.

    Raises:
        ValueError: there is none of that name, or it does not say how it was made.
    """
    path = folder / f"{name}.json"
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in folder.glob("*.json"))) or "none yet"
        raise ValueError(f"there is no recording {name!r} (known: {known}); make it with recordings.record")
    found = json.loads(path.read_text(encoding="utf-8"))
    if missing := FIELDS - {key for key in FIELDS if found.get(key)}:
        raise ValueError(f"{path.name} must say {', '.join(sorted(missing))}; record it again")
    return Recording(name, found["command"], found["revision"], found["rows"])


def recorded(name: str, folder: Path = FOLDER) -> Recording:
    """Read a recording, and show the command that repeats it; errors as `load`."""
    recording = load(name, folder)
    said = f"Recorded: {len(recording.rows)} rows at revision {recording.revision[:10]}"
    show(Card(f"{said}, by {recording.command}", f"{said}. To repeat it: {code(recording.command)}", edge="open"))
    return recording


def record(name: str, command: str, rows: Sequence[dict[str, Any]], folder: Path = FOLDER) -> Path:
    """Write a recording under a temporary name, then rename it.

    Raises:
        ValueError: no command, no rows, uncommitted code (nobody could repeat it), or more than a small file.
    """
    if not command or not rows:
        raise ValueError("a recording needs the command that made it and at least one row; give both")
    text = json.dumps({"command": command, "revision": revision(), "rows": list(rows)}, indent=1, allow_nan=False)
    if len(text) > MOST_BYTES:
        raise ValueError(f"a recording must stay below {MOST_BYTES} bytes, got {len(text)}; keep what is shown")
    folder.mkdir(parents=True, exist_ok=True)
    scratch = folder / f".{name}.{os.getpid()}"
    scratch.write_text(text + "\n", encoding="utf-8")
    os.replace(scratch, folder / f"{name}.json")
    return folder / f"{name}.json"


def revision(folder: Path = PACKAGE.parent) -> str:
    """The git revision that the package is at; `ValueError` where its code was changed since."""
    code = ("ppo_lab", "configs", ":(exclude)ppo_lab/course/recorded")  # a script may write two recordings
    changed = subprocess.run(["git", "status", "--porcelain", "--", *code], cwd=folder,
                             capture_output=True, text=True, check=True).stdout  # fmt: skip
    if changed:
        raise ValueError(f"commit before recording, so that others can repeat it; changed: {changed.split()[1]}")
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()
