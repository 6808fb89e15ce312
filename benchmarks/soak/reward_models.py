"""What a reward model is worth: pairs and noise, another policy, people's ratings, and the rate of the SFT before it.

    python benchmarks/soak/reward_models.py [--parts shift grid people rates] [--seeds 10]

Four recordings for notebook 09, below ``ppo_lab/course/recorded/``: ``policy_shift`` (accuracy of the shipped reward
model on pairs of the policy before, half way and after PPO, plain and at equal gold gaps), ``reward_models`` (label
noise × number of pairs × draws), ``human_preferences`` (needs ``ppo-lab fetch human-reviews``), ``sft_rates`` (the
range test's advice, followed and not). About eight CPU-minutes on one thread.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from ppo_lab.course.experiments import policy_shift, preferences, sft_rates
from ppo_lab.course.recordings import record, revision

Rows = Iterator[dict[str, Any]]
DRAWS = 5  # of every cell of the grid; of some as many as --seeds
MORE = {(1000, 0.15), (4000, 0.3)}  # where a verdict is asked for
PEOPLE = (1500, 6000)


def shift(seeds: int) -> Rows:
    """PPO on a loose leash, and the reward model on the way."""
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(seeds):
            yield from policy_shift.shifted(seed, Path(folder) / str(seed))


def grid(seeds: int) -> Rows:
    """Draw by draw, so that the pool of pairs is made once."""
    for draw in range(max(seeds, DRAWS)):
        for noise in preferences.NOISES:
            for pairs in preferences.PAIRS:
                if draw < DRAWS or (pairs, noise) in MORE:
                    yield preferences.row(draw, pairs, noise)


def people(seeds: int) -> Rows:
    """Snippets that people rated."""
    for seed in range(seeds):
        for pairs in PEOPLE:
            quality, vader = preferences.from_people(seed, pairs)
            yield {"seed": seed, "pairs": pairs, "accuracy": quality.accuracy, "train": quality.train_accuracy,
                   "ece": round(quality.labels.ece, 4), "vader": vader}  # fmt: skip


def rates(seeds: int) -> Rows:
    """The range test, then training at a tenth of its advice, at it, at ten times; three schedules at the last."""
    for seed in range(seeds):
        found = sft_rates.find_rate(seed)
        for factor in (0.1, 1.0, 10.0):
            for schedule in sft_rates.SCHEDULES if factor == 10 else ("warm-up, cosine",):
                loss, _ = sft_rates.trained(seed, factor * found.suggested, schedule)
                yield {"seed": seed, "suggested": found.suggested, "factor": factor, "schedule": schedule,
                       "loss": round(loss, 4)}  # fmt: skip


PARTS: dict[str, tuple[str, Callable[[int], Rows]]] = {
    "shift": ("policy_shift", shift),
    "grid": ("reward_models", grid),
    "people": ("human_preferences", people),
    "rates": ("sft_rates", rates),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=[*PARTS])
    parser.add_argument("--seeds", type=int, default=10)
    options = parser.parse_args()
    torch.set_num_threads(1)
    revision()  # fails now, not after the runs, where the code is not committed
    for part in options.parts:
        name, make = PARTS[part]
        cpu, rows = time.process_time(), []
        for row in make(options.seeds):
            rows.append(row)
            print("  ".join(f"{k} {v}" for k, v in row.items() if k not in ("bins", "by_gap")), flush=True)
        command = f"python benchmarks/soak/reward_models.py --parts {part} --seeds {options.seeds}"
        print(record(name, command, rows), f"{time.process_time() - cpu:.0f} CPU-seconds", flush=True)


if __name__ == "__main__":
    main()
