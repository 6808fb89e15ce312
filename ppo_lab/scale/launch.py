"""Several processes on this machine, started from Python or a notebook cell: ``torchrun`` without a shell.

The processes find each other through the environment variables that every launcher sets, so what runs under `launch`
runs under ``torchrun``, ``accelerate launch`` and ``deepspeed`` too. Output comes as it is printed, and a rank that
fails is shown with its own traceback within seconds, not those of the ranks that waited for it.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

GRACE = 3.0  # seconds in which the other ranks may end by themselves
KEPT = 40  # lines of a failed rank that are shown where it printed no traceback
ECHOES = ("RankError", "Connection closed by peer", "Connection reset", "Broken pipe", "no sign of life",
          "not moved for")  # fmt: skip


class LaunchError(RuntimeError):
    """A rank failed; ``rank``, ``code`` (negative: the signal that killed it) and every rank's ``outputs``."""

    def __init__(self, message: str, *, rank: int, code: int | None, outputs: list[str]) -> None:
        super().__init__(message)
        self.rank, self.code, self.outputs = rank, code, outputs


@dataclass
class _Rank:
    """One process, and what it has printed so far."""

    number: int
    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)
    ended: float | None = None

    def read(self, show: Callable[[str], object] | None, alone: bool) -> None:
        """Collect its output to the end, showing it line by line."""
        for line in self.process.stdout or ():
            self.lines.append(line)
            if show is not None:
                show(line.rstrip("\n") if alone or self.number == 0 else f"[rank {self.number}] {line.rstrip()}")

    @property
    def output(self) -> str:
        """All of it."""
        return "".join(self.lines)


def launch(
    command: Sequence[str],
    *,
    processes: int = 2,
    timeout: float | None = None,
    show: Callable[[str], object] | None = print,
    environment: Mapping[str, str] | None = None,
) -> list[str]:
    """Run a Python command as ``processes`` ranks of one group, and wait for all of them.

    Args:
        command: what follows ``python``, as ``["train.py"]`` or ``["-m", "ppo_lab.cli", "train", "rlhf/demo"]``.
        processes: W, one a device, or one a core.
        timeout: seconds after which it is an error; None waits.
        show: is given every line as it comes, those of ranks above 0 with their number; None is silent.
        environment: added to this process's own.

    Returns:
        What each rank printed, stdout and stderr as they came.

    Raises:
        LaunchError: a rank failed, was killed, or had not ended in time. No process is left behind.
    """
    if processes < 1:
        raise ValueError(f"processes must be at least 1, got {processes}; 2 is enough to see sharding at work")
    ranks = _start([sys.executable, *command], processes, dict(environment or {}))
    readers = [threading.Thread(target=r.read, args=(show, processes == 1), daemon=True) for r in ranks]
    for reader in readers:
        reader.start()
    start = time.monotonic()
    try:
        failed = _wait(ranks, None if timeout is None else start + timeout)
    finally:
        _end(ranks)
        for reader in readers:
            reader.join(GRACE)
    outputs = [r.output for r in ranks]
    if failed is not None:
        raise LaunchError(_message(failed, ranks, time.monotonic() - start), rank=failed.number,
                          code=failed.process.returncode if failed.ended else None, outputs=outputs)  # fmt: skip
    return outputs


def train(config: str, *overrides: str, processes: int = 2, folder: str | None = None, resume: bool = False,
          timeout: float | None = None, show: Callable[[str], object] | None = print) -> list[str]:  # fmt: skip
    """``ppo-lab train CONFIG KEY=VALUE …`` in several processes."""
    options = (["--folder", folder] if folder else []) + ["--resume"] * resume
    command = ["-m", "ppo_lab.cli", "train", config, *overrides, *options]
    return launch(command, processes=processes, timeout=timeout, show=show)


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _start(command: list[str], world: int, extra: dict[str, str]) -> list[_Rank]:
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(world),
              "LOCAL_WORLD_SIZE": str(world), "PYTHONUNBUFFERED": "1"}  # fmt: skip
    environment = {"OMP_NUM_THREADS": "1", **os.environ, **shared, **extra}
    return [
        _Rank(r, subprocess.Popen(
            command, env=environment | {"RANK": str(r), "LOCAL_RANK": str(r)}, text=True, errors="replace",
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        ))
        for r in range(world)
    ]  # fmt: skip


def _wait(ranks: list[_Rank], deadline: float | None) -> _Rank | None:
    """Until all have ended well (None), or the rank to blame."""
    while True:
        now = time.monotonic()
        for r in ranks:
            if r.ended is None and r.process.poll() is not None:
                r.ended = now
        bad = [r for r in ranks if r.ended is not None and r.process.returncode != 0]
        running = [r for r in ranks if r.ended is None]
        if bad and (not running or now - min(r.ended or now for r in bad) > GRACE):
            return min(bad, key=_guilt)
        if not running:
            return None
        if deadline is not None and now > deadline:
            return running[0]
        time.sleep(0.05)


def _guilt(r: _Rank) -> tuple[int, float]:
    """Whoever was killed comes first, then who failed by itself, then who only lost the others."""
    echo = any(word in "".join(r.lines[-KEPT:]) for word in ECHOES)
    return (0 if (r.process.returncode or 0) < 0 else 1 + echo, r.ended or 0.0)


def _end(ranks: list[_Rank]) -> None:
    """Ask what still runs to end, then make it; its children with it."""
    for how, seconds in ((signal.SIGTERM, GRACE), (signal.SIGKILL, GRACE)):
        alive = [r for r in ranks if r.process.poll() is None]
        for r in alive:
            try:
                os.killpg(r.process.pid, how)
            except ProcessLookupError:
                pass
        end = time.monotonic() + seconds
        while time.monotonic() < end and any(r.process.poll() is None for r in alive):
            time.sleep(0.05)


def _message(r: _Rank, ranks: list[_Rank], seconds: float) -> str:
    code, who = r.process.returncode, f"rank {r.number} of {len(ranks)}"
    if r.ended is None:
        what = f"{who} had not ended after {seconds:.0f} s"
    elif code is not None and code < 0:
        what = f"{who} was killed by {signal.Signals(-code).name} after {seconds:.0f} s"
    else:
        what = f"{who} failed with exit status {code} after {seconds:.0f} s"
    return f"{what}; what it printed last:\n\n{last_words(r.output)}"


def last_words(output: str) -> str:
    """The last traceback in an output with all that follows, or its last lines.

    >>> last_words("step 1" + chr(10) + "Traceback (most recent call last):" + chr(10) + "ValueError: no")
    'Traceback (most recent call last):\\nValueError: no'
    """
    at = output.rfind("Traceback (most recent call last):")
    return output[at:].strip() if at >= 0 else "\n".join(output.strip().splitlines()[-KEPT:])
