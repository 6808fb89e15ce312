"""One line at the top of a notebook: `start` makes every run of it alike, and says so, or says what to mend.

What a learner has done (bets placed, exercises passed, missions met) is remembered for as long as the kernel lives, and
in ``progress.json`` where the notebook lies in a working copy. Nothing is ever written beside the pristine notebooks.
"""

from __future__ import annotations

import importlib.util
import json
import os
import random
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ppo_lab.course.catalogue import notebook

MARKER = ".course.json"  # what makes a folder a working copy
NEEDED = ("torch", "numpy", "matplotlib", "ipywidgets", "IPython")
QUIET = {  # progress bars and advice of libraries belong to no notebook
    "TQDM_DISABLE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TRANSFORMERS_VERBOSITY": "error",
    "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_OFFLINE": "1",
}


@dataclass
class Session:
    """What this kernel knows: the notebook, and what was done in it, by kind and name."""

    name: str = ""
    done: dict[str, dict[str, str]] = field(default_factory=dict)

    def note(self, kind: str, name: str, value: str) -> None:
        """Remember, as ``note("exercise", "gae", "PASS")``; a PASS is not lost to a later try."""
        notes = self.done.setdefault(kind, {})
        if notes.get(name) != "PASS":
            notes[name] = value
        if (root := working_copy()) is not None:
            write_progress(root, {kind: {name: notes[name]}})


SESSION = Session()


def start(name: str, *, seed: int = 0, dtype: str | None = None) -> None:
    """Set seed, threads, printing and default precision, silence libraries; print one line, or what is wrong.

    Args:
        name: the notebook's, as ``04_clipping``.
        seed: of Python, NumPy and torch, for cells that use the global generators.
        dtype: torch's default; left out, float64 where things are computed by hand (concept notebooks), else float32.

    One thread is fastest for models of this size, and gives the same sums on every machine.
    """
    book = notebook(name)
    troubles = [*problems()]
    if troubles:
        print("\n".join([*troubles, "Then restart the kernel. All of the machine: ppo-lab check"]))
        return
    import numpy as np
    import torch

    precision = dtype or ("float64" if book.kind == "concept" else "float32")
    os.environ.update(QUIET)
    warnings.filterwarnings("ignore")
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    torch.set_default_dtype(getattr(torch, precision))
    torch.set_printoptions(precision=4, sci_mode=False, linewidth=88)
    np.set_printoptions(precision=4, suppress=True, linewidth=88)
    _print_floats_short()
    SESSION.name, SESSION.done = name, {}
    print(f"{name}: ready (seed {seed}, {precision}, 1 thread)")


def problems(version: tuple[int, ...] = sys.version_info[:2], needed: tuple[str, ...] = NEEDED) -> Iterator[str]:
    """What would stop a notebook, one sentence each with its fix."""
    if version < (3, 11):
        yield f"[FAIL] Python {'.'.join(map(str, version))} is older than 3.11; fix: make setup PYTHON=python3.11"
    for package in needed:
        if importlib.util.find_spec(package) is None:
            yield f"[FAIL] {package} is not installed for this kernel; fix: pip install -r requirements.txt"


def _print_floats_short() -> None:
    """A float at the end of a cell shows four decimals."""
    from IPython import get_ipython

    if (shell := get_ipython()) is not None:
        formatter = shell.display_formatter.formatters["text/plain"]
        formatter.float_precision = "%.4f"


def here(text: str) -> str:
    """Mark what differs from machine to machine, such as seconds; stored outputs are compared without it.

    >>> here("12.3 s")
    '[this machine: 12.3 s]'
    """
    return f"[this machine: {text}]"


def scratch(name: str) -> Path:
    """An empty folder for what a cell writes, wherever the notebook runs: never beside the pristine ones.

    In a working copy it is ``runs/NAME`` there, made anew each time; elsewhere a folder that the system clears away.
    """
    root = working_copy()
    if root is None:
        return Path(tempfile.mkdtemp(prefix=f"ppo-lab-{name}-"))
    place = root / "runs" / name
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    return place


def working_copy(folder: Path | None = None) -> Path | None:
    """The working copy that this folder lies in, if it lies in one."""
    place = (folder or Path.cwd()).resolve()
    return next((path for path in (place, *place.parents) if (path / MARKER).is_file()), None)


def read_progress(root: Path) -> dict[str, dict[str, str]]:
    """What ``progress.json`` says; nothing where it is absent or torn."""
    try:
        found = json.loads((root / "progress.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def write_progress(root: Path, news: dict[str, dict[str, str]]) -> None:
    """Merge ``news`` into ``progress.json``, under a temporary name first; a full disk loses only this note."""
    merged = read_progress(root)
    for kind, notes in news.items():
        merged[kind] = {**merged.get(kind, {}), **notes}
    scratch = root / f"progress.json.{os.getpid()}"
    try:
        scratch.write_text(json.dumps(merged, indent=1, ensure_ascii=False, sort_keys=True), encoding="utf-8")
        os.replace(scratch, root / "progress.json")
    except OSError:
        scratch.unlink(missing_ok=True)
