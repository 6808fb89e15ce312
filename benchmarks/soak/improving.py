"""Five ways to improve a run, measured; the optional sections of notebook 12 replay it.

    python benchmarks/soak/improving.py shaping|curriculum|curiosity|prompts [--seeds N]

Each part writes ``ppo_lab/course/recorded/improving_PART.json``, a row a run; the same seed is paired over all arms.
Settings were chosen on seeds from 1000 on, those reported count from 0.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from ppo_lab.course.experiments import curiosity, curriculum, prompt_sampling, shaping
from ppo_lab.course.recordings import record, revision

PARTS: dict[str, tuple[Callable[[str, int], dict[str, Any]], tuple[str, ...], int]] = {
    "shaping": (shaping.trained, shaping.ARMS, 12),
    "curriculum": (curriculum.trained, curriculum.ARMS, 12),
    "curiosity": (curiosity.row, curiosity.ARMS, 10),
    "prompts": (prompt_sampling.row, prompt_sampling.ORDERS, 5),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=[*PARTS])
    parser.add_argument("--seeds", type=int)
    options = parser.parse_args()
    revision()  # fails now, not after the runs, where the code is not committed
    one, arms, usual = PARTS[options.part]
    seeds = options.seeds or usual
    rows = []
    for seed in range(seeds):
        for arm in arms:
            rows.append(one(arm, seed))
            print(*(f"{k} {v}" for k, v in rows[-1].items() if k != "curve"), sep="  ", flush=True)
    command = f"python benchmarks/soak/improving.py {options.part} --seeds {seeds}"
    print(record(f"improving_{options.part}", command, rows))


if __name__ == "__main__":
    main()
