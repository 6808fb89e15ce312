"""What two ranks do in `test_streaming.py`: load a checkpoint into shards, and write it again, tensor by tensor.

    streaming_jobs.py FOLDER       FOLDER/given holds the checkpoint; figures go to FOLDER/STAGE.RANK.json
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from learners.modules import RATES, two_groups
from torch import Tensor, nn

from ppo_lab import checkpoint
from ppo_lab.config.scale import LearnerConfig
from ppo_lab.learners import collectives, processes
from ppo_lab.learners.collectives import SharedError
from ppo_lab.learners.states import Stored
from ppo_lab.logbook import Logbook

WIDTH, LAYERS = 1024, 12  # 12.6 million weights of 4 bytes, and two moments each


class Deep(nn.Module):
    """Many layers of one size; one of an odd size, which two ranks cannot share evenly, a single number, a buffer."""

    def __init__(self, *, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))
        self.odd, self.scale = nn.Linear(3, 5), nn.Parameter(torch.rand(1))
        self.value = nn.Linear(WIDTH, 1)
        self.register_buffer("seen", torch.rand(3, dtype=torch.float64))

    def parameter_groups(self) -> dict[str, list[tuple[str, nn.Parameter]]]:
        return two_groups(self)


class Counting(Stored):
    """Counts the elements that are asked for."""

    count = 0

    def __getitem__(self, name: str) -> Tensor:
        self.count += self.outline[name].numel()
        return super().__getitem__(name)

    def part(self, name: str, start: int, stop: int) -> Tensor:
        found = super().part(name, start, stop)
        self.count += found.numel() if self.outline[name].shape else 0  # of a scalar by __getitem__
        return found


def growth(work: Callable[[], Any]) -> int:
    """Bytes by which this process is larger at its largest within ``work`` than before (Linux)."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak is now
    before = _status("VmRSS")
    work()
    return _status("VmHWM") - before


def _status(name: str) -> int:
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith(name))
    return 1024 * int(line.split()[1])


@contextmanager
def file_limit(size: int) -> Iterator[None]:
    """Files end at this size, as on a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def job(folder: Path, stage: int) -> dict[str, Any]:
    """Load, save, save on a disk that fills up, and go on."""
    from ppo_lab.learners.zero import ZeroLearner

    rank = collectives.rank()
    learner = ZeroLearner(Deep(seed=1), **RATES, cfg=LearnerConfig(kind="zero", stage=stage))
    given, _ = checkpoint.stored(folder / "given" / "checkpoints" / "000003")
    counting = Counting(folder / "given" / "checkpoints" / "000003" / "weights.safetensors")
    learner.load(counting)
    figures: dict[str, Any] = {"read": counting.count, "here": sum(m[0] for m in learner.held().values())}
    place = folder / f"stage{stage}"
    book = Logbook(place, keep=2)
    figures["growth"] = growth(lambda: book.save(3, learner.state(), {}))
    whole: dict[str, Tensor] = {}
    figures["whole"] = growth(lambda: whole.update(learner.state()))
    whole.clear()
    with file_limit(2 * WIDTH * WIDTH * 4 * LAYERS if rank == 0 else resource.RLIM_INFINITY):
        try:
            book.save(4, learner.state(), {})
        except SharedError as error:
            figures["said"] = str(error)
    figures["steps"] = checkpoint.steps(place)
    book.save(5, learner.state(), {})  # they are still in step
    again, _ = checkpoint.load(place / "checkpoints" / "000005")
    figures["equal"] = all(torch.equal(x, given[name]) for name, x in again.items())
    return figures


def main(folder: Path) -> None:
    processes.join("zero")
    for stage in (1, 3):
        figures = job(folder, stage)
        (folder / f"{stage}.{collectives.rank()}.json").write_text(json.dumps(figures))
    processes.leave()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
