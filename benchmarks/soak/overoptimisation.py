"""Gold beside the score under pressure: the star of `course.experiments.overoptimisation`, replayed by notebook 12.

    python benchmarks/soak/overoptimisation.py --parts star [--seeds 5]
    python benchmarks/soak/overoptimisation.py --parts switches [--seeds 5]

``star`` writes four recordings below ``ppo_lab/course/recorded/``: ``overoptimisation`` (KL, proxy, gold, grammar along
every run), ``best_of_n`` (the same reward models without training), ``diversity`` (512 answers at the end of each run,
of the untouched policy and of the middle arm at lower temperatures too), ``hacks`` (texts, by a rule).
``switches`` writes ``hacking_switches``: ensembles of reward models and the pre-training mix. About ten CPU-minutes
each on one thread.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from ppo_lab.course.experiments import best_of_n
from ppo_lab.course.experiments import overoptimisation as over
from ppo_lab.course.recordings import record, revision

TEMPERATURES = (0.7, 0.5)  # below the run's own


def star(seeds: int, work: Path) -> dict[str, list[dict[str, Any]]]:
    """Every arm of every seed."""
    found: dict[str, list[dict[str, Any]]] = {"overoptimisation": [], "best_of_n": [], "diversity": [], "hacks": []}
    for seed in range(seeds):
        for arm in over.STAR:
            cpu = time.process_time()
            run = over.started(arm, seed, work)
            rows = [*shown(over.curve(run, arm, seed))]
            found["overoptimisation"] += rows
            start = rows[0]
            found["hacks"] += over.ugliest(run, arm, seed, gold_mean=start["gold"], gold_std=start["gold_std"])
            found["diversity"].append(over.diversity_row(run, arm, seed))
            if arm.beta == 0:
                found["best_of_n"] += best_of_n.rows(run, arm, seed, start["gold_std"])
            if arm == over.STAR[0]:
                found["diversity"] += [over.diversity_row(run, arm, seed, t) for t in TEMPERATURES]
                found["diversity"] += [over.diversity_row(run, arm, seed, t, untouched=True)
                                       for t in (1.0, *TEMPERATURES)]  # fmt: skip
            finished(run, cpu)
    return found


def shown(rows: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Rows, printed as they come."""
    for row in rows:
        print("  ".join(f"{key} {value}" for key, value in row.items()), flush=True)
        yield row


def finished(run: Any, cpu: float) -> None:
    run.close()
    shutil.rmtree(run.folder)
    print(f"{time.process_time() - cpu:.0f} CPU-seconds", flush=True)


def switches(seeds: int, work: Path) -> dict[str, list[dict[str, Any]]]:
    """The middle arm again with one switch each; its own rows are in ``overoptimisation``, of the same seeds."""
    found: list[dict[str, Any]] = []
    for seed in range(seeds):
        for arm in over.SWITCHES:
            cpu = time.process_time()
            run = over.started(arm, seed, work)
            found += shown(over.curve(run, arm, seed))
            finished(run, cpu)
    return {"hacking_switches": found}


PARTS = {"star": star, "switches": switches}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=[*PARTS])
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    revision()  # fails now, not after the runs, where the code is not committed
    for part in options.parts:
        command = f"python benchmarks/soak/overoptimisation.py --parts {part} --seeds {options.seeds}"
        with tempfile.TemporaryDirectory() as work:
            for name, rows in PARTS[part](options.seeds, Path(work)).items():
                print(record(name, command, rows), flush=True)


if __name__ == "__main__":
    main()
