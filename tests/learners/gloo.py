"""Starts a script as several real processes, each a rank of one gloo group."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import torch.distributed as dist

TESTS = Path(__file__).parents[1]


def run_ranks(script: Path, world: int, scratch: Path, *, timeout: float = 60.0) -> list[str]:
    """What each rank printed. Fails if one fails, or if they have not ended in time: a rank that waits is a bug."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(TESTS.parent), str(TESTS)]),
        "GLOO_SOCKET_IFNAME": "lo" if sys.platform == "linux" else "lo0",
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, str(script), str(scratch / "store"), str(world)]
    ranks = [
        subprocess.Popen([*command, str(r)], env=environment, stdout=-1, stderr=subprocess.STDOUT, text=True)
        for r in range(world)
    ]
    deadline = time.monotonic() + timeout
    try:
        outputs = [process.communicate(timeout=max(0.1, deadline - time.monotonic()))[0] for process in ranks]
    finally:
        for process in ranks:
            process.kill()
            process.wait()
    assert [process.returncode for process in ranks] == [0] * world, "\n".join(outputs)
    return outputs


def join() -> tuple[int, int]:
    """Called by the script: enter the group through a file, without ports. Rank and world."""
    store, world, rank = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    return rank, world
