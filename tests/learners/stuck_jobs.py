"""Ranks that fail in one way or another: ``stuck_jobs.py WAY DIR``, which `test_watchdog.py` starts twice."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from ppo_lab import checkpoint
from ppo_lab.learners import collectives, processes
from ppo_lab.learners.plain import evaluating
from ppo_lab.learners.states import Made, finish
from ppo_lab.learners.watchdog import Watchdog, watched

LAYER = torch.nn.Linear(2, 2)


def main(way: str, folder: Path) -> None:
    processes.join("ddp")
    rank = collectives.rank()
    dog = Watchdog.start(patience=4.0, hint="resume with --resume")
    assert dog is not None
    LAYER(torch.zeros(2))  # the first forward pass
    collectives.total(1)
    print("joined", flush=True)
    with watched():
        if way == "once":  # rank 0 works for longer than anybody's patience
            assert collectives.once(lambda: working(7.0)) == "worked"
        elif way == "busy":  # a reward of rank 1 takes long, outside its main thread
            with collectives.standing("a reward", busy=True):
                time.sleep(7.0 * rank)
        elif way == "late":  # rank 1 needs longer than patience: for its layers, then for what is no part of a run
            with evaluating(LAYER):
                working(7.0 * rank, layers=True)
            collectives.total(1)
            working(7.0 * rank)
        elif way == "reward":
            collectives.everywhere(lambda: ask(for_ever if rank else at_once, limit=4.0))
        elif way == "killed":
            save(folder, rank)
        elif rank == 1:
            fail(way)
        for _ in range(3):
            collectives.total(1)
    dog.close()
    processes.leave()
    print("all well", flush=True)


def working(seconds: float, *, layers: bool = False) -> str:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(10000))
        if layers:
            LAYER(torch.zeros(2))
    return "worked"


def ask(reward: Callable[..., list[float]], *, limit: float | None) -> torch.Tensor:
    from ppo_lab.rlhf.score import call

    return call("mine", reward, ["p"], ["r"], {}, 4, limit)


def at_once(prompts: Sequence[str], responses: Sequence[str]) -> list[float]:
    return [1.0] * len(responses)


def for_ever(prompts: Sequence[str], responses: Sequence[str]) -> list[float]:
    while True:  # in several places, of which every sample meets another
        for _ in range(random.randrange(10**6)):
            pass
        for _ in range(random.randrange(10**6)):
            pass
        sum(range(random.randrange(10**6)))


def save(folder: Path, rank: int) -> None:
    """One checkpoint, and another one in the middle of which rank 1 is killed."""
    for step in (1, 2):
        asked: list[str] = []

        def make(name: str, step: int = step, asked: list[str] = asked) -> torch.Tensor:
            asked.append(name)
            if rank == 1 and (step, len(asked)) == (2, 3):
                os.kill(os.getpid(), signal.SIGKILL)
            return collectives.first_sum(torch.full((1000,), float(step) * (rank == 0)))

        state = Made({str(i): torch.empty(1000, device="meta") for i in range(6)}, make)
        if rank == 0:
            checkpoint.save(folder, step, state, {}, keep=2)
        finish(state)


def fail(way: str) -> None:
    """What rank 1 does, while rank 0 waits in `total`."""
    if way == "raises":
        raise KeyError("nobody knows this word")
    if way == "loops":  # in the main thread
        ask(for_ever, limit=None)
    if way == "sleeps":
        time.sleep(100)
    if way == "fewer":  # as ranks that stop at different lengths: it asks once less, and goes on to something else
        collectives.total(1)
        collectives.total(1)
        collectives.gather(torch.zeros(1))
        time.sleep(100)
    if way == "leaves":
        sys.exit(0)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
