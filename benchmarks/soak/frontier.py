"""What a nat buys: the shipped policy and reward model under six leashes, five seeds each; notebook 10 replays it.

    python benchmarks/soak/frontier.py [--seeds 5] [--steps 24]

One row a run, of 256 samples from held-out prompts at temperature 1, last checkpoint: KL(π‖π_ref) (mean summed k1),
reward-model score, gold (VADER) and the share of grammatical samples. The same seed shares prompts and noise over all
β, so differences between β are paired. Writes ``ppo_lab/course/recorded/frontier.json``.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

from ppo_lab.config import load_config
from ppo_lab.course.recordings import record, revision
from ppo_lab.rlhf import Run
from ppo_lab.rlhf.compare import before_after
from ppo_lab.rlhf.evaluate import whole_texts
from ppo_lab.rlhf.gold import grammatical_share

BETAS = (0.6, 0.3, 0.15, 0.08, 0.03, 0.01)
SAMPLES = 256


def one(beta: float, seed: int, steps: int, folder: Path) -> list[dict[str, Any]]:
    """The run's row, and one of the untouched policy on the same prompts and noise (β None)."""
    cpu = time.process_time()
    overrides = [f"kl.beta={beta}", f"seed={seed}", f"steps={steps}", f"evaluation.every={steps}"]
    run = Run(load_config("rlhf/start", overrides), folder=folder)
    list(run)
    cpu = time.process_time() - cpu
    pair = before_after(run, SAMPLES)
    rows = []
    for name, side in (("before", pair.before), ("after", pair.after)):
        share = grammatical_share(whole_texts(side), sentences=run.config.corpus.sentences)
        kl = float(side["ref_kl_sum"].mean()) if name == "after" else 0.0  # of a policy to itself
        means = {key: float(side[key].mean()) for key in ("score", "gold")}
        rows.append({"side": name, "beta": beta, "seed": seed, "kl": kl, **means, "grammatical": share,
                     "cpu_seconds": round(cpu, 1)})  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=24)
    options = parser.parse_args()
    revision()  # fails now, not after the runs, where the code is not committed
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for beta in BETAS:
            for seed in range(options.seeds):
                rows += one(beta, seed, options.steps, Path(folder) / f"{beta}_{seed}")
                print("  ".join(f"{k} {v:.3f}" if isinstance(v, float) else f"{k} {v}" for k, v in rows[-1].items()),
                      flush=True)  # fmt: skip
    command = f"python benchmarks/soak/frontier.py --seeds {options.seeds} --steps {options.steps}"
    print(record("frontier", command, rows))


if __name__ == "__main__":
    main()
