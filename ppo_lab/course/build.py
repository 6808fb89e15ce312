"""``make notebooks``: run the committed notebooks in order, normalise what came out, and write them back.

The ``.ipynb`` file is the source: its cells, ids and tags are kept, only outputs are made anew. What differs from run
to run without meaning anything is taken out, so a rebuild that changed nothing changes no byte.

    python -m ppo_lab.course.build notebooks/00_start_here.ipynb
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import nbformat

from ppo_lab.paths import PACKAGE

CELL_SECONDS = 120
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
LANGUAGE = {"name": "python", "file_extension": ".py", "mimetype": "text/x-python", "pygments_lexer": "ipython3"}
VIEW = "application/vnd.jupyter.widget-view+json"
HERE = re.compile(r"\[this machine: [^\]]*\]")  # what `course.here` marks: not worth a new file
KEPT_CELL = ("tags", "slideshow", "editable", "deletable")  # metadata of a cell that a person wrote


def rebuild(paths: Iterable[str | Path] = (), *, seconds: int = CELL_SECONDS, root: Path | None = None) -> list[Path]:
    """Execute and rewrite notebooks, one line each; those whose text did not change are not touched.

    Args:
        paths: files, or folders of them; all of ``notebooks/`` if left out.
        seconds: a cell may take.
        root: of the repository, whose path is taken out of outputs.

    Returns:
        The files that were written.

    Raises:
        ValueError: a notebook or folder that is not there.
        nbclient.exceptions.CellExecutionError: a cell failed; nothing of its notebook is written.
    """
    base = root or PACKAGE.parent
    changed = []
    for path in find([*map(Path, paths)] or [base / "notebooks"]):
        begin = time.perf_counter()
        before = path.read_text(encoding="utf-8")
        after = text_of(normalise(execute(nbformat.reads(before, as_version=4), path.parent, seconds), base))
        differs = HERE.sub("", after) != HERE.sub("", before)
        if differs:
            scratch = path.with_name(f".{path.name}.{os.getpid()}")
            scratch.write_text(after, encoding="utf-8")
            os.replace(scratch, path)
            changed.append(path)
        print(f"{path.name}: {time.perf_counter() - begin:.0f} s, {'rewritten' if differs else 'unchanged'}")
    return changed


def find(paths: Sequence[Path]) -> list[Path]:
    """Notebook files among and inside ``paths``, in order, each once."""
    found: dict[Path, None] = {}
    for path in paths:
        if not path.exists():
            raise ValueError(f"{path} is not there; give notebooks, or folders of them")
        inside = sorted(path.glob("*.ipynb")) if path.is_dir() else [path]
        found.update(dict.fromkeys(p for p in inside if not p.name.startswith(".")))
    return list(found)


def execute(notebook: Any, folder: Path, seconds: int = CELL_SECONDS) -> Any:
    """Run every cell in a fresh kernel whose present folder is the notebook's."""
    from nbclient import NotebookClient

    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": _package_first()}
    client = NotebookClient(
        notebook, timeout=seconds, kernel_name="python3", resources={"metadata": {"path": str(folder)}},
        coalesce_streams=True, store_widget_state=False,
    )  # fmt: skip
    client.execute(env=environment)
    return notebook


def _package_first() -> str:
    """This package, also where it is not installed."""
    return os.pathsep.join([str(PACKAGE.parent), *filter(None, [os.environ.get("PYTHONPATH")])])


def normalise(notebook: Any, root: Path | None = None) -> Any:
    """Take out what differs from run to run: times, widget views and state, versions, this machine's paths.

    A panel keeps its picture and text, which is what a page without a kernel can show.
    """
    own = {name: value for name, value in notebook["metadata"].items() if name == "ppo_lab"}
    notebook["metadata"] = {"kernelspec": dict(KERNEL), "language_info": dict(LANGUAGE), **own}
    notebook["nbformat"], notebook["nbformat_minor"] = 4, 5
    for cell in notebook["cells"]:
        cell["metadata"] = {key: cell["metadata"][key] for key in KEPT_CELL if key in cell["metadata"]}
        for output in cell.get("outputs", ()):
            if "data" in output:
                output["data"].pop(VIEW, None)
                output["metadata"] = {}
            _without_paths(output, root)
    return nbformat.from_dict(notebook)


def _without_paths(output: Any, root: Path | None) -> None:
    """The repository's place on this machine is not part of an output."""
    if root is None:
        return
    place = re.compile(re.escape(str(root.resolve())) + r"/?")
    if "text" in output:
        output["text"] = place.sub("", output["text"])
    for kind, value in output.get("data", {}).items():
        if kind.startswith("text/") and isinstance(value, str):
            output["data"][kind] = place.sub("", value)


def text_of(notebook: Any) -> str:
    """The file's text: one space of indent, real characters, a newline at the end."""
    nbformat.validate(notebook)
    return nbformat.writes(notebook).rstrip("\n") + "\n"


if __name__ == "__main__":
    rebuild(sys.argv[1:])
