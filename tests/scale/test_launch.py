"""Several processes from Python: what each printed, who failed and how, and that nobody is left behind."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from ppo_lab.scale.launch import LaunchError, last_words, launch

pytestmark = pytest.mark.distributed
HELLO = """
import os, sys
names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR")
print(*(os.environ[name] for name in names), sys.argv[1], flush=True)
"""
FAILS = """
import os, sys, time
rank = os.environ["RANK"]
print("pid", os.getpid(), flush=True)
time.sleep(0.5)
if rank == "1":
    WHAT
time.sleep(AFTER)
raise RuntimeError("Connection closed by peer")
"""


def script(tmp_path: Path, text: str) -> str:
    path = tmp_path / "job.py"
    path.write_text(text)
    return str(path)


def alive(output: str) -> bool:
    pid = int(output.split("pid ")[1].split()[0])
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_every_rank_knows_who_it_is_and_is_heard_as_it_speaks(tmp_path):
    heard: list[str] = []
    outputs = launch([script(tmp_path, HELLO), "word"], processes=3, show=heard.append, timeout=60)
    assert outputs == [f"{r} {r} 3 127.0.0.1 word\n" for r in range(3)]
    assert sorted(heard) == sorted(["0 0 3 127.0.0.1 word", *(f"[rank {r}] {r} {r} 3 127.0.0.1 word" for r in (1, 2))])
    assert launch(["-c", "print('alone')"], processes=1, show=None) == ["alone\n"]


@pytest.mark.parametrize("after", ["0.2", "100"])
def test_the_rank_to_blame_is_shown_with_its_own_traceback_within_seconds(tmp_path, after):
    """Whether the others fail in its wake or wait for it."""
    text = FAILS.replace("WHAT", 'raise KeyError("nobody knows this word")').replace("AFTER", after)
    begun = time.monotonic()
    with pytest.raises(LaunchError, match="rank 1 of 2 failed with exit status 1") as caught:
        launch([script(tmp_path, text)], processes=2, show=None)
    assert time.monotonic() - begun < 20
    error = caught.value
    assert (error.rank, error.code) == (1, 1)
    message = str(error)
    assert "Traceback" in message and message.endswith("KeyError: 'nobody knows this word'"), message
    assert "Connection closed" not in message
    assert not any(alive(output) for output in error.outputs)


def test_a_killed_rank_is_named_with_its_signal(tmp_path):
    text = FAILS.replace("WHAT", "os.kill(os.getpid(), 9)").replace("AFTER", "0.5")
    with pytest.raises(LaunchError, match="rank 1 of 2 was killed by SIGKILL") as caught:
        launch([script(tmp_path, text)], processes=2, show=None)
    assert (caught.value.rank, caught.value.code) == (1, -9)
    assert not any(alive(output) for output in caught.value.outputs)


def test_a_rank_that_ignores_being_asked_is_made_to_end(tmp_path):
    text = "import os, signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    text += "print('pid', os.getpid(), flush=True)\ntime.sleep(100)\n"
    with pytest.raises(LaunchError, match="rank 0 of 2 had not ended after") as caught:
        launch([script(tmp_path, text)], processes=2, show=None, timeout=3)
    assert caught.value.code is None and not any(alive(output) for output in caught.value.outputs)


def test_numbers_of_processes_are_checked_and_last_words_found():
    with pytest.raises(ValueError, match="processes must be at least 1, got 0"):
        launch(["-c", ""], processes=0)
    assert last_words("\n".join(map(str, range(100)))).splitlines()[0] == "60"
