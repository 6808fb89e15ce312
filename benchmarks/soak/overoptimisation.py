"""Gold beside the score under pressure: the star of `course.experiments.overoptimisation`, replayed by notebook 12.

    python benchmarks/soak/overoptimisation.py --parts judges [--seeds 5]
    python benchmarks/soak/overoptimisation.py --parts leashes [--seeds 5]
    python benchmarks/soak/overoptimisation.py --parts switches [--seeds 5]

Recordings below ``ppo_lab/course/recorded/``. ``judges``, reward models from few and from more pairs:
``overoptimisation`` (KL, proxy, gold, grammar along a run), ``best_of_n`` (the same reward models without training),
``diversity`` (512 answers at the end of each run; of the untouched policy and the middle arm at a lower temperature
too), ``hacks`` (texts, by a rule). ``leashes``, a small reward model and two β: ``leashes``, ``leash_diversity``.
``switches``, ensembles and the pre-training mix: ``hacking_switches``. About ten CPU-minutes each on one thread.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from ppo_lab.course.experiments import best_of_n
from ppo_lab.course.experiments import overoptimisation as over
from ppo_lab.course.recordings import record, revision

COLD = 0.5  # beside the run's own temperature, 1


def judges(seeds: int, work: Path) -> dict[str, list[dict[str, Any]]]:
    """Runs without a leash, their judges by best-of-n, what they say at the end."""
    found: dict[str, list[dict[str, Any]]] = {"overoptimisation": [], "best_of_n": [], "diversity": [], "hacks": []}
    for seed in range(seeds):
        for arm in over.JUDGES:
            with running(arm, seed, work) as run:
                rows = [*shown(over.curve(run, arm, seed))]
                start, (answers, seen) = rows[0], over.sampled(run)
                found["overoptimisation"] += rows
                found["hacks"] += over.ugliest(seen, arm, seed, gold_mean=start["gold"], gold_std=start["gold_std"])
                found["diversity"].append(over.diversity_row(answers, seen, arm.name, seed))
                found["best_of_n"] += best_of_n.rows(run, arm, seed, start["gold_std"])
                if arm == over.JUDGES[0]:
                    for untouched, temperature in ((False, COLD), (True, 1.0), (True, COLD)):
                        said = over.sampled(run, temperature, untouched=untouched)
                        name = "untouched" if untouched else arm.name
                        found["diversity"].append(over.diversity_row(*said, name, seed, temperature))
    return found


def leashes(seeds: int, work: Path) -> dict[str, list[dict[str, Any]]]:
    """A small judge, and the middle one with two leashes."""
    found: dict[str, list[dict[str, Any]]] = {"leashes": [], "leash_diversity": []}
    for seed in range(seeds):
        for arm in over.LEASHES:
            with running(arm, seed, work) as run:
                found["leashes"] += shown(over.curve(run, arm, seed))
                found["leash_diversity"].append(over.diversity_row(*over.sampled(run), arm.name, seed))
    return found


def switches(seeds: int, work: Path) -> dict[str, list[dict[str, Any]]]:
    """The middle arm again with one switch each; its own rows are in ``overoptimisation``, of the same seeds."""
    found: list[dict[str, Any]] = []
    for seed in range(seeds):
        for arm in over.SWITCHES:
            with running(arm, seed, work) as run:
                found += shown(over.curve(run, arm, seed))
    return {"hacking_switches": found}


@contextmanager
def running(arm: over.Arm, seed: int, work: Path) -> Iterator[Any]:
    """A run, put away afterwards."""
    cpu = time.process_time()
    run = over.started(arm, seed, work)
    yield run
    run.close()
    shutil.rmtree(run.folder)
    print(f"{arm.name}, seed {seed}: {time.process_time() - cpu:.0f} CPU-seconds", flush=True)


def shown(rows: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Rows, printed as they come."""
    for row in rows:
        print("  ".join(f"{key} {value}" for key, value in row.items()), flush=True)
        yield row


PARTS = {"judges": judges, "leashes": leashes, "switches": switches}


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
