"""Driving a run from a terminal: a bar, one line an iteration, samples before and after, a brake."""

from __future__ import annotations

import logging
import os
import shlex
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from rich import progress as rich_progress
from rich.console import Console

from ppo_lab.cli.shared import out

if TYPE_CHECKING:
    from ppo_lab import control, rlhf
    from ppo_lab.config import ControlConfig, RLHFConfig
    from ppo_lab.records import ControlMetrics, StepMetrics

SHOWN_SAMPLES = 4
BRAKING = (
    b"\nStopping with a checkpoint: a language model after this step, a control run where its next one is due. "
    b"Ctrl-C again aborts at once.\n"
)


def start(settings: RLHFConfig | ControlConfig, folder: Path, *, resume: bool) -> rlhf.Run | control.Run:
    """The run that a config describes, in the world that it belongs to."""
    from ppo_lab.config import ControlConfig

    if isinstance(settings, ControlConfig):
        from ppo_lab.control import Run as ControlRun
        from ppo_lab.learners import processes

        if (several := processes.launched()) > 1:
            raise ValueError(f"a control run needs 1 process, got {several}; start it without a launcher")

        return ControlRun(settings, folder=folder, resume=resume)
    from ppo_lab.rlhf import Run

    return Run(settings, folder=folder, resume=resume)


def drive(run: rlhf.Run | control.Run, steps: int) -> bool:
    """Iterate the run to its end or to Ctrl-C; True where it was stopped early."""
    prompts = list(dict.fromkeys(getattr(run, "sample_prompts", [])))[:SHOWN_SAMPLES]  # control answers no prompts
    generate = getattr(run, "generate", list)
    first, before = run.step, generate(prompts)
    with progress_bar() as bar, Brake(run.stop) as brake:
        task, clock = bar.add_task("training", total=steps, completed=first), time.perf_counter()
        for metrics in run:
            now = time.perf_counter()
            out.print(metric_line(metrics, steps, now - clock))
            bar.update(task, completed=run.step)
            clock = now
    if prompts:
        show_samples(prompts, {f"step {first}": before, f"step {run.step}": generate(prompts)})
    return brake.pulled and run.step < steps


class Brake:
    """The first Ctrl-C (or SIGTERM) lets the step finish and a checkpoint be written; the second aborts at once."""

    def __init__(self, stop: Callable[[], None]) -> None:
        self.stop, self.pulled, self.first = stop, False, 0
        self.before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def __enter__(self) -> Brake:
        for number in self.before:
            signal.signal(number, self.pull)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def pull(self, number: int, frame: FrameType | None) -> None:
        """The signal handler."""
        if self.pulled and (number == self.first or "RANK" not in os.environ):
            raise KeyboardInterrupt
        if self.pulled:  # torchrun passes Ctrl-C on as SIGTERM, after the terminal gave it to every rank
            return
        self.pulled, self.first = True, number
        self.stop()
        os.write(2, BRAKING)  # print is not safe here: the signal may have come in the middle of one


def metric_line(metrics: StepMetrics | ControlMetrics, steps: int, seconds: float) -> str:
    """One iteration in one line; KL is the sum over a response in nats, length is in tokens."""
    from ppo_lab.records import ControlMetrics

    if isinstance(metrics, ControlMetrics):
        return control_line(metrics, steps, seconds)
    line = (
        f"step {metrics.step:>{len(str(steps))}}/{steps}  score {metrics.score_mean:+.3f}  KL {metrics.ref_kl_sum:6.3f}"
        f"  β {metrics.beta:.4f}  length {metrics.response_length:5.1f}  {seconds:.2f} s"
    )
    held_out = metrics.evaluation
    if held_out is not None:
        line += f"  | held out: score {held_out.eval_score:+.3f}  KL {held_out.eval_ref_kl_sum:.3f}"
        line += "" if held_out.eval_gold is None else f"  gold {held_out.eval_gold:+.3f}"
    return line


def control_line(metrics: ControlMetrics, steps: int, seconds: float) -> str:
    """One iteration in one line; the return is that of episodes that ended in it, KL(old‖new) in nats a step."""
    earned = "      –" if metrics.episode_return is None else f"{metrics.episode_return:7.1f}"
    line = (
        f"step {metrics.step:>{len(str(steps))}}/{steps}  env steps {metrics.env_steps:>7}  return {earned}"
        f"  KL {metrics.policy_kl_exact:.4f}  entropy {metrics.update.entropy:6.3f}  {seconds:.2f} s"
    )
    if (fresh := metrics.evaluation) is not None:
        line += f"  | evaluation: {fresh.eval_return:.1f}, worst {fresh.eval_return_worst:.1f}"
    return line


def resume_command(config: str, overrides: list[str], folder: Path) -> str:
    """What to type to go on after an interruption.

    >>> resume_command("rlhf/demo", ["steps=20"], Path("runs/my run"))
    "ppo-lab train rlhf/demo steps=20 --folder 'runs/my run' --resume"
    """
    return shlex.join(["ppo-lab", "train", config, *overrides, "--folder", str(folder), "--resume"])


def parting(step: int, steps: int, folder: Path, again: str, *, stopped: bool) -> str:
    """What is said last: how to go on, or how to look at the run."""
    if stopped:
        return f"Stopped at step {step} of {steps}, checkpoint written. Go on with:\n  {again}"
    return f"Done: {step} steps. Look at the run with:\n  ppo-lab dashboard {shlex.quote(str(folder))}"


def progress_bar() -> rich_progress.Progress:
    """A bar below the metric lines on a terminal; nothing where the output goes to a file."""
    columns = (rich_progress.BarColumn(), rich_progress.MofNCompleteColumn(), rich_progress.TimeRemainingColumn())
    return rich_progress.Progress(*columns, console=out, transient=True, disable=not out.is_terminal)


def show_samples(prompts: list[str], answers: dict[str, list[str]]) -> None:
    """Each prompt with the answers before and after."""
    width = max(map(len, answers))
    for row, prompt in enumerate(prompts):
        out.print(f"\n{prompt} …")
        for name, texts in answers.items():
            out.print(f"  {name:<{width}}  {texts[row]}")
    out.print()


class Told(logging.Handler):
    """Prints what the package logs, as while models are built, above the bar."""

    def __init__(self, console: Console, level: int) -> None:
        super().__init__(level)
        self.console = console

    def emit(self, record: logging.LogRecord) -> None:
        """One line a message."""
        self.console.print(self.format(record))


def listen(console: Console = out, level: int = logging.INFO) -> None:
    """Show the package's log from ``level`` up, once a console however often this is called."""
    log = logging.getLogger("ppo_lab")
    if not any(isinstance(handler, Told) and handler.console is console for handler in log.handlers):
        log.addHandler(Told(console, level))
        log.setLevel(min(level, log.level or level))
