"""A rank that raises, dies, sleeps or asks once too little: the others end with a named error, and soon."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from learners.gloo import TESTS

from ppo_lab import checkpoint
from ppo_lab.learners import watchdog
from ppo_lab.learners.watchdog import Report, Watchdog, verdict
from ppo_lab.scale.launch import free_port

CALM = {0: Report(beat=3), 1: Report(beat=3)}
HEARD = {0: 0.0, 1: 0.0}


def judge(me: int = 0, silent: dict[int, float] | None = None, **changes: Report) -> str | None:
    reports = CALM | {int(name[1:]): report for name, report in changes.items()}
    return verdict(reports, HEARD | (silent or {}), me=me, patience=45)


def test_nothing_is_wrong_while_one_rank_moves_or_is_excused():
    still, waits = Report(still=50), Report(still=50, waits=True)
    assert judge() is None
    assert judge(r0=still) is None, "rank 1 moves"
    assert judge(r0=waits) is None
    assert judge(r0=still, r1=Report(still=50, busy=True)) is None, "its reward works"
    assert judge(r0=waits, r1=waits) is None, "nobody is to move"
    assert judge(r0=Report(still=44), r1=still) is None
    assert judge(r1=Report(end="done"), silent={1: 100}) is None, "an end is no death"
    assert judge(silent={0: 100}) is None, "I hear myself"


def test_a_rank_that_runs_in_circles_is_named_where_another_waits():
    waits, circles = Report(still=46, idle=46, where="gather"), Report(still=1, idle=46, where="reward")
    named = "rank 1 in reward has called no layer for 45 s, an endless loop perhaps; waiting: rank 0 in gather"
    assert judge(r0=waits, r1=circles) == judge(me=1, r0=waits, r1=circles) == named
    assert judge(r0=Report(still=44, idle=44), r1=circles) is None, "nobody has waited long"
    assert judge(r0=circles, r1=circles) is None, "nobody waits"
    assert judge(r0=waits, r1=Report(still=1, idle=44)) is None
    assert judge(r0=Report(still=46, waits=True), r1=circles) is None, "it was asked to wait"
    assert judge(r0=waits, r1=Report(idle=46, busy=True)) is None


def test_a_closed_watchdog_is_out_of_the_store_and_has_the_last_word(monkeypatch: pytest.MonkeyPatch):
    """A thread that Python's end finds inside the store aborts a process that has ended well."""
    asked, said = threading.Event(), []

    class Slow:
        def set(self, name: str, value: str) -> None:
            if threading.current_thread().name == "watchdog":
                asked.set()
                time.sleep(0.3)
            said.append(json.loads(value)["end"])

    monkeypatch.setattr(watchdog, "_store", lambda rank, world: Slow())
    monkeypatch.setattr(watchdog, "BEAT", 0.01)
    dog = Watchdog(patience=45)
    dog.thread.start()
    assert asked.wait(10)
    dog.close()
    assert not dog.thread.is_alive() and said[-1] == "done"


def test_what_is_wrong_is_named():
    still = Report(still=46, where="gather")
    assert judge(r0=still, r1=still) == "no rank has moved for 45 s: rank 0 in gather, rank 1 in gather"
    assert judge(r0=Report(still=99, waits=True), r1=still) == "no rank has moved for 45 s: rank 1 in gather"
    assert judge(r0=still, r1=Report(end="done")) == "no rank has moved for 45 s: rank 0 in gather; rank 1 has ended"
    assert judge(r1=Report(end="KeyError: 'x'")) == "rank 1 raised KeyError: 'x'"
    assert judge(r1=Report(end="KeyError: 'x'"), me=1) is None
    died = judge(silent={1: 21}, r1=Report(where="step"))
    assert died == "rank 1 has died or was cut off: no sign of life for 20 s, last in step"


def start(way: str, folder: Path) -> list[subprocess.Popen[str]]:
    """Two ranks, and nobody who ends one when the other fails."""
    port = str(free_port())
    shared = os.environ | {"PYTHONPATH": f"{TESTS.parent}:{TESTS}", "OMP_NUM_THREADS": "1", "MASTER_PORT": port,
                           "MASTER_ADDR": "127.0.0.1", "WORLD_SIZE": "2"}  # fmt: skip
    script = str(TESTS / "learners" / "stuck_jobs.py")
    command = [sys.executable, script, way, str(folder / way)]
    return [
        subprocess.Popen(command, env=shared | {"RANK": str(r), "LOCAL_RANK": str(r)}, text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        for r in range(2)
    ]  # fmt: skip


NAMED = {
    "raises": "rank 1 raised KeyError: 'nobody knows this word'",
    "killed": "rank 1 has died or was cut off",
    "loops": "has called no layer for 4 s, an endless loop perhaps; waiting: rank 0 in",
    "reward": "rank 1: RewardError: reward mine must answer within reward.timeout = 4 s",
    "sleeps": "rank 1 in stuck_jobs.py",
    "fewer": "no rank has moved for 4 s",
    "leaves": "rank 1",
}
MEANT = ("once", "busy", "late")
BOTH = ("loops", "reward")  # the rank to blame ends by itself too


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stuck")


@pytest.fixture(scope="module")
def ended(folder: Path) -> Iterator[dict[str, list[subprocess.Popen[str]]]]:
    """Every way at once: most of them wait. Rank 0 of each has ended by itself, within a minute."""
    started = {way: start(way, folder) for way in (*NAMED, *MEANT)}
    try:
        assert all((ranks[0].stdout or sys.stdin).readline() == "joined\n" for ranks in started.values())
        begun = time.monotonic()
        for ranks in started.values():
            ranks[0].wait(timeout=max(1.0, 60 + begun - time.monotonic()))
        yield started
    finally:
        for process in (process for ranks in started.values() for process in ranks):
            process.kill()
            process.wait()


@pytest.mark.distributed
@pytest.mark.parametrize("way", NAMED)
def test_the_other_rank_ends_with_a_named_error(ended: dict[str, list[subprocess.Popen[str]]], way: str) -> None:
    output = ended[way][0].communicate()[0]
    assert ended[way][0].returncode == 1 and NAMED[way] in output, output
    assert "resume with --resume" in output or way == "reward", output
    if way in BOTH:
        other = ended[way][1].communicate(timeout=60)[0]
        assert ended[way][1].returncode == 1 and NAMED[way] in other, other


@pytest.mark.distributed
def test_a_rank_killed_while_all_save_leaves_the_last_checkpoint_whole(
    ended: dict[str, list[subprocess.Popen[str]]], folder: Path
) -> None:
    tensors, _ = checkpoint.load(folder / "killed" / "checkpoints" / "000001")
    assert checkpoint.steps(folder / "killed") == [1] and len(tensors) == 6
    assert all(bool((x == 1).all()) for x in tensors.values()) and ended["killed"][1].wait(30) == -9


@pytest.mark.distributed
@pytest.mark.parametrize("way", MEANT)
def test_standing_still_that_is_meant_is_let_be(ended: dict[str, list[subprocess.Popen[str]]], way: str) -> None:
    outputs = [process.communicate(timeout=30)[0] for process in ended[way]]
    assert [process.returncode for process in ended[way]] == [0, 0], outputs
    assert all("all well" in output for output in outputs)
