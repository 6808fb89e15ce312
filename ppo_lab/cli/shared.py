"""What every command uses: where it prints, and how bad input ends."""

from __future__ import annotations

import os
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

RUNS = Path("runs")
RANK = os.environ.get("RANK", "0")  # of several processes, as every launcher says; only the first one talks
WHO = "" if RANK == "0" else f"rank {RANK}: "
PLAIN: dict[str, Any] = dict(highlight=False, markup=False, soft_wrap=True, quiet=RANK != "0")
out, aside = Console(**PLAIN), Console(**PLAIN, stderr=True)


@contextmanager
def plain_errors(folder: Path | None = None) -> Iterator[None]:
    """Bad input ends with its message alone and code 2; set PPO_LAB_TRACEBACK=1 to see where it was raised.

    With ``folder`` work has begun: the code is 1, any error counts, and its traceback is kept there in ``error.txt``.
    """
    expected = (ValueError, OSError, RuntimeError) if folder is None else Exception
    try:
        yield
    except (typer.Exit, typer.Abort):  # these are RuntimeErrors
        raise
    except expected as error:
        if os.environ.get("PPO_LAB_TRACEBACK"):
            raise
        said = f"{WHO}error: {error or type(error).__name__}"
        typer.echo("\n".join([said, *getattr(error, "__notes__", ())]), err=True)
        if folder is None:
            raise typer.Exit(2) from None
        keep_traceback(folder)
        raise typer.Exit(1) from None


def keep_traceback(folder: Path) -> None:
    """Write the traceback of the error being handled into the run's folder, or show it where that fails."""
    try:
        path = folder / ("error.txt" if RANK == "0" else f"error.rank{RANK}.txt")
        path.write_text(traceback.format_exc(), encoding="utf-8")
        typer.echo(f"{WHO}The traceback is in {path}", err=True)
    except OSError:  # a full disk is one of the errors that lead here
        traceback.print_exc()


def expect_run(folder: Path, *, wanted: bool) -> None:
    """Refuse to overwrite a run, or to open one that is not there."""
    from ppo_lab.logbook import begun

    there = (folder / "config.yaml").is_file()
    if begun(folder) and not wanted:
        raise ValueError(f"{folder} already holds a run; add --resume to go on with it, or choose another --folder")
    if wanted and not there:
        raise ValueError(f"{folder} holds no run (no config.yaml in it); start one with: ppo-lab train CONFIG")


@contextmanager
def reading_copy(run: Path) -> Iterator[Path]:
    """A folder that shares the run's config, models and checkpoints, and none of its logs.

    Opening a run to go on with it cuts its logs back to the checkpoint; a run still in progress must not suffer that.
    """
    expect_run(run, wanted=True)
    if not any((run / "checkpoints").glob("*")):
        raise ValueError(f"{run} holds no checkpoint yet; wait for one, or stop the run with Ctrl-C")
    with tempfile.TemporaryDirectory(prefix="ppo-lab-") as scratch:
        for shared in ("config.yaml", "models", "checkpoints"):
            (Path(scratch) / shared).symlink_to((run / shared).resolve())
        yield Path(scratch)
