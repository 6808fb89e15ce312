"""Kill a run with SIGKILL at random moments, resume it, and compare every byte with the run that was never stopped.

    python benchmarks/soak/kill_resume.py [--kills 20] [--folder runs/kill_resume]

Every fourth kill waits for a checkpoint that is being written. Compared: metrics, samples, baseline, best, models, and
the last checkpoint's tensors and state; times, memory and dates are left out. Exit status 1 if anything differs.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

from ppo_lab import checkpoint, metrics

CONFIG = """
name: kill
steps: 10
corpus: {size: 400, held_out: 32}
policy: {layers: 2, width: 32, heads: 4, dropout: 0.1}
sft: {steps: 60}
reward_model: {pairs: 200, held_out_pairs: 100, epochs: 1, allow_weak_reward_model: true}
reward: {normalize: running}
kl: {controller: proportional, target: 1.0, horizon: 200}
sampling: {prompts: 16, samples: 2}
ppo: {epochs: 2, minibatches: 2}
evaluation: {every: 3, prompts: 16, gold: vader}
checkpoint: {every: 2, keep: 2}
"""
TIMES = ("seconds", "peak_memory")


def command(config: Path, folder: Path, *, resume: bool) -> list[str]:
    return [sys.executable, "-m", "ppo_lab.cli", "train", str(config), "--folder", str(folder), *["--resume"] * resume]


def timeless(row: dict[str, Any]) -> dict[str, Any]:
    """A row without times and memory."""
    return {k: v for k, v in row.items() if not k.startswith(TIMES)}


def contents(folder: Path) -> dict[str, Any]:
    """What must be equal, by name."""
    found: dict[str, Any] = {}
    for name in ("metrics.jsonl", "samples.jsonl"):
        found[name] = [timeless(metrics.encode(row)) for row in metrics.read(folder / name)]
    for name in ("baseline.json", "best.json", "models/sft/quality.json", "models/reward_model/quality.json"):
        found[name] = timeless(json.loads((folder / name).read_text()))
    for name in ("config.yaml", "models/sft/model.safetensors", "models/reward_model/model.safetensors"):
        found[name] = (folder / name).read_bytes()
    found["checkpoints"] = checkpoint.steps(folder)
    tensors, state = checkpoint.load(checkpoint.latest(folder))
    return found | {f"tensor {k}": v for k, v in tensors.items()} | {f"state {k}": v for k, v in state.items()}


def differences(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    """Names of what is not equal to the bit."""

    def same(x: Any, y: Any) -> bool:
        if isinstance(x, torch.Tensor):
            return isinstance(y, torch.Tensor) and x.dtype == y.dtype and torch.equal(x, y)
        return bool(x == y)

    return sorted(name for name in a.keys() | b.keys() if name not in a or name not in b or not same(a[name], b[name]))


def kill_once(config: Path, folder: Path, *, after: float, in_checkpoint: bool) -> str | None:
    """Start the run and kill it after so many seconds, or then at the next checkpoint; None if it had ended before."""
    process = subprocess.Popen(command(config, folder, resume=False), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    end = time.monotonic() + after
    while process.poll() is None:
        writing = any((folder / "checkpoints").glob("*.partial"))
        if time.monotonic() >= end and (writing or not in_checkpoint):
            process.send_signal(signal.SIGKILL)
            process.wait()
            step = len(metrics.read(folder / "metrics.jsonl")) if (folder / "metrics.jsonl").exists() else 0
            torn = any((folder / "checkpoints").glob("*.partial"))
            return f"step {step}{', checkpoint half written' if torn else ''}"
        time.sleep(0.0005)
    return None


def kill_alive(
    config: Path, folder: Path, draw: random.Random, seconds: float, *, in_checkpoint: bool
) -> tuple[float, str]:
    """`kill_once` until it met a living process; the machine's speed may drift, so the moments come ever earlier."""
    while True:
        after = draw.uniform(0.1, 0.7 if in_checkpoint else 0.95) * seconds
        doing = kill_once(config, folder, after=after, in_checkpoint=in_checkpoint)
        if doing is not None:
            return after, doing
        shutil.rmtree(folder)
        seconds *= 0.8


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--folder", type=Path, default=Path("runs/kill_resume"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="write the figures here as JSON")
    options = parser.parse_args()
    shutil.rmtree(options.folder, ignore_errors=True)
    options.folder.mkdir(parents=True)
    config = options.folder / "kill.yaml"
    config.write_text(CONFIG)

    start = time.monotonic()
    subprocess.run(command(config, options.folder / "whole", resume=False), check=True, stdout=subprocess.DEVNULL)
    whole, seconds = contents(options.folder / "whole"), time.monotonic() - start
    print(f"uninterrupted: {seconds:.1f} s, {len(whole['metrics.jsonl'])} steps, {len(whole)} things to compare")

    draw, failed, results = random.Random(options.seed), 0, []
    for i in range(options.kills):
        folder = options.folder / f"kill_{i:02d}"
        after, doing = kill_alive(config, folder, draw, seconds, in_checkpoint=i % 4 == 3)
        again = subprocess.run(
            command(config, folder, resume=(folder / "config.yaml").exists()), capture_output=True, text=True
        )
        unlike = differences(whole, contents(folder)) if again.returncode == 0 else [again.stderr[-2000:]]
        failed += bool(unlike)
        results.append({"after_seconds": round(after, 2), "killed_at": doing, "different": unlike})
        verdict = "DIFFERENT: " + ", ".join(unlike) if unlike else "equal"
        print(f"kill {i + 1:2d} after {after:5.1f} s, {doing:32s} {verdict}", flush=True)
        shutil.rmtree(folder)
    print(f"{options.kills - failed} of {options.kills} resumed runs are bit-equal to the uninterrupted one")
    if options.out is not None:
        figures = {"command": f"python benchmarks/soak/kill_resume.py --kills {options.kills}", "kills": results}
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(figures, indent=1) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
