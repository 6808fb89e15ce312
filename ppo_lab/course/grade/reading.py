"""From a learner's notebook to the sources of its exercise cells; nothing is executed."""

from __future__ import annotations

import ast
import json
import re
from dataclasses import dataclass
from pathlib import Path

from ppo_lab.course.catalogue import NOTEBOOKS
from ppo_lab.course.exercises import EXERCISES

MAGIC = re.compile(r"^\s*[%!].*$", re.M)


@dataclass(frozen=True, slots=True)
class ExerciseCell:
    """The definition a learner wrote. ``note`` is for the teacher's eyes."""

    exercise: str
    source: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Submission:
    """One file: which notebook it is a copy of ("" if unclear), its exercise cells, or why it cannot be read."""

    file: str
    notebook: str = ""
    cells: tuple[ExerciseCell, ...] = ()
    trouble: str = ""


def read(path: Path, file: str) -> Submission:
    """Read one notebook; a broken one is reported, not raised."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        cells = [c for c in content["cells"] if c.get("cell_type") == "code"]
        sources = [s if isinstance(s := c["source"], str) else "".join(s) for c in cells]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return Submission(file, trouble=f"not a notebook: {type(error).__name__}: {error}")
    found: dict[str, ExerciseCell] = {}
    for source in sources:
        if (cell := exercise_cell(source)) is not None:
            found[cell.exercise] = cell  # of several, the last: what the kernel would have used
    return Submission(file, notebook_of(path.stem), tuple(found.values()))


def notebook_of(stem: str) -> str:
    """Which notebook of the course a file name speaks of, wherever in it.

    >>> notebook_of("ann_00_start_here"), notebook_of("homework")
    ('00_start_here', '')
    """
    return next((name for name in NOTEBOOKS if name in stem), "")


def exercise_cell(source: str) -> ExerciseCell | None:
    """The exercise in a cell, if there is one: a ``def`` of its name; the line that checks it is left out.

    >>> exercise_cell("def masked_mean(x, mask):\\n    return 0\\nmasked_mean = course.check(masked_mean)").source
    'def masked_mean(x, mask):\\n    return 0'
    """
    source = MAGIC.sub("", source)
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        named = re.search(r"^def (\w+)\(", source, re.M)
        if named and named[1] in EXERCISES:
            return ExerciseCell(named[1], "raise SyntaxError(" + repr(str(error)) + ")")
        return None
    names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in EXERCISES]
    if not names:
        return None
    kept = [ast.get_source_segment(source, node, padded=True) or "" for node in tree.body if not _checks(node)]
    uses = [module for module in imported(tree) if module.split(".")[0] == "ppo_lab"]
    return ExerciseCell(names[-1], "\n".join(kept), f"imports {', '.join(uses)}" if uses else "")


def _checks(node: ast.stmt) -> bool:
    """``name = course.check(name)``, or the call alone."""
    value = getattr(node, "value", None)
    called = ast.unparse(value.func) if isinstance(value, ast.Call) else ""
    return called.split(".")[-1] == "check"


def imported(tree: ast.AST) -> list[str]:
    """Modules that a tree imports."""
    found = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    return found + [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
