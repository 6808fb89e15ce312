"""The parts of PPO's objective turned one at a time on CartPole; a Gaussian policy on Pendulum; for notebook 06.

    python benchmarks/control/assembled.py [--seeds 8] [--swings 5]

Every variant of `ppo_lab.course.experiments.assembled.VARIANTS` with the same seeds, so that differences are paired.
Writes ``ppo_lab/course/recorded/objective.json`` (one row a run) and ``pendulum.json`` (one row an update; once as it
is and once with the clipped action stored beside the unclipped one's log-probability).
"""

from __future__ import annotations

import argparse
import json

from ppo_lab.course.experiments.assembled import VARIANTS, swung, turned
from ppo_lab.course.recordings import record, revision


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--swings", type=int, default=5)
    options = parser.parse_args()
    revision()  # fails now, not after the runs, where the code is not committed
    command = f"python benchmarks/control/assembled.py --seeds {options.seeds} --swings {options.swings}"
    rows = []
    for variant in VARIANTS:
        for seed in range(options.seeds):
            rows.append(turned(variant, seed))
            print(json.dumps(rows[-1], ensure_ascii=False), flush=True)
    if rows:
        print(record("objective", command, [_short(row) for row in rows]))
    swings = []
    for planted in ("", "clipped_action_stored"):
        for seed in range(options.swings):
            swings += swung(seed, planted)
            print(json.dumps(swings[-1]), flush=True)
    if swings:
        print(record("pendulum", command, [_short(row) for row in swings]))


def _short(row: dict[str, object]) -> dict[str, object]:
    """Five digits are enough to draw."""
    return {key: float(f"{x:.5g}") if isinstance(x, float) else x for key, x in row.items()}


if __name__ == "__main__":
    main()
