"""Notebook 17: one launch of several processes under ZeRO-3, with one phase after the other, told in one JSON file.

    python -m torch.distributed.run --standalone --nproc_per_node 2 -m ppo_lab.course.experiments.ranks FOLDER

Phases: what each rank holds; two steps; everything dropped and read back from the checkpoint, one step more; one step
with advantages whitened per rank; then rank 1 is killed, as a machine may be.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ppo_lab import faults, rlhf
from ppo_lab.config import RLHFConfig, load_config
from ppo_lab.learners import collectives, processes
from ppo_lab.records import StepMetrics
from ppo_lab.scale.launch import LaunchError, launch

STEPS = 4  # of the run in one process; two processes take three of them, one process the last
SMALL = ("steps=4", "sampling.prompts=33", "ppo.epochs=2", "ppo.minibatches=3", "ppo.micro_batch=4",
         "reward.references=32", "evaluation.prompts=8", "evaluation.every=4", "checkpoint.every=1")  # fmt: skip
NUMBERS = ("score_mean", "ref_kl_sum", "policy_loss", "value_loss", "policy_kl_k3", "advantage_std", "gradient_norm")
REPORT = "report.json"


def config(kind: str, *more: str) -> RLHFConfig:
    """The run of this notebook: 33 prompts, which two ranks cannot share evenly."""
    return load_config("rlhf/start", [f"learner.kind={kind}", *SMALL, *more], world=RLHFConfig)


def said(run: rlhf.Run, steps: int) -> list[dict[str, Any]]:
    """Take so many steps; of each its numbers, its seconds, and a few of its tokens."""
    found = []
    for step in run:
        assert run.last_rollout is not None
        tokens = run.last_rollout.responses.response.sum(-1).tolist()  # one number an answer: any other token shows
        found.append({**numbers(step), "tokens": tokens})
        if len(found) == steps:
            break
    return found


def numbers(step: StepMetrics) -> dict[str, Any]:
    """What is compared, and the seconds of the three phases."""
    row = step.row()
    seconds = ("seconds_rollout", "seconds_score", "seconds_update")
    return {name: row[name] for name in (*NUMBERS, *seconds)}


def furthest(mine: Sequence[dict[str, Any]], theirs: Sequence[dict[str, Any]]) -> float:
    """Largest difference of any number, as a share of 1 + its size."""
    pairs = [(a[name], b[name]) for a, b in zip(mine, theirs, strict=True) for name in NUMBERS]
    return max(abs(a - b) / (1 + abs(b)) for a, b in pairs)


def main(folder: Path) -> None:
    """All phases; every rank runs them, rank 0 writes the report after each."""
    processes.join("zero")
    report: dict[str, Any] = {"world": collectives.world()}
    started = time.perf_counter()

    def note(**found: Any) -> None:
        report.update(found)
        if collectives.rank() == 0:
            print(f"{time.perf_counter() - started:5.1f} s  {', '.join(found)}")
            (folder / REPORT).write_text(json.dumps(report), encoding="utf-8")

    run = rlhf.Run(config("zero"), folder=folder / "run")
    held = run.learner.held()  # type: ignore[attr-defined]
    everywhere = {name: int(collectives.total(mine)) for name, (mine, _) in held.items()}
    note(held={name: [mine, everywhere[name], whole] for name, (mine, whole) in held.items()})
    note(first=said(run, 2))
    del run
    run = rlhf.Run(config("zero"), folder=folder / "run", resume=True)
    note(resumed=said(run, 1))
    run.save()
    with faults.planted("whitened_per_rank"):
        note(whitened=said(rlhf.Run(config("zero"), folder=folder / "whitened"), 1))
    if collectives.rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


def together(folder: Path, world: int = 2) -> tuple[dict[str, Any], str]:
    """Launch it; the report, and the first line of how the launch ended (a rank is killed on purpose)."""
    command = ["-m", "ppo_lab.course.experiments.ranks", str(folder)]
    ended = "all ranks ended"
    try:
        launch(command, processes=world, timeout=300, show=None)
    except LaunchError as error:
        if error.code != -signal.SIGKILL:
            raise
        ended = str(error).splitlines()[0].split(" after ")[0]
    return json.loads((folder / REPORT).read_text(encoding="utf-8")), ended


if __name__ == "__main__":
    main(Path(sys.argv[1]))
