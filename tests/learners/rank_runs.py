"""What every rank does in `test_whole_runs.py`: one launch, many runs, each named in the job file.

    rank_runs.py JOB.json      {"models": DIR, "out": DIR, "runs": {NAME: {"settings": {...}, "then": [...]}}}

``from``: a folder to resume. ``ready``: the settings name all models, so none is laid into the run's folder. ``then``:
"held" writes down what each rank holds, "resume" takes the last checkpoint away and goes there again in a new `Run`,
recorded as NAME_resumed. ``chunk``: logits held at a time.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from learners import whole_runs
from learners.whole_runs import keep, record, settings, start

from ppo_lab.config import RLHFConfig
from ppo_lab.learners import collectives, processes
from ppo_lab.learners.collectives import SharedError
from ppo_lab.rlhf import logprobs
from ppo_lab.rlhf.models import outline


def refuse(message: str, *details: Any) -> None:
    """At stage 3 no rank loads a whole model, of none of the runs."""
    raise AssertionError(message % details)


def main(job: dict[str, Any]) -> None:
    outline.log.warning = refuse  # type: ignore[method-assign, assignment]
    out, models = Path(job["out"]), Path(job["models"])
    usual = logprobs.CHUNK_LOGITS
    for name, todo in job["runs"].items():
        rank, config, then = _rank(), settings(**todo["settings"]), todo.get("then", ())
        if config.precision == "fp16":
            allow_fp16()
        logprobs.CHUNK_LOGITS = todo.get("chunk", usual)
        if "ready" not in todo:
            _copy(Path(todo.get("from", models.parent)), out / name)
        if "breaks" in todo:
            breaking(config, out, name)
        run = start(config, out / name, None, resume="from" in todo or "breaks" in todo)
        if "held" in then:
            (out / f"{name}.held.{rank}.json").write_text(json.dumps(run.learner.held()))  # type: ignore[attr-defined]
        keep(record(run), out / f"{name}.{rank}")
        if "resume" in then:
            again = out / f"{name}_resumed"
            _copy(out / name, again, without=f"checkpoints/{config.steps:06d}")
            keep(record(start(config, again, None, resume=True)), out / f"{name}_resumed.{rank}")
        _together()
        print(f"rank {rank}: {name} done", flush=True)


def breaking(config: RLHFConfig, out: Path, name: str) -> None:
    """``breaks``: a reward raises on rank 1 in the second step; what each rank said of it is kept in NAME.said.RANK."""
    if _rank() == 1:
        whole_runs.BREAKS_IN.append(5)  # asked of the references, twice in the first evaluation, in two steps
    try:
        record(start(config, out / name, None))
    except SharedError as error:
        (out / f"{name}.said.{_rank()}").write_text("\n".join([str(error), *error.__notes__]))
    whole_runs.BREAKS_IN.clear()


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
