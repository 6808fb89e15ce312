"""A checkpoint of shards is written and read a tensor at a time: memory, bytes, and a disk that fills up on the way."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from learners.gloo import TESTS
from learners.modules import plain
from learners.streaming_jobs import LAYERS, WIDTH, Deep
from safetensors.torch import save_file

from ppo_lab import checkpoint
from ppo_lab.learners import tensorfile
from ppo_lab.learners.states import Made, Stored, finish, order, part
from ppo_lab.scale.launch import launch

LARGEST = 4 * WIDTH * WIDTH  # bytes of a layer
WHOLE = 3 * LAYERS * LARGEST  # weights and two moments


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plain checkpoint with random moments, and what two ranks made of it at stages 1 and 3."""
    folder = tmp_path_factory.mktemp("streaming")
    learner = plain(Deep(seed=0))
    state = learner.state()
    draw = torch.Generator().manual_seed(0)
    for name in state:
        if name.startswith("exp_avg"):
            state[name] = torch.randn(state[name].shape, generator=draw).abs_()
            state[name].view(-1)[-1] = -0.0  # a sum of shards would make it 0.0
        if name.startswith("step"):
            state[name] = torch.tensor(7.0)
    checkpoint.save(folder / "given", 3, state, {}, keep=1)
    launch([str(TESTS / "learners" / "streaming_jobs.py"), str(folder)], timeout=120, show=None,
           environment={"PYTHONPATH": f"{TESTS.parent}:{TESTS}", "MALLOC_MMAP_THRESHOLD_": "1000000"})  # fmt: skip
    return folder  # the setting: glibc gives freed tensors back, so that the peak is of living ones


def figures(two: Path, stage: int) -> list[dict[str, Any]]:
    return [json.loads((two / f"{stage}.{rank}.json").read_text()) for rank in range(2)]


def weights(run: Path, step: int) -> Path:
    return run / "checkpoints" / f"{step:06d}" / "weights.safetensors"


STAGES = pytest.mark.parametrize("stage", [1, 3])


@pytest.mark.distributed
@STAGES
def test_shards_write_the_bytes_that_one_process_wrote(two: Path, stage: int) -> None:
    plain_bytes = weights(two / "given", 3).read_bytes()
    assert weights(two / f"stage{stage}", 3).read_bytes() == plain_bytes and len(plain_bytes) > WHOLE


@pytest.mark.distributed
@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")
@STAGES
def test_saving_takes_a_few_tensors_of_memory_and_not_the_whole_state(two: Path, stage: int) -> None:
    first, second = figures(two, stage)
    assert first["growth"] < 4 * LARGEST and second["growth"] < 4 * LARGEST, (first, second, LARGEST)
    assert first["whole"] > WHOLE and second["whole"] < 4 * LARGEST, "the measurement sees a state that is kept"


@pytest.mark.distributed
@STAGES
def test_loading_reads_no_more_than_the_own_shard(two: Path, stage: int) -> None:
    for rank in figures(two, stage):
        assert rank["read"] <= 0.51 * WHOLE / 4, rank["read"]
    assert sum(rank["read"] for rank in figures(two, stage)) >= WHOLE / 4


@pytest.mark.distributed
@STAGES
def test_a_disk_that_fills_up_is_told_to_all_and_leaves_the_last_checkpoint_whole(two: Path, stage: int) -> None:
    for rank in figures(two, stage):
        assert rank["said"].startswith("rank 0: CheckpointError: ") and "File too large" in rank["said"]
        assert rank["steps"] == [3] and rank["equal"]
    assert sorted(p.name for p in (two / f"stage{stage}" / "checkpoints").iterdir()) == ["000003", "000005"]
    assert checkpoint.load(weights(two / f"stage{stage}", 3).parent)[1] == {"step": 3, "best": None}


# --- in one process ------------------------------------------------------------------------------------------------


KINDS = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2,
         torch.int64, torch.int32, torch.int16, torch.int8, torch.uint64, torch.uint32, torch.uint16, torch.uint8,
         torch.bool, torch.complex64)  # fmt: skip


def test_the_file_is_the_one_of_safetensors(tmp_path: Path) -> None:
    draw = torch.Generator().manual_seed(0)
    tensors = {}
    for i, dtype in enumerate(KINDS):
        for name in (f"{'ba'[i % 2]}.{i}", f"ü\"{i}\n", f"Z{i}"):
            tensors[name] = (9 * torch.rand(2, 3, generator=draw)).to(dtype)
    tensors |= {"scalar": torch.tensor(7), "strided": torch.rand(4, 3, generator=draw).t()}
    digest = tensorfile.write(tmp_path / "ours", tensors)
    save_file({name: x.contiguous() for name, x in tensors.items()}, tmp_path / "theirs")
    ours = (tmp_path / "ours").read_bytes()
    assert ours == (tmp_path / "theirs").read_bytes() and tensorfile.hashlib.sha256(ours).hexdigest() == digest


def test_every_part_of_a_stored_tensor(tmp_path: Path) -> None:
    shapes: list[tuple[int, ...]] = [(), (7,), (4, 3), (2, 3, 5), (1, 1), (3, 1, 2)]
    tensors = {str(i): torch.rand(shape) for i, shape in enumerate(shapes)}
    tensorfile.write(tmp_path / "file", tensors)
    stored = Stored(tmp_path / "file")
    assert list(stored) == order(tensors) and len(stored) == 6 and "0" in stored and "9" not in stored
    for name, x in tensors.items():
        assert torch.equal(stored[name], x)
        for start in range(x.numel() + 2):
            for stop in range(start, x.numel() + 3):
                assert torch.equal(part(stored, name, start, stop), x.reshape(-1)[start:stop]), (name, start, stop)
                assert torch.equal(part(tensors, name, start, stop), x.reshape(-1)[start:stop])
    with pytest.raises(KeyError):
        stored["9"]


def test_a_made_state_is_asked_once_in_order_and_finished_by_whoever_leaves(tmp_path: Path) -> None:
    tensors = {"b": torch.rand(2), "a": torch.rand(3), "n": torch.tensor(1)}
    asked: list[str] = []

    def make(name: str) -> torch.Tensor:
        asked.append(name)
        return tensors[name]

    tensorfile.write(tmp_path / "file", made := Made({k: x.to("meta") for k, x in tensors.items()}, make))
    finish(made)
    assert asked == ["n", "a", "b"] and "a" in made and "c" not in made and len(made) == 3
    asked.clear()
    other = Made(made.outline, make)
    assert other["n"] is tensors["n"]
    finish(other)
    assert asked == ["n", "a", "b"]
    with pytest.raises(KeyError):
        other["c"]
    wrong = Made({"a": torch.empty(3, device="meta")}, lambda _: torch.empty(2))
    with pytest.raises(ValueError, match=r"a must be torch.float32 \(3,\) as was announced, got torch.float32 \(2,\)"):
        tensorfile.write(tmp_path / "wrong", wrong)
