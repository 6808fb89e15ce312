"""Ranks that fail in one way or another: ``stuck_jobs.py WAY``, started by `test_watchdog.py` with two processes."""

from __future__ import annotations

import os
import signal
import sys
import time

from ppo_lab.learners import collectives, processes
from ppo_lab.learners.watchdog import Watchdog, watched


def main(way: str) -> None:
    processes.join("ddp")
    rank = collectives.rank()
    dog = Watchdog.start(patience=4.0, hint="resume with --resume")
    assert dog is not None
    collectives.total(1)
    print("joined", flush=True)
    with watched():
        if way == "once":  # rank 0 works for longer than anybody's patience
            assert collectives.once(lambda: working(7.0)) == "worked"
        elif way == "busy":  # a reward of rank 1 takes long, outside its main thread
            with collectives.standing("a reward", busy=True):
                time.sleep(7.0 * rank)
        elif rank == 1:
            fail(way)
        for _ in range(3):
            collectives.total(1)
    dog.close()
    processes.leave()
    print("all well", flush=True)


def working(seconds: float) -> str:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(10000))
    return "worked"


def fail(way: str) -> None:
    """What rank 1 does, while rank 0 waits in `total`."""
    if way == "raises":
        raise KeyError("nobody knows this word")
    if way == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if way == "sleeps":
        time.sleep(100)
    if way == "fewer":  # as ranks that stop at different lengths: it asks once less, and goes on to something else
        collectives.total(1)
        collectives.total(1)
        collectives.gather(__import__("torch").zeros(1))
        time.sleep(100)
    if way == "leaves":
        sys.exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
