"""The working copy: learners write in ``my_course/``, the notebooks of the repository stay as they came.

A file that a learner may have touched is never written to again. New versions come beside the old ones, on request:
merging two notebooks by text makes invalid JSON, so nobody is asked to.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ppo_lab.course.session import MARKER
from ppo_lab.paths import PACKAGE

FIRST = "00_start_here.ipynb"
SKIPPED = {".ipynb_checkpoints", "__pycache__"}
SETTINGS = Path(__file__).parent / "jupyter"  # defaults for JupyterLab: no pop-up that asks about news
FLAGS = (  # a course room may be offline: neither news nor newer versions are looked up
    "--LabApp.news_url=None",
    "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
)


@dataclass
class WorkingCopy:
    """What `open_course` did. ``added`` are new files, ``beside`` new versions next to a learner's, ``waiting`` those
    that have a newer version which was not asked for. All relative to ``folder``."""

    folder: Path
    added: list[str] = field(default_factory=list)
    beside: list[str] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        """What to tell the learner."""
        yield f"Your copy of the course: {self.folder} ({len(self.added)} files new; yours are never overwritten)"
        if self.beside:
            yield f"New versions beside yours: {', '.join(self.beside)}"
        if self.waiting:
            yield f"Newer versions exist of {', '.join(self.waiting)}; ppo-lab lab --update puts them beside yours"


def pristine_folder() -> Path:
    """``notebooks/`` of the checkout this package runs from, or of the present folder.

    Raises:
        ValueError: there is none, as with a package installed from a wheel.
    """
    for candidate in (PACKAGE.parent / "notebooks", Path.cwd() / "notebooks"):
        if candidate.is_dir():
            return candidate
    raise ValueError("notebooks/ must lie beside the package or in the present folder, found neither; clone the "
                     "repository and run ppo-lab lab inside it")  # fmt: skip


def open_course(
    target: str | Path = "my_course",
    *,
    update: bool = False,
    launch: bool = True,
    source: Path | None = None,
    options: Sequence[str] = (),
) -> WorkingCopy:
    """Copy what is new into ``target``, say so, and open JupyterLab on it.

    Args:
        target: the learner's folder; made if it is not there.
        update: put newer versions of copied files beside them, as ``04_clipping.new-1.ipynb``.
        launch: open JupyterLab and stay until it ends; False only copies.
        source: the pristine notebooks; found if left out.
        options: further words for JupyterLab, as ``--no-browser``.

    Raises:
        ValueError: no pristine notebooks, or ``target`` is where they are.
    """
    copied = copy_course(source or pristine_folder(), Path(target), update=update)
    for line in copied.lines():
        print(line)
    if launch:
        launch_jupyterlab(copied.folder, options)
    return copied


def copy_course(source: Path, target: Path, *, update: bool = False) -> WorkingCopy:
    """Bring ``target`` up to date without writing over anything in it."""
    source, target = source.resolve(), target.resolve()
    if target == source or source in target.parents:
        raise ValueError(f"the working copy must lie outside of {source.name}/, got {target.name}; use my_course")
    target.mkdir(parents=True, exist_ok=True)
    given = _manifest(target)
    done = WorkingCopy(target)
    for path in sorted(source.rglob("*")):
        name = path.relative_to(source).as_posix()
        if not path.is_file() or SKIPPED & {*path.parts}:
            continue
        print_of = hashlib.sha256(path.read_bytes()).hexdigest()
        place = target / name
        if not place.exists():
            _copy(path, place)
            done.added.append(name)
        elif given.get(name) == print_of or (name not in given and _same(path, place)):
            pass
        elif update:
            beside = _free_name(place)
            _copy(path, beside)
            done.beside.append(beside.relative_to(target).as_posix())
        else:
            done.waiting.append(name)
            continue
        given[name] = print_of
    _write_manifest(target, given)
    return done


def _copy(path: Path, place: Path) -> None:
    """Under a temporary name first, so that no half file is left behind; never over something."""
    place.parent.mkdir(parents=True, exist_ok=True)
    scratch = place.with_name(f".{place.name}.{os.getpid()}")
    try:
        shutil.copyfile(path, scratch)
        os.link(scratch, place)  # fails where the file exists; rename would not
    except PermissionError:
        shutil.copyfile(path, place)  # a file system without hard links
    finally:
        scratch.unlink(missing_ok=True)


def _free_name(place: Path) -> Path:
    """``04_clipping.new-1.ipynb``, or the next number that is free."""
    number = 1
    while (beside := place.with_name(f"{place.stem}.new-{number}{place.suffix}")).exists():
        number += 1
    return beside


def _same(a: Path, b: Path) -> bool:
    return a.read_bytes() == b.read_bytes()


def _manifest(target: Path) -> dict[str, str]:
    """Which version of each file the learner was last given, by its hash."""
    try:
        found = json.loads((target / MARKER).read_text(encoding="utf-8"))
        return {str(name): str(value) for name, value in found["given"].items()}
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return {}


def _write_manifest(target: Path, given: dict[str, str]) -> None:
    scratch = target / f"{MARKER}.{os.getpid()}"
    scratch.write_text(json.dumps({"given": given}, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    os.replace(scratch, target / MARKER)


def command(folder: Path, options: Sequence[str] = ()) -> list[str]:
    """The command that opens JupyterLab on the first notebook, without its news pop-up."""
    first = [f"--LabApp.default_url=/lab/tree/{FIRST}"] if (folder / FIRST).is_file() else []
    root = f"--ServerApp.root_dir={folder}"
    as_root = ["--allow-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []  # a container's usual user
    return [sys.executable, "-m", "jupyterlab", root, *first, *FLAGS, *as_root, *options]


def environment() -> dict[str, str]:
    """What JupyterLab is started with: the learner's own settings win over ours."""
    search = os.pathsep.join(filter(None, [os.environ.get("JUPYTER_CONFIG_PATH"), str(SETTINGS)]))
    return {"OMP_NUM_THREADS": "1", **os.environ, "JUPYTER_CONFIG_PATH": search}


def launch_jupyterlab(folder: Path, options: Sequence[str] = ()) -> int:
    """Run JupyterLab until it ends; its exit code. Ctrl-C is JupyterLab's to handle, and it ends where we are ended."""
    process = subprocess.Popen(command(folder, options), env=environment())
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:  # the child got it as well, and asks whether it is meant
            continue
