"""A critic that shares the policy's trunk, all of it or a part, against one of its own; notebook 08 replays it.

    python benchmarks/soak/sharing.py [--seeds 5] [--steps 10]

The shipped short run (configs/rlhf/start.yaml), nothing tuned, once a critic and seed; the same seed shares prompts and
noise over all critics, so differences are paired. CPU-seconds on one thread: of a PPO step (median of the run), of one
optimizer step and of one scoring (least of three on the last rollout). Passes of a block and bytes are counted.
Writes ``ppo_lab/course/recorded/sharing.json``.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from ppo_lab.course.experiments.sharing import VARIANTS, measured
from ppo_lab.course.recordings import record, revision


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10)
    options = parser.parse_args()
    revision()  # fails now, not after the runs, where the code is not committed
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(options.seeds):  # all critics of a seed follow each other: they share the machine's mood
            for number, variant in enumerate(VARIANTS):
                rows.append(measured(variant, seed, options.steps, Path(folder) / f"{number}_{seed}"))
                print("  ".join(f"{k} {v}" for k, v in rows[-1].items()), flush=True)
    print(record("sharing", f"python benchmarks/soak/sharing.py --seeds {options.seeds} --steps {options.steps}", rows))


if __name__ == "__main__":
    main()
