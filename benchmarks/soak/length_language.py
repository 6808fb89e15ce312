"""PPO's length against π*'s on texts that can be listed, ten seeds; notebook 11 replays it.

    python benchmarks/soak/length_language.py [--seeds 10]

One row a run (`course.experiments.length_language.row`). The suspects' settings were chosen on seed 50, those reported
are 0, 1, 2, … Writes ``ppo_lab/course/recorded/length_language.json``.
"""

from __future__ import annotations

import argparse

from ppo_lab.course.experiments.length_language import plan, row
from ppo_lab.course.recordings import record, revision


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    options = parser.parse_args()
    revision()  # fails now, not after the runs, where the code is not committed
    rows = []
    for worth, cap, variant in plan():
        rows += [row(worth, cap, variant, seed) for seed in range(options.seeds)]
        print(rows[-1], flush=True)
    print(record("length_language", f"python benchmarks/soak/length_language.py --seeds {options.seeds}", rows))


if __name__ == "__main__":
    main()
