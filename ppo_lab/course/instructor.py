"""Instructor mode: a notebook with the short answers in place of the stubs. A test runs it; every check must PASS."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ppo_lab.course.exercises import EXERCISES, Exercise
from ppo_lab.course.grade.reading import exercise_cell
from ppo_lab.paths import PACKAGE


def answer_of(entry: Exercise, folder: Path = PACKAGE.parent / "instructor") -> str:
    """The short answer; of a transfer exercise the one in ``instructor/NAME.py``."""
    if entry.reference is not None:
        return entry.answer
    return (folder / f"{entry.name}.py").read_text(encoding="utf-8")


def solved(notebook: Any, *, only_exercises: bool = False) -> Any:
    """A copy with every exercise answered, outputs removed.

    Args:
        notebook: as nbformat reads it.
        only_exercises: keep the cell that starts the session and the exercise cells, which stand alone; quick to run.
    """
    answered = copy.deepcopy(notebook)
    kept = []
    for cell in answered["cells"]:
        found = exercise_cell(cell["source"]) if cell["cell_type"] == "code" else None
        if found is not None:
            name = found.exercise
            cell["source"] = f"{answer_of(EXERCISES[name])}\n{name} = course.check({name})"
        if cell["cell_type"] == "code":
            cell["outputs"], cell["execution_count"] = [], None
        if not only_exercises or found is not None or "course.start(" in cell["source"]:
            kept.append(cell)
    answered["cells"] = kept
    return answered


def verdicts(notebook: Any) -> Iterator[tuple[str, str]]:
    """(exercise, verdict) of every check whose card an executed notebook stores."""
    for cell in notebook["cells"]:
        for output in cell.get("outputs", ()):
            words = str(output.get("data", {}).get("text/plain", "")).split()
            if len(words) > 2 and words[1] in ("TODO", "FAIL", "PASS"):
                yield words[2].rstrip(":"), words[1]
