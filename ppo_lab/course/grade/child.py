"""What happens in the child: limits, the learner's cell, one call a case, numbers down the pipe, and out."""

from __future__ import annotations

import json
import math
import os
import resource
import sys
import tempfile
import warnings
from typing import Any, NoReturn

import torch

from ppo_lab.course.exercises import exercise, of_notebook
from ppo_lab.course.exercises.outcome import Outcome, call, sentence

FILE_BYTES = 10_000_000
ALONE = "; an exercise cell must hold all it needs (torch, math, Tensor and the notebook's other exercises are there)"


def answer_and_leave(pipe: int, job: dict[str, Any]) -> NoReturn:
    """Run the job, write its outcomes to ``pipe``, and end this process without any clean-up of the server's."""
    write, leave, dump = os.write, os._exit, json.dumps  # before a learner can replace them
    try:
        isolate(pipe, job)
        data = dump(outcomes(job)).encode()
        while data:
            data = data[write(pipe, data) :]
    except BaseException as error:  # whatever it is, it ends here, and the server says that no answer came
        failed = {str(seed): [Outcome(error=f"{type(error).__name__}: {error}").plain()] for seed in job["seeds"]}
        try:
            write(pipe, dump(failed).encode())
        except BaseException:
            leave(1)
    leave(0)


def isolate(pipe: int, job: dict[str, Any]) -> None:
    """Own process group, no terminal, an empty folder, and limits."""
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    os.closerange(3, min(pipe, null))
    os.closerange(max(pipe, null) + 1, 1024)
    sys.stdin, sys.stdout, sys.stderr = (os.fdopen(i, mode) for i, mode in ((0, "r"), (1, "w"), (2, "w")))
    os.chdir(tempfile.gettempdir())
    limit(resource.RLIMIT_AS, virtual_bytes() + int(job["memory_gb"] * 2**30))
    limit(resource.RLIMIT_CPU, math.ceil(job["seconds"]) + 1)
    limit(resource.RLIMIT_FSIZE, FILE_BYTES)
    limit(resource.RLIMIT_CORE, 0)
    limit(resource.RLIMIT_NPROC, 0)
    warnings.simplefilter("ignore")


def limit(what: int, most: int) -> None:
    """Lower a limit for good; a system that has no such limit goes without."""
    try:
        resource.setrlimit(what, (most, most))
    except (ValueError, OSError):
        pass


def virtual_bytes() -> int:
    """Address space in use: libraries have mapped much more than they need."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[0]) * resource.getpagesize()
    except OSError:
        return 8 * 2**30


def outcomes(job: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """By seed, what the learner's function gives on each case. The toy data is made before their code runs."""
    entry = exercise(job["exercise"])
    cases = {seed: entry.cases(seed) for seed in job["seeds"]}
    others = {e.name: e.reference for e in of_notebook(entry.notebook) if e is not entry and e.reference is not None}
    names: dict[str, Any] = {"torch": torch, "math": math, "Tensor": torch.Tensor, "__name__": "__main__", **others}
    try:
        exec(compile(job["source"], "<exercise>", "exec"), names)
        function = names[entry.name]
    except Exception as error:
        advice = ALONE if isinstance(error, NameError) else ""
        failed = Outcome(error=sentence(error) + advice).plain()
        return {str(seed): [failed] * len(found) for seed, found in cases.items()}
    return {str(seed): [call(entry, function, case).plain() for case in found] for seed, found in cases.items()}
