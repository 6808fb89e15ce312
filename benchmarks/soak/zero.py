"""Kill one of two ranks of a ZeRO run at random moments: the other ends with a named error, and the run resumes.

    python benchmarks/soak/zero.py [--kills 10] [--stage 3] [--folder runs/soak_zero]

The kill is a SIGKILL, and no launcher stands by to end the survivor. Asked of every kill: the survivor has ended by
itself within 60 s and named the dead rank; the run resumed on two processes is bit-equal to one that was never stopped
(metrics, samples, baseline, best, models, the last checkpoint's tensors and state; times and memory left out). Then the
same is asked of a rank whose reward raises. Exit status 1 if anything differs, hangs or is nameless.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from kill_resume import contents, differences

from ppo_lab.scale.launch import free_port, launch

CONFIG = """
name: zero
steps: 12
learner: {{kind: zero, stage: {stage}}}
corpus: {{size: 400, held_out: 32}}
policy: {{layers: 2, width: 32, heads: 4, dropout: 0.1}}
sft: {{steps: 10}}
reward_model: {{pairs: 60, held_out_pairs: 40, epochs: 1, allow_weak_reward_model: true}}
reward: {{normalize: running}}
kl: {{controller: proportional, target: 1.0, horizon: 200}}
sampling: {{prompts: 17}}
ppo: {{epochs: 2, minibatches: 1, micro_batch: 4}}
evaluation: {{every: 4, prompts: 16, gold: vader}}
checkpoint: {{every: 2, keep: 2}}
"""
LIMIT = 60.0  # seconds that the survivor may take
RAISES = """
import os
asked = [0]
def reward(prompts, responses, **columns):
    asked[0] += 1
    if asked[0] == 5 and os.environ["RANK"] == "1":
        raise ValueError("this reward broke")
    return [float(len(r.split())) for r in responses]
"""


def command(config: Path, folder: Path, *options: str) -> list[str]:
    return ["-m", "ppo_lab.cli", "train", str(config), *options, "--folder", str(folder)]


def resumed(config: Path, folder: Path) -> str | None:
    """Go on, or begin where nothing was begun; what went wrong."""
    again = ["--resume"] * (folder / "config.yaml").exists()
    try:
        launch([*command(config, folder), *again], processes=2, show=None, timeout=600)
    except RuntimeError as error:
        return str(error)
    return None


def start(config: Path, folder: Path, *options: str) -> list[subprocess.Popen[str]]:
    """Two ranks that nobody watches over."""
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    ranks = []
    for r in range(2):
        with open(folder.with_suffix(f".rank{r}"), "w") as log:
            environment = os.environ | shared | {"RANK": str(r), "LOCAL_RANK": str(r)}
            run = [sys.executable, *command(config, folder, *options)]
            ranks.append(subprocess.Popen(run, env=environment, stdout=log, stderr=log, text=True))
    return ranks


def survivor(ranks: list[subprocess.Popen[str]], folder: Path, dead: int) -> tuple[float, str]:
    """How long the other rank took to end, and its last line; it is ended after the limit."""
    begun, other = time.monotonic(), ranks[1 - dead]
    try:
        other.wait(LIMIT + 5)
    except subprocess.TimeoutExpired:
        other.kill()
    for process in ranks:
        process.wait()
    lines = folder.with_suffix(f".rank{1 - dead}").read_text().strip().splitlines()
    named = [line for line in lines if line.startswith(("error:", "rank 1: error:"))]
    return time.monotonic() - begun, named[-1] if named else ""


def kill_once(config: Path, folder: Path, draw: random.Random, seconds: float) -> dict[str, Any] | None:
    """Kill a random rank after a random time in the run; None if it had ended before."""
    ranks = start(config, folder)
    while not (folder / "config.yaml").exists() and ranks[0].poll() is None:
        time.sleep(0.01)
    time.sleep(draw.uniform(0, seconds))
    dead = draw.randrange(2)
    if any(process.poll() is not None for process in ranks):
        for process in ranks:
            process.wait()
        return None
    ranks[dead].send_signal(signal.SIGKILL)
    steps = folder / "metrics.jsonl"
    after = len(steps.read_text().splitlines()) if steps.exists() else 0
    took, said = survivor(ranks, folder, dead)
    return {"rank": dead, "after_step": after, "survivor_seconds": round(took, 1), "said": said.split(";")[0]}


def whole_run(config: Path, folder: Path) -> tuple[dict[str, Any], float]:
    """What a run that is never stopped leaves, and how long it took from its first file on."""
    ranks, begun = start(config, folder), 0.0
    while any(process.poll() is None for process in ranks):
        if not begun and (folder / "config.yaml").exists():
            begun = time.monotonic()
        time.sleep(0.05)
    if any(process.returncode for process in ranks):
        sys.exit(folder.with_suffix(".rank0").read_text())
    return contents(folder), time.monotonic() - begun


def kills(config: Path, folder: Path, wanted: int, seed: int) -> tuple[list[dict[str, Any]], int]:
    """The figures of every kill, and how many went wrong."""
    whole, seconds = whole_run(config, folder / "whole")
    print(f"uninterrupted: {seconds:.1f} s in the run, {len(whole)} things to compare", flush=True)
    draw, results, failed = random.Random(seed), [], 0
    while len(results) < wanted:
        place = folder / f"kill_{len(results):02d}"
        found = kill_once(config, place, draw, seconds)
        if found is not None:
            wrong = resumed(config, place)
            found["different"] = [wrong] if wrong else differences(whole, contents(place))
            bad = bool(found["different"]) or found["survivor_seconds"] > LIMIT or "rank" not in found["said"]
            failed += bad
            results.append(found)
            print(f"kill {len(results):2d}: {json.dumps(found)} {'WRONG' if bad else 'well'}", flush=True)
        else:
            seconds *= 0.8
        shutil.rmtree(place, ignore_errors=True)
    print(f"{wanted - failed} of {wanted}: named in time, and bit-equal after resuming")
    return results, failed


def raises(config: Path, folder: Path) -> dict[str, Any]:
    """A reward fails on rank 1 alone: what the other rank says, and after how long."""
    (folder / "breaks.py").write_text(RAISES)
    source = f'reward={{sources: [{{kind: callable, path: "{folder / "breaks.py"}:reward"}}]}}'
    ranks = start(config, folder / "raises", source)
    ranks[1].wait()
    took, said = survivor(ranks, folder / "raises", 1)
    print(f"a rank that raises: the other ended after {took:.1f} s: {said}")
    return {"survivor_seconds": round(took, 1), "said": said.split(";")[0].replace(str(folder), "RUN")}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--stage", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, default=Path("runs/soak_zero"))
    parser.add_argument("--out", type=Path, help="write the figures here as JSON")
    options = parser.parse_args()
    shutil.rmtree(options.folder, ignore_errors=True)
    options.folder.mkdir(parents=True)
    config = options.folder / "zero.yaml"
    config.write_text(CONFIG.format(stage=options.stage))
    results, failed = kills(config, options.folder, options.kills, options.seed)
    raised = raises(config, options.folder)
    if options.out is not None:
        how = f"python benchmarks/soak/zero.py --kills {options.kills} --stage {options.stage}"
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps({"command": how, "kills": results, "raises": raised}, indent=1) + "\n")
    named = "rank 1 raised RewardError" in raised["said"] and raised["survivor_seconds"] <= LIMIT
    return 1 if failed or not named else 0


if __name__ == "__main__":
    sys.exit(main())
