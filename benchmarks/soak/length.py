"""The cap times four: three rewards, two caps, and at the long cap six remedies; notebook 11 replays it.

    python benchmarks/soak/length.py [--seeds 10] [--rewards mean_mood praise blame]

One row a run (`course.experiments.length.run_row`). The same seed shares prompts and noise over rewards, caps and
remedies, so differences are paired; `mean_mood` gets the remedies. β, weights and the remedies' settings were chosen on
seed 100, in twelve steps; the rate of the eight steps here keeps rate x steps. Reported are seeds 1, 2, 3, … A run
that was made before at this revision is read back from ``runs/soak_length``, so an interrupted study goes on.
Writes ``ppo_lab/course/recorded/length.json``.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from ppo_lab.course.experiments.length import LONG, REMEDIES, REWARDS, T, run_row
from ppo_lab.course.recordings import record, revision

KEPT = Path("runs") / "soak_length"


def made(name: str, reward: str, cap: int, remedy: str, seed: int) -> dict[str, Any]:
    """The run's row, from disk or made now."""
    label = remedy.replace("/", "-").replace(" ", "-")
    path = KEPT / name / f"{reward}_{cap}_{label}_{seed}.json"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            cpu = time.process_time()
            row = run_row(reward, cap, remedy, seed, Path(folder) / "run")
            row["cpu_seconds"] = round(time.process_time() - cpu, 1)
        path.write_text(json.dumps(row), encoding="utf-8")
        print({k: v for k, v in row.items() if "curve" not in k}, flush=True)
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--rewards", nargs="+", default=[*REWARDS], choices=REWARDS)
    options = parser.parse_args()
    name = revision()  # fails now, not after the runs, where the code is not committed
    plan = [(r, cap, "none") for r in options.rewards for cap in (LONG, T)]
    plan[2:2] = [("mean_mood", LONG, remedy) for remedy in REMEDIES if remedy != "none"]
    rows = [made(name, *kind, seed) for kind in plan for seed in range(1, options.seeds + 1)]
    command = f"python benchmarks/soak/length.py --seeds {options.seeds} --rewards {' '.join(options.rewards)}"
    print(record("length", command, rows))


if __name__ == "__main__":
    main()
