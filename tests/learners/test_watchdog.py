"""A rank that raises, dies, sleeps or asks once too little: the others end with a named error, and soon."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from learners.gloo import TESTS

from ppo_lab.learners.watchdog import Report, verdict
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


def test_what_is_wrong_is_named():
    still = Report(still=46, where="gather")
    assert judge(r0=still, r1=still) == "no rank has moved for 45 s: rank 0 in gather, rank 1 in gather"
    assert judge(r0=Report(still=99, waits=True), r1=still) == "no rank has moved for 45 s: rank 1 in gather"
    assert judge(r0=still, r1=Report(end="done")) == "no rank has moved for 45 s: rank 0 in gather; rank 1 has ended"
    assert judge(r1=Report(end="KeyError: 'x'")) == "rank 1 raised KeyError: 'x'"
    assert judge(r1=Report(end="KeyError: 'x'"), me=1) is None
    died = judge(silent={1: 21}, r1=Report(where="step"))
    assert died == "rank 1 has died or was cut off: no sign of life for 20 s, last in step"


def start(way: str) -> list[subprocess.Popen[str]]:
    """Two ranks, and nobody who ends one when the other fails."""
    port = str(free_port())
    shared = os.environ | {"PYTHONPATH": f"{TESTS.parent}:{TESTS}", "OMP_NUM_THREADS": "1", "MASTER_PORT": port,
                           "MASTER_ADDR": "127.0.0.1", "WORLD_SIZE": "2"}  # fmt: skip
    script = str(TESTS / "learners" / "stuck_jobs.py")
    return [
        subprocess.Popen([sys.executable, script, way], env=shared | {"RANK": str(r), "LOCAL_RANK": str(r)},
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for r in range(2)
    ]  # fmt: skip


NAMED = {
    "raises": "rank 1 raised KeyError: 'nobody knows this word'",
    "killed": "rank 1 has died or was cut off",
    "sleeps": "rank 1 in stuck_jobs.py",
    "fewer": "no rank has moved for 4 s",
    "leaves": "rank 1",
}
MEANT = ("once", "busy")


@pytest.fixture(scope="module")
def ended() -> Iterator[dict[str, list[subprocess.Popen[str]]]]:
    """Every way at once: most of them wait. Rank 0 of each has ended by itself, within a minute."""
    started = {way: start(way) for way in (*NAMED, *MEANT)}
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
    assert ended[way][0].returncode == 1 and NAMED[way] in output and "resume with --resume" in output, output


@pytest.mark.distributed
@pytest.mark.parametrize("way", MEANT)
def test_standing_still_that_is_meant_is_let_be(ended: dict[str, list[subprocess.Popen[str]]], way: str) -> None:
    outputs = [process.communicate(timeout=30)[0] for process in ended[way]]
    assert [process.returncode for process in ended[way]] == [0, 0], outputs
    assert all("all well" in output for output in outputs)
