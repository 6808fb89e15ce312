"""CartPole-v1, side by side: CPU-seconds on one thread to the second of two evaluations in a row of at least 475.

    python benchmarks/cartpole.py --peers PYTHON [--seeds 10] [--out benchmarks/results/cartpole.json]

PYTHON is the interpreter of an environment with stable-baselines3 (see benchmarks/README.md). Contestants, each run in
its own process, one after the other, seed by seed, so that a busy moment of the machine hits all alike:

    ours                the shipped configs/control/cartpole.yaml
    sb3                 Stable-Baselines3 with the settings of rl-baselines3-zoo
    singlefile          PPO in one plain loop with CleanRL's settings
    singlefile-ours     that loop over our environments (shown, not a peer)

Rules and clock are those of benchmarks/peers/referee.py for all four. The target is a median of at most half of the
faster peer's; exit status 1 where it is missed or a seed of ours is not solved.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PEERS = ("sb3", "singlefile")
NAMES = ("ours", *PEERS, "singlefile-ours")
TARGET = 0.5


def ours(seed: int) -> None:
    """The recipe under the referee's clock; what it writes to disk is inside of it."""
    sys.path.insert(0, str(HERE / "peers"))
    import numpy as np
    import torch
    from referee import Referee

    from ppo_lab.config import load_config
    from ppo_lab.control import Run
    from ppo_lab.control.policy import ActorCritic

    cfg = load_config("control/cartpole", [f"seed={seed}", "evaluation.every=1000000"])
    with tempfile.TemporaryDirectory() as folder:
        run = Run(cfg, folder=folder)
        module: ActorCritic = run.learner.module  # type: ignore[assignment]

        @torch.no_grad()
        def act(obs: np.ndarray) -> np.ndarray:
            head = module.head(torch.from_numpy(run.normalizers.see(obs)))
            return run.actions.sent(run.actions.mode(head))

        referee, steps = Referee("ours", seed), 0
        for step in run:
            steps = step.step * cfg.rows
            if referee.look(steps, act):
                break
        referee.report(steps, version="ppo_lab")


def command(name: str, seed: int, peers: str) -> list[str]:
    """How a contestant is started."""
    script = {"sb3": "sb3_cartpole.py", "singlefile": "singlefile_cartpole.py"}
    if name == "ours":
        return [sys.executable, str(HERE / "cartpole.py"), "--one", str(seed)]
    if name == "singlefile-ours":
        return [sys.executable, str(HERE / "peers" / script["singlefile"]), "--seed", str(seed), "--envs", "ppo_lab"]
    python = peers if name == "sb3" else sys.executable
    return [python, str(HERE / "peers" / script[name]), "--seed", str(seed)]


def race(seeds: range, peers: str) -> list[dict[str, Any]]:
    """All contestants on all seeds; who goes first changes from seed to seed."""
    rows = []
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    for seed in seeds:
        turn = seed % len(NAMES)
        for name in NAMES[turn:] + NAMES[:turn]:
            done = subprocess.run(command(name, seed, peers), env=environment, capture_output=True, text=True)
            if done.returncode:
                raise SystemExit(f"{name}, seed {seed}: {done.stderr[-2000:]}")
            row = {"name": name, **json.loads(done.stdout.splitlines()[-1])}
            rows.append(row)
            print(f"seed {seed:>2}  {name:<16} {row['cpu_seconds']:6.2f} CPU-s  {row['steps']:>7} steps"
                  f"{'' if row['solved'] else '  NOT SOLVED'}", flush=True)  # fmt: skip
    return rows


def summary(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Median, best and worst CPU-seconds; a seed that was not solved counts as it is, and is counted."""
    found = {}
    for name in NAMES:
        mine = [row for row in rows if row["name"] == name]
        seconds = [row["cpu_seconds"] for row in mine]
        found[name] = {"median": statistics.median(seconds), "best": min(seconds), "worst": max(seconds),
                       "solved": sum(row["solved"] for row in mine), "seeds": len(mine),
                       "steps": statistics.median(row["steps"] for row in mine)}  # fmt: skip
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", help="a Python with stable-baselines3")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one is not None:
        ours(asked.one)
        return 0
    if asked.peers is None:
        parser.error("--peers PYTHON is needed: an interpreter that has stable-baselines3")
    rows = race(range(asked.first, asked.first + asked.seeds), asked.peers)
    found = summary(rows)
    print(f"\n{'':<16} median   best  worst  CPU-s;   solved   median steps")
    for name, line in found.items():
        print(f"{name:<16} {line['median']:6.2f} {line['best']:6.2f} {line['worst']:6.2f}"
              f"{line['solved']:>12}/{line['seeds']} {line['steps']:>12.0f}")  # fmt: skip
    ratio = found["ours"]["median"] / min(found[name]["median"] for name in PEERS)
    print(f"ours takes {ratio:.2f} of the faster peer's median (target {TARGET})")
    if asked.out is not None:
        asked.out.parent.mkdir(parents=True, exist_ok=True)
        kept = {"command": f"python benchmarks/cartpole.py --peers PYTHON --seeds {asked.seeds}", "ratio": ratio,
                "summary": found, "rows": rows}  # fmt: skip
        asked.out.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    good = ratio <= TARGET and found["ours"]["solved"] == asked.seeds
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
