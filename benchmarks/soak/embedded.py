"""The embedded task from nothing on ten seeds: SFT, reward model and PPO all vary with the seed.

    python benchmarks/soak/embedded.py [--seeds 10] [--folder runs/embedded]

Claim, on 512 samples at temperature 1 from held-out prompts, last checkpoint: mean gold (VADER compound of prompt and
response) at least 0.70, KL(π‖π_ref) (mean summed k1) below 8 nats, and the share of grammatical samples at most 5
points below the SFT model's own on the same prompts and noise. Exit status 1 if a seed misses it.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from ppo_lab.config import load_config
from ppo_lab.rlhf import Run
from ppo_lab.rlhf.compare import before_after
from ppo_lab.rlhf.evaluate import whole_texts
from ppo_lab.rlhf.gold import grammatical_share
from ppo_lab.rlhf.measure import peak_memory_mb

SAMPLES = 512


def one_seed(seed: int, folder: Path, overrides: list[str]) -> dict[str, Any]:
    """Train from nothing, then judge the last checkpoint."""
    shutil.rmtree(folder, ignore_errors=True)
    wall, cpu = time.perf_counter(), time.process_time()
    run = Run(load_config("rlhf/demo", [f"seed={seed}", *overrides]), folder=folder)
    list(run)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    both = before_after(run, SAMPLES)
    sentences = run.config.corpus.sentences
    share = {
        name: grammatical_share(whole_texts(rows), sentences=sentences)
        for name, rows in (("before", both.before), ("after", both.after))
    }
    quality = json.loads((folder / "models" / "reward_model" / "quality.json").read_text())
    return {
        "seed": seed,
        "gold_before": float(both.before["gold"].mean()),
        "gold": float(both.after["gold"].mean()),
        "kl": float(both.after["ref_kl_sum"].mean()),
        "grammatical_sft": share["before"],
        "grammatical": share["after"],
        "score": float(both.after["score"].mean()),
        "reward_model_accuracy": quality["accuracy"],
        "wall_seconds": wall,
        "cpu_seconds": cpu,
        "peak_memory_mb": peak_memory_mb(),
    }


def holds(row: dict[str, Any]) -> bool:
    """The claim, for one seed."""
    return row["gold"] >= 0.70 and row["kl"] < 8.0 and row["grammatical"] >= row["grammatical_sft"] - 0.05


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--folder", type=Path, default=Path("runs/embedded"))
    parser.add_argument("--out", type=Path, help="write the figures here as JSON")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    options = parser.parse_args()
    rows = []
    for seed in range(options.first, options.first + options.seeds):
        row = one_seed(seed, options.folder / f"seed_{seed}", options.overrides)
        rows.append(row)
        print("  ".join(f"{k} {v:.3f}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items()),
              "" if holds(row) else "  MISSED", flush=True)  # fmt: skip
    good = sum(map(holds, rows))
    print(f"{good} of {len(rows)} seeds: gold >= 0.70, KL < 8 nats, grammatical share within 5 points of the SFT model")
    if options.out is not None:
        first = [f"--first {options.first}"] * (options.first > 0)
        words = [f"--seeds {options.seeds}", *first, *options.overrides]
        command = "python benchmarks/soak/embedded.py " + " ".join(words)
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps({"command": command.strip(), "rows": rows}, indent=1) + "\n")
    return 0 if good == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
