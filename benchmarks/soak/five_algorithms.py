"""Five algorithms side by side under one search budget; notebook 07 replays it.

    python benchmarks/soak/five_algorithms.py [--env CartPole-v1] [--steps 20480] [--draws 16] [--seeds 5]

REINFORCE, A2C, TRPO, PPO-clip and PPO-KL each get the same draws, one run a draw (all reported); the draw with the
highest final return is run again on fresh seeds. Writes ``ppo_lab/course/recorded/five_ENV.json``.
"""

from __future__ import annotations

import argparse
from typing import Any

from ppo_lab.course.experiments.five import ALGORITHMS, DRAWS, FRESH, SEARCH_SEED, best_draw, row
from ppo_lab.course.recordings import record, revision


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--steps", type=int, default=20480)
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--seeds", type=int, default=len(FRESH))
    options = parser.parse_args()
    revision()  # fails now, not after the runs, where the code is not committed
    rows: list[dict[str, Any]] = []

    def go(algorithm: str, i: int, seed: int, part: str) -> None:
        rows.append(row(options.env, algorithm, i, seed=seed, total=options.steps, part=part))
        shown = {k: v for k, v in rows[-1].items() if k not in ("curve", "settings", "env")}
        print(*(f"{k} {v}" for k, v in shown.items()), sep="  ", flush=True)

    for algorithm in ALGORITHMS:
        for i in range(options.draws):
            go(algorithm, i, SEARCH_SEED + i, "search")
        for seed in range(options.seeds):
            go(algorithm, best_draw(rows, algorithm), seed, "fresh")
    name = options.env.split("-")[0].lower()
    command = (f"python benchmarks/soak/five_algorithms.py --env {options.env} --steps {options.steps} "
               f"--draws {options.draws} --seeds {options.seeds}")  # fmt: skip
    print(record(f"five_{name}", command, rows))


if __name__ == "__main__":
    main()
