"""The process that children are forked from: it has imported everything and never runs a learner's line itself.

Reads ``{"jobs": n, "work": {name: job}}`` from standard input and writes a line of JSON when a job begins and when it
ends. It computes no gradient before forking (autograd refuses to work in a child of a process that did).
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import torch

from ppo_lab.course.grade.child import answer_and_leave

MOST_BYTES = 20_000_000  # an answer longer than this is no answer


@dataclass
class Child:
    """A job at work."""

    name: str
    pid: int
    pipe: int
    deadline: float
    seconds: float
    chunks: list[bytes] = field(default_factory=list)


def begin(name: str, job: dict[str, Any]) -> Child:
    """Fork a child for the job."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(ours)
        answer_and_leave(theirs, job)
    os.close(theirs)
    return Child(name, pid, ours, time.monotonic() + job["seconds"], job["seconds"])


def finish(child: Child, *, late: bool) -> dict[str, Any]:
    """Reap the child, whatever is left of it, and say what it gave."""
    for kill in (os.killpg, os.kill):
        try:
            kill(child.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
    _, status = os.waitpid(child.pid, 0)
    os.close(child.pipe)
    if late:
        return {"name": child.name, "trouble": f"still running after {child.seconds:g} s; is there an endless loop?"}
    try:
        return {"name": child.name, "outcomes": json.loads(b"".join(child.chunks))}
    except ValueError:
        if os.WIFEXITED(status):
            how = f"it ended the process (exit code {os.WEXITSTATUS(status)})"
        else:
            how = f"the process was killed (signal {os.WTERMSIG(status)})"
        return {"name": child.name, "trouble": f"{how} and gave no answer"}


def say(message: dict[str, Any]) -> None:
    """One line to whoever started the server."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Work through the jobs, a few at a time."""
    torch.set_num_threads(1)
    request = json.loads(sys.stdin.read())
    waiting = deque(request["work"].items())
    selector = selectors.DefaultSelector()
    while waiting or selector.get_map():
        while waiting and len(selector.get_map()) < request["jobs"]:
            name, job = waiting.popleft()
            say({"name": name, "began": True})
            child = begin(name, job)
            selector.register(child.pipe, selectors.EVENT_READ, child)
        working: list[Child] = [key.data for key in selector.get_map().values()]
        pause = max(0.0, min(child.deadline for child in working) - time.monotonic())
        for key, _ in selector.select(pause):
            child = key.data
            chunk = os.read(child.pipe, 1 << 16)
            child.chunks.append(chunk)
            if not chunk or sum(map(len, child.chunks)) > MOST_BYTES:
                selector.unregister(child.pipe)
                say(finish(child, late=False))
                working.remove(child)
        for child in working:
            if time.monotonic() >= child.deadline:
                selector.unregister(child.pipe)
                say(finish(child, late=True))


if __name__ == "__main__":
    main()
