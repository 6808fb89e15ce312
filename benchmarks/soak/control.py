"""Three tasks of classic control, from nothing, on many seeds: do the shipped configs keep what they promise?

    python benchmarks/soak/control.py [--task cartpole] [--seeds 10] [--first 0] [--out FILE]

Claims, greedy policy on fresh environments, one torch thread:

* cartpole: two evaluations in a row of at least 475 (20 episodes, every 2,048 environment steps), and the last policy
  too; the CPU-seconds to the second of the two are the figure that matters
* pendulum: at least -200 at the end (mean of 100 episodes), within 200,000 steps; the shipped config makes do with
  64,000, which is not enough on every seed, so it gets 128,000 here
* acrobot: at least -95 at the end (mean of 100 episodes), within 150,000 steps

CPU-seconds are those of the process, without imports, construction and evaluations. Exit status 1 if a seed misses.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ppo_lab.config import ControlConfig, load_config
from ppo_lab.control import Run


@dataclass(frozen=True)
class Task:
    """A config and what it promises."""

    config: str
    goal: float
    episodes: int  # of the last look
    budget: int  # environment steps
    look_every: int | None = None  # environment steps between looks of 20 episodes; two in a row must reach the goal


TASKS = {
    "cartpole": Task("control/cartpole", 475.0, 20, 100_000, look_every=2048),
    "pendulum": Task("control/pendulum", -200.0, 100, 200_000),
    "acrobot": Task("control/acrobot", -95.0, 100, 150_000),
}
QUIET = ("evaluation.every=1000000", "checkpoint.every=1000000")  # looks are ours, and the environments run on


def one_seed(task: Task, seed: int, folder: Path, overrides: list[str]) -> dict[str, Any]:
    """Train from nothing, look on the way where the task says so, judge the last policy."""
    shutil.rmtree(folder, ignore_errors=True)
    config = load_config(task.config, [*QUIET, f"seed={seed}", *overrides], world=ControlConfig)
    run = Run(config, folder=folder)
    (folder / "baseline.json").write_text("{}")  # no evaluation before the first step
    looks: list[float] = []
    solved: dict[str, Any] | None = None
    cpu, due, start = 0.0, task.look_every or config.total_steps + 1, time.process_time()
    for step in run:
        cpu += time.process_time() - start
        if step.env_steps >= due:
            due += task.look_every or 0
            looks.append(float(run.evaluate(episodes=20, name=step.step).mean()))
            if solved is None and len(looks) > 1 and min(looks[-2:]) >= task.goal:
                solved = {"env_steps": step.env_steps, "cpu_seconds": round(cpu, 3)}
        start = time.process_time()
    last = run.evaluate(episodes=task.episodes, name="last")
    run.close()
    return {
        "seed": seed, "env_steps": run.step * config.rows, "last": float(last.mean()), "last_worst": float(last.min()),
        "solved": solved, "cpu_seconds": round(cpu, 3), "looks": [round(look, 1) for look in looks],
    }  # fmt: skip


def holds(task: Task, row: dict[str, Any]) -> bool:
    """The claim, for one seed."""
    in_a_row = task.look_every is None or row["solved"] is not None
    return in_a_row and row["last"] >= task.goal and row["env_steps"] <= task.budget


def say(name: str, row: dict[str, Any], good: bool) -> None:
    """One line a seed."""
    solved = row["solved"]
    reached = f"  twice in a row after {solved['env_steps']} steps, {solved['cpu_seconds']:.2f} CPU-s" if solved else ""
    print(f"{name} seed {row['seed']}: last {row['last']:.1f} (worst {row['last_worst']:.1f}) after {row['env_steps']} "
          f"steps, {row['cpu_seconds']:.1f} CPU-s{reached}{'' if good else '  MISSED'}", flush=True)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=TASKS, action="append", help="one of them; left out: all")
    parser.add_argument("--seeds", type=int, help="left out: 10 for cartpole, 5 for the others")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--folder", type=Path, default=Path("runs/soak_control"))
    parser.add_argument("--out", type=Path, help="write the figures here as JSON")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    options = parser.parse_args()
    figures: dict[str, Any] = {}
    missed = 0
    for name in options.task or TASKS:
        task, rows = TASKS[name], []
        for seed in range(options.first, options.first + (options.seeds or (10 if name == "cartpole" else 5))):
            row = one_seed(task, seed, options.folder / f"{name}_{seed}", options.overrides)
            rows.append(row)
            good = holds(task, row)
            missed += not good
            say(name, row, good)
        figures[name] = rows
    if options.out is not None:
        words = ["python benchmarks/soak/control.py", *(f"--task {name}" for name in options.task or ())]
        words += [f"--first {options.first}"] * (options.first > 0) + [f"--seeds {options.seeds}"] * bool(options.seeds)
        options.out.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"command": " ".join([*words, *options.overrides]), **figures}, indent=1)
        options.out.write_text(text + "\n")
    return min(missed, 1)


if __name__ == "__main__":
    sys.exit(main())
