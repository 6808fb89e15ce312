"""SmolLM2-135M on first words of human-rated reviews, rewarded by MiniLM trained on the ratings: three seeds.

    ppo-lab fetch smollm2-135m && ppo-lab fetch minilm && ppo-lab fetch human-reviews
    python benchmarks/soak/smollm2.py [--seeds 3] [--folder runs/smollm2] [--out benchmarks/soak/results/smollm2]

Each seed in a process of its own, so that its peak memory is its own. Measured: before and after on 128 fixed held-out
prompts, last checkpoint, same sampling noise, paired; 95 % bootstrap interval of the reward-model score, VADER beside
it. Claim: the interval lies above 0 for at least two of three seeds, each run takes at most 10 minutes and 8 GB. Exit
status 1 if not.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

PROMPTS, RESAMPLES = 128, 10_000
KEPT = ("config.yaml", "metrics.jsonl", "samples.jsonl", "baseline.json", "best.json", "dashboard.png")


def one_seed(seed: int, folder: Path, overrides: list[str]) -> dict[str, Any]:
    """Train, then compare the last checkpoint with the untouched model."""
    from ppo_lab.config import load_config
    from ppo_lab.evaluate.statistics import bootstrap_ci
    from ppo_lab.rlhf import Run
    from ppo_lab.rlhf.compare import before_after
    from ppo_lab.rlhf.gold import vader
    from ppo_lab.rlhf.measure import peak_memory_mb

    shutil.rmtree(folder, ignore_errors=True)
    wall, cpu = time.perf_counter(), time.process_time()
    run = Run(load_config("rlhf/smollm2", [f"seed={seed}", *overrides]), folder=folder)
    list(run)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    peak = peak_memory_mb()
    both = before_after(run, PROMPTS)
    for rows in (both.before, both.after):
        rows["vader"] = vader(rows["prompt"], rows["response"])
    quality = json.loads((folder / "models" / "reward_model" / "quality.json").read_text())
    result: dict[str, Any] = {"seed": seed, "reward_model_accuracy": quality["accuracy"], "seconds": wall,
                              "cpu_seconds": cpu, "peak_memory_mb": peak,
                              "ref_kl_sum": float(both.after["ref_kl_sum"].mean())}  # fmt: skip
    for name in ("score", "vader"):
        gain = both.gain(name)
        low, high = bootstrap_ci(gain, alpha=0.05, resamples=RESAMPLES, seed=seed)
        ends = {"before": both.before[name].mean(), "after": both.after[name].mean()}
        ends |= {"gain": gain.mean(), "low": low, "high": high}
        result |= {f"{name}_{key}": float(value) for key, value in ends.items()}
    pairs = zip(both.before["prompt"], both.before["response"], both.after["response"], strict=True)
    result["examples"] = [{"prompt": p, "before": b, "after": a} for p, b, a in list(pairs)[:6]]
    return result


def keep(folder: Path, out: Path) -> None:
    """What is committed of a run."""
    from ppo_lab.diagnose.dashboard import write_report

    write_report(folder)
    out.mkdir(parents=True, exist_ok=True)
    for name in KEPT:
        shutil.copy(folder / name, out / name)


def holds(rows: list[dict[str, Any]]) -> bool:
    """The claim over all seeds."""
    lean = all(r["seconds"] <= 600 and r["peak_memory_mb"] <= 8192 for r in rows)
    return lean and sum(r["score_low"] > 0 for r in rows) >= min(2, len(rows))


def in_a_process(seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """`one_seed` in a fresh process; its figures are printed as they come."""
    command = [sys.executable, __file__, "--only", str(seed), "--folder", str(options.folder / f"seed_{seed}")]
    command += [] if options.out is None else ["--out", str(options.out / f"seed_{seed}")]
    done = subprocess.run([*command, *options.overrides], stdout=subprocess.PIPE, text=True, check=True)
    row = json.loads(done.stdout.rsplit("RESULT ", 1)[1])
    print(
        f"seed {seed}: score {row['score_before']:+.3f} -> {row['score_after']:+.3f}, gain {row['score_gain']:+.3f}"
        f" [{row['score_low']:+.3f}, {row['score_high']:+.3f}]; VADER gain {row['vader_gain']:+.3f} "
        f"[{row['vader_low']:+.3f}, {row['vader_high']:+.3f}]; KL {row['ref_kl_sum']:.2f} nats; "
        f"{row['seconds']:.0f} s, {row['peak_memory_mb']:.0f} MiB", flush=True,
    )  # fmt: skip
    return row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1, help="seeds at a time")
    parser.add_argument("--only", type=int, help="run this seed in this process and print its figures as JSON")
    parser.add_argument("--folder", type=Path, default=Path("runs/smollm2"))
    parser.add_argument("--out", type=Path, help="keep config, metrics, samples, picture and figures here")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    options = parser.parse_args()
    if options.only is not None:
        row = one_seed(options.only, options.folder, options.overrides)
        if options.out is not None:
            keep(options.folder, options.out)
        print("RESULT " + json.dumps(row))
        return 0
    with ThreadPoolExecutor(options.jobs) as pool:
        rows = list(pool.map(lambda seed: in_a_process(seed, options), range(options.seeds)))
    if options.out is not None:
        command = " ".join([f"python benchmarks/soak/smollm2.py --jobs {options.jobs}", *options.overrides])
        (options.out / "result.json").write_text(json.dumps({"command": command, "rows": rows}, indent=1) + "\n")
    print("the claim holds" if holds(rows) else "the claim does NOT hold")
    return 0 if holds(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
