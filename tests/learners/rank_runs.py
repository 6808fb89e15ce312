"""What every rank does in `test_whole_runs.py`: one launch, many runs, each named in the job file.

    rank_runs.py JOB.json      {"models": DIR, "out": DIR, "runs": {NAME: {"settings": {...}, "then": [...]}}}

``from``: a folder to resume. ``then``: "held" writes down what each rank holds, "resume" takes the last checkpoint away
and goes there again in a new `Run`, recorded as NAME_resumed. ``chunk``: logits held at a time.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from learners.whole_runs import keep, record, settings, start

from ppo_lab.learners import collectives, processes
from ppo_lab.rlhf import logprobs


def main(job: dict[str, Any]) -> None:
    out, models = Path(job["out"]), Path(job["models"])
    usual = logprobs.CHUNK_LOGITS
    for name, todo in job["runs"].items():
        rank, config, then = _rank(), settings(**todo["settings"]), todo.get("then", ())
        if config.precision == "fp16":
            allow_fp16()
        logprobs.CHUNK_LOGITS = todo.get("chunk", usual)
        _copy(Path(todo.get("from", models.parent)), out / name)
        run = start(config, out / name, None, resume="from" in todo)
        if "held" in then:
            (out / f"{name}.held.{rank}.json").write_text(json.dumps(run.learner.held()))  # type: ignore[attr-defined]
        keep(record(run), out / f"{name}.{rank}")
        if "resume" in then:
            again = out / f"{name}_resumed"
            _copy(out / name, again, without=f"checkpoints/{config.steps:06d}")
            keep(record(start(config, again, None, resume=True)), out / f"{name}_resumed.{rank}")
        _together()
        print(f"rank {rank}: {name} done", flush=True)


def _copy(source: Path, target: Path, *, without: str = "") -> None:
    """Rank 0 copies a folder, the others wait for it."""
    _together()
    if _rank() == 0:
        shutil.copytree(source, target, dirs_exist_ok=True)
        if without:
            shutil.rmtree(target / without)
    _together()


def allow_fp16() -> None:
    """DeepSpeed asks the CPU for fast fp16; torch computes in it all the same, slowly."""
    from ppo_lab.learners.zero.engine import import_deepspeed

    import_deepspeed()
    from deepspeed.accelerator import get_accelerator

    get_accelerator().is_fp16_supported = lambda: True  # type: ignore[method-assign]


def _rank() -> int:
    processes.join("ddp")
    return collectives.rank()


def _together() -> None:
    collectives.total(0)


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
    processes.leave()
