"""What matters: one detail of the implementation changed at a time, paired seeds; notebook 07 replays it.

    python benchmarks/soak/what_matters.py control [--seeds 5]
    python benchmarks/soak/what_matters.py text [--seeds 5]

Switches and settings are those of ``ppo_lab/course/experiments/what_matters.py``. Writes
``ppo_lab/course/recorded/what_matters.json`` and ``what_matters_text.json``.
"""

from __future__ import annotations

import argparse
from typing import Any

from ppo_lab.course.experiments.what_matters import SWITCHES, TEXT, control_row, text_row
from ppo_lab.course.recordings import record, revision


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("world", choices=("control", "text"))
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    revision()  # fails now, not after the runs, where the code is not committed
    rows: list[dict[str, Any]] = []

    def keep(row: dict[str, Any]) -> None:
        rows.append(row)
        shown = ("env", "switch", "seed", "final", "area", "crash", "score", "kl", "gold", "cpu")
        print(*(f"{k} {row[k]}" for k in shown if k in row), sep="  ", flush=True)

    if options.world == "control":
        for env, switches in SWITCHES.items():
            for seed in range(options.seeds):
                for switch in switches:
                    keep(control_row(env, switch, seed))
    else:
        for seed in range(options.seeds):
            for switch in TEXT:
                keep(text_row(switch, seed))
    name = {"control": "what_matters", "text": "what_matters_text"}[options.world]
    print(record(name, f"python benchmarks/soak/what_matters.py {options.world} --seeds {options.seeds}", rows))


if __name__ == "__main__":
    main()
