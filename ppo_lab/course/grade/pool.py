"""Jobs to a server and answers back. A server that dies of one of them is started again for the others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ppo_lab.paths import PACKAGE

STARTING = 60.0  # seconds a server may take to import the package on a busy machine


@dataclass(frozen=True, slots=True)
class Job:
    """One exercise cell to run."""

    exercise: str
    source: str
    seeds: tuple[int, ...]
    seconds: float
    memory_gb: float


@dataclass(frozen=True, slots=True)
class Answer:
    """Plain outcomes by seed, not to be trusted; or what went wrong."""

    outcomes: Mapping[str, Any] = field(default_factory=dict)
    trouble: str = ""


def run(work: Mapping[str, Job], *, jobs: int | None = None) -> dict[str, Answer]:
    """The answer of every job, by the job's name."""
    answers: dict[str, Answer] = {}
    waiting = dict(work)
    while waiting:
        started = serve(waiting, answers, jobs or max(1, len(os.sched_getaffinity(0))))
        suspects = {name: waiting[name] for name in started if name not in answers}
        waiting = {name: job for name, job in waiting.items() if name not in answers and name not in suspects}
        for name, job in suspects.items():  # the server died with these in its hands: one of them did it
            serve({name: job}, answers, 1)
            answers.setdefault(name, Answer(trouble="it ended the process that grades"))
        if waiting and not started:
            raise RuntimeError("the grading server cannot start; does `import ppo_lab` work?")
    return answers


def serve(work: Mapping[str, Job], answers: dict[str, Answer], jobs: int) -> list[str]:
    """One server's life: fill in ``answers``, and return the names of the jobs it began."""
    started: list[str] = []
    slowest = max(job.seconds for job in work.values())
    limit = STARTING + slowest * (len(work) / jobs + 1)
    request = json.dumps({"jobs": jobs, "work": {name: asdict(job) for name, job in work.items()}})
    path = os.pathsep.join([str(PACKAGE.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path, "PYTHONUTF8": "1"}
    command = [sys.executable, "-m", "ppo_lab.course.grade.server"]
    try:
        done = subprocess.run(command, input=request, capture_output=True, text=True, env=environment, timeout=limit)
        output = done.stdout
    except subprocess.TimeoutExpired as error:
        raw = error.stdout or b""
        output = raw.decode("utf-8", "replace") if isinstance(raw, bytes) else raw
    for line in output.splitlines():
        try:
            message = json.loads(line)
            name = message["name"]
        except (ValueError, KeyError, TypeError):
            continue  # a line torn by the server's end
        if "began" in message:
            started.append(name)
        else:
            answers[name] = Answer(message.get("outcomes") or {}, message.get("trouble", ""))
    return started
