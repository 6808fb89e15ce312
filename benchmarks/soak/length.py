"""The cap times four: three rewards, two caps, and at the long cap five remedies; notebook 11 replays it.

    python benchmarks/soak/length.py [--seeds 5] [--steps 12] [--remedies mean_mood]

One row a run (`course.experiments.length.run_row`). The same seed shares prompts and noise over rewards, caps and
remedies, so differences are paired. Rates, β, weights and the remedies' settings were chosen on seed 100, those
reported are 1, 2, 3, … Writes ``ppo_lab/course/recorded/length.json``.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

from ppo_lab.course.experiments.length import LONG, REMEDIES, REWARDS, STEPS, T, run_row
from ppo_lab.course.recordings import record, revision


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--remedies", nargs="+", default=["mean_mood"], choices=REWARDS, help="rewards that get them")
    options = parser.parse_args()
    revision()  # fails now, not after the runs, where the code is not committed
    plan = [(reward, cap, "none") for reward in REWARDS for cap in (LONG, T)]
    plan += [(reward, LONG, remedy) for reward in options.remedies for remedy in REMEDIES if remedy != "none"]
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(1, options.seeds + 1):
            for i, (reward, cap, remedy) in enumerate(plan):
                cpu = time.process_time()
                rows.append(run_row(reward, cap, remedy, seed, Path(folder) / f"{i}_{seed}", steps=options.steps))
                rows[-1]["cpu_seconds"] = round(time.process_time() - cpu, 1)
                print({k: v for k, v in rows[-1].items() if "curve" not in k}, flush=True)
    command = f"python benchmarks/soak/length.py --seeds {options.seeds} --steps {options.steps} --remedies "
    print(record("length", command + " ".join(options.remedies), rows))


if __name__ == "__main__":
    main()
