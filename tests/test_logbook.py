"""The run's folder: what may be started or resumed in it, a full disk, errors that leave a checkpoint, trackers."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from ppo_lab import checkpoint, metrics
from ppo_lab.config import ConfigError, RLHFConfig, build
from ppo_lab.logbook import Logbook, LogError, begun

CONFIG = build(RLHFConfig, {})


def book(folder, *, resume=False, config=CONFIG, trackers=()):
    return Logbook.open(folder, config, resume=resume, keep=2, trackers=trackers)


def save(it, step):
    it.save(step, {"w": torch.full((2,), float(step))}, {"beta": 0.1})



def test_a_start_that_failed_may_be_tried_again(tmp_path: Path) -> None:
    """Only config.yaml is there: nothing can be lost. A line of metrics, or models that were trained, are a run."""
    (tmp_path / "config.yaml").write_text("name: x\n", encoding="utf-8")
    assert not begun(tmp_path)
    for name in ("models", "checkpoints"):
        (tmp_path / name).mkdir()
        assert begun(tmp_path)
        (tmp_path / name).rmdir()
    (tmp_path / "metrics.jsonl").touch()
    assert begun(tmp_path)


def test_resume_cuts_the_logs_back_to_the_checkpoint_and_drops_a_torn_line(tmp_path):
    it = book(tmp_path / "run")
    it.note_baseline({"eval_score": 0.5})
    it.samples(0, [{"prompt": "a", "response": "b"}])
    for step in (1, 2, 3):
        it.log({"step": step, "kl": float("inf")})
        it.samples(step, [{"prompt": "a", "response": str(step)}])
        it.note_best(step, float(step))
        if step == 2:
            save(it, 2)
    with open(tmp_path / "run" / "metrics.jsonl", "a") as file:
        file.write('{"step": 4, "k')
    again = book(tmp_path / "run", resume=True)
    tensors, state = again.resume_from()
    assert (tensors["w"].tolist(), state["step"], state["beta"]) == ([2.0, 2.0], 2, 0.1)
    assert [row["step"] for row in metrics.read(tmp_path / "run" / "metrics.jsonl")] == [1, 2]
    assert [row["step"] for row in metrics.read(tmp_path / "run" / "samples.jsonl")] == [0, 1, 2]
    assert json.loads((tmp_path / "run" / "best.json").read_text()) == {"step": 2, "eval_objective": 2.0} == again.best


def test_resume_before_the_first_checkpoint_starts_anew(tmp_path):
    it = book(tmp_path / "run")
    it.note_baseline({"eval_score": 0.5})
    it.samples(0, [{"prompt": "a", "response": "b"}])
    it.log({"step": 1})
    it.note_best(1, 1.0)
    again = book(tmp_path / "run", resume=True)
    assert again.resume_from() is None and again.best is None
    assert metrics.read(tmp_path / "run" / "metrics.jsonl") == metrics.read(tmp_path / "run" / "samples.jsonl") == []
    assert not (tmp_path / "run" / "baseline.json").exists() and not (tmp_path / "run" / "best.json").exists()


def test_the_best_checkpoint_stays_and_nan_is_never_best(tmp_path):
    it = book(tmp_path / "run")
    assert not it.note_best(0, float("nan")) and it.best is None  # or nothing would ever be better
    assert it.note_best(1, 5.0)
    save(it, 1)
    for step, objective in [(2, 4.0), (3, float("nan")), (4, 5.0)]:
        assert not it.note_best(step, objective)
        save(it, step)
    assert checkpoint.steps(tmp_path / "run") == [1, 3, 4]


def test_a_corrupt_checkpoint_is_refused_with_the_way_back(tmp_path):
    it = book(tmp_path / "run")
    save(it, 1)
    save(it, 2)
    weights = tmp_path / "run" / "checkpoints" / "000002" / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x07")
    it.log({"step": 1})
    with pytest.raises(checkpoint.CheckpointError, match=r"weights.safetensors .*000002"):
        book(tmp_path / "run", resume=True).resume_from()
    assert len(metrics.read(tmp_path / "run" / "metrics.jsonl")) == 1, "nothing was cut"


class Failing:
    def __init__(self, saves):
        self.saves = saves

    def save(self):
        if self.saves is not None:
            raise self.saves


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt])
def test_an_error_between_updates_leaves_a_checkpoint_and_is_never_masked(tmp_path, kind):
    it = book(tmp_path / "run")
    for saves, note in [(None, "resume with --resume"), (OSError("disk full"), "could be written: disk full")]:
        with pytest.raises(kind, match="the cause") as caught, it.saving_on_error(Failing(saves)):
            raise kind("the cause")
        assert note in caught.value.__notes__[0]


def test_a_full_disk_names_file_and_fix_and_keeps_what_was_written(tmp_path, monkeypatch):
    it = book(tmp_path / "run")
    it.log({"step": 1})

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(metrics, "write_line", full)
    with pytest.raises(LogError, match="metrics.jsonl must be writable, got No space left on device; free some disk"):
        it.log({"step": 2})
    assert [row["step"] for row in metrics.read(tmp_path / "run" / "metrics.jsonl")] == [1]


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="folder must be writable"):
        book(tmp_path / "file" / "run")


def test_trackers_of_accelerate_get_the_numbers(tmp_path):
    it = book(tmp_path / "run", trackers=("tensorboard",))
    for step in (1, 2):
        it.log({"step": step, "score_mean": 0.5 * step, "log_ratio_histogram": [1, 2]})
    it.close()
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "run" / "tracker"))
    events.Reload()
    assert [(e.step, e.value) for e in events.Scalars("score_mean")] == [(1, 0.5), (2, 1.0)]
    with pytest.raises(ConfigError, match="log.trackers must be among .*tensorboard.*, got 'tensorbord'"):
        book(tmp_path / "other", trackers=("tensorbord",))


def test_settings_that_change_no_number_may_change_on_resume(tmp_path):
    book(tmp_path / "run")
    allowed = build(RLHFConfig, {"reward_model": {"allow_weak_reward_model": True}, "checkpoint": {"keep": 5}})
    book(tmp_path / "run", resume=True, config=allowed)
    assert "allow_weak_reward_model: true" in (tmp_path / "run" / "config.yaml").read_text()
    other = build(RLHFConfig, {"reward_model": {"pairs": 7}, "ppo": {"epochs": 1}})
    with pytest.raises(ConfigError, match=r"ppo.epochs must be 4 as in .* \(also different: reward_model.pairs\)"):
        book(tmp_path / "run", resume=True, config=other)


def test_two_processes_do_not_train_in_one_folder(tmp_path: Path) -> None:
    """Refused by name while the other one lives; free again when it has ended, also without a word."""
    held = f"from pathlib import Path; from ppo_lab.logbook import hold; hold(Path({str(tmp_path)!r})); "
    other = subprocess.Popen([sys.executable, "-c", held + "print('held', flush=True); input()"], text=True,
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # fmt: skip
    assert other.stdout is not None and other.stdout.readline() == "held\n"
    with pytest.raises(ConfigError, match="one process at a time, got .* another one trains"):
        book(tmp_path)
    other.kill()
    other.wait()
    it = book(tmp_path)
    book(tmp_path)  # the same process may look again: what it writes, it knows of
    late = subprocess.run([sys.executable, "-c", held], capture_output=True, text=True)
    assert late.returncode and "one process at a time" in late.stderr
    it.close()
    assert subprocess.run([sys.executable, "-c", held], capture_output=True).returncode == 0
