"""A full disk, Ctrl-C and ``kill -9`` at any moment of a save: what was there stays there."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest
import torch
from checkpoint_runs import leftovers, same, weights, write
from torch import Tensor

from ppo_lab.checkpoint import CheckpointError, latest, load, save, steps


def assert_nothing_lost(run: Path) -> None:
    assert steps(run) == [1, 2] and leftovers(run) == []
    assert same(load(latest(run))[0], weights(2))  # type: ignore[arg-type]


def big() -> dict[str, Tensor]:
    return {"w": torch.zeros(500_000)}


@pytest.mark.parametrize("moment", range(4), ids=["weights", "state", "folder", "after the rename"])
def test_no_space_at_any_flush_leaves_earlier_checkpoints_alone(tmp_path: Path, monkeypatch, moment: int) -> None:
    write(tmp_path, 1, 2)
    flushed = iter(range(9))
    real = os.fsync

    def fsync(descriptor: int) -> None:
        if next(flushed) == moment:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    message = r"000003 could not be written: the disk is full \(needs 2.0 MB, .* MB free\); .* resume from .*000002"
    with pytest.raises(CheckpointError, match=message):
        save(tmp_path, 3, big(), {}, keep=2)
    monkeypatch.undo()
    assert leftovers(tmp_path) == [] and 2 in steps(tmp_path)
    assert same(load(tmp_path / "checkpoints" / "000002")[0], weights(2))
    if moment < 3:  # afterwards the third is complete under its name, only not yet surely on the disk
        assert_nothing_lost(tmp_path)
    save(tmp_path, 3, big(), {}, keep=2)
    assert steps(tmp_path) == [2, 3] and same(load(tmp_path / "checkpoints" / "000003")[0], big())


def test_a_file_size_limit_of_the_system(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    write(tmp_path, 1, 2)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(CheckpointError, match="could not be written: .*File too large.*make room or keep fewer"):
            save(tmp_path, 3, big(), {}, keep=2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert_nothing_lost(tmp_path)


def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    if shutil.which("mount") is None or os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", tmp_path], capture_output=True).returncode:
        pytest.skip("this system does not let root mount a small disk")
    try:
        write(tmp_path, 1, 2)
        with pytest.raises(CheckpointError, match=r"the disk is full \(needs 2.0 MB, 1.0 MB free\)"):
            save(tmp_path, 3, big(), {}, keep=2)
        assert_nothing_lost(tmp_path)
    finally:
        subprocess.run(["umount", tmp_path], check=True)


def test_ctrl_c_while_writing_cleans_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, 1, 2)

    def interrupt(descriptor: int) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        save(tmp_path, 3, big(), {}, keep=2)
    monkeypatch.undo()
    assert_nothing_lost(tmp_path)


SCRIPT = '''
import os, random, signal, sys, time
from pathlib import Path
import torch
from ppo_lab.checkpoint import latest, load, save, steps

torch.set_num_threads(1)
run, kills, again = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "again"
moments = random.Random(0)


def weights(step):
    return {"w": torch.full((300_000,), float(step)), "t": torch.tensor(step)}


def last():
    """The newest step, after checking that every byte of it belongs to it."""
    path = latest(run)
    if path is None:
        return 0
    tensors, state = load(path)
    assert state == {"step": int(tensors["t"])} and (tensors["w"] == state["step"]).all()
    return int(path.stem)


def work(step):
    while True:
        step += 0 if again and step else 1
        save(run, step, weights(step), {"step": step}, keep=2)


before, torn, advanced, killed = 0, 0, 0, 0
while killed < 10 * kills and (killed < kills or torn < 10 or (advanced < 5 and not again)):
    killed += 1
    child = os.fork()
    if not child:
        work(before)
    time.sleep(moments.uniform(0.0, 0.06 if killed <= kills else 0.3))  # a busy machine saves slowly
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    now = last()
    assert now >= before, (now, before)
    torn += any(not p.name.isdigit() for p in (run / "checkpoints").iterdir()) if before or now else 0
    advanced += now > before
    before = now
print(torn, advanced, before)
'''


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="kill -9 is a POSIX affair")
@pytest.mark.parametrize("mode", ["onward", "again"])
def test_killed_at_forty_random_moments_or_more(tmp_path: Path, mode: str) -> None:
    """One interpreter forks the savers that it kills, so that forty kills cost one start; ``again``: the same step.

    It goes on until ten kills came in the middle of a save, however slow the machine.
    """
    script = tmp_path / "savers.py"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), str(tmp_path / "run"), "40", mode]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    torn, advanced, last = map(int, done.stdout.split())
    assert torn >= 10, f"only {torn} kills came in the middle of a save"
    assert last >= 1 and (mode == "again" or advanced >= 5)
