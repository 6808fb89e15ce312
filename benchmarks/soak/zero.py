"""Kill one of two ranks of a ZeRO run at random moments: the other ends with a named error, and the run resumes.

    python benchmarks/soak/zero.py [--kills 10] [--stage 3] [--folder runs/soak_zero]

Moments are uniform over the steps: so many lines of the log, then a part of a step's time; every fifth kill waits there
for a checkpoint that is being written. The kill is a SIGKILL, and no launcher stands by to end the survivor. Asked of
every kill: the survivor has ended by itself within 60 s and named the dead rank (or, where the dead one fell after the
last step, has ended well: nothing was left to wait for); the run resumed on two processes is
bit-equal to one that was never stopped (metrics, samples, baseline, best, models, the last checkpoint's tensors and
state; times and memory left out). Then a reward raises on one rank, and one never comes back: all ranks end, name it,
and leave a checkpoint of the last step. Exit status 1 if anything differs, hangs or is nameless.
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

from ppo_lab import checkpoint
from ppo_lab.scale.launch import free_port, launch

CONFIG = """
name: zero
steps: 8
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
FAILS = """
import os
asked = [0]
def reward(prompts, responses, **columns):
    asked[0] += 1
    if asked[0] == 5 and os.environ["RANK"] == "1":  # in the second step
        {what}
    return [float(len(r.split())) for r in responses]
"""
WAYS = {"raises": ('raise ValueError("this reward broke")', "raised ValueError: this reward broke"),
        "loops": ("while True: pass", "must answer within reward.timeout = 10 s")}  # fmt: skip


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


def survivor(ranks: list[subprocess.Popen[str]], folder: Path, dead: int) -> tuple[float, str, int]:
    """How long the other rank took to end, its last line and its exit status; it is ended after the limit."""
    begun, other = time.monotonic(), ranks[1 - dead]
    try:
        other.wait(LIMIT + 5)
    except subprocess.TimeoutExpired:
        other.kill()
    for process in ranks:
        process.wait()
    lines = folder.with_suffix(f".rank{1 - dead}").read_text().strip().splitlines()
    named = [line for line in lines if line.startswith(("error:", "rank 1: error:"))]
    return time.monotonic() - begun, named[-1] if named else "", ranks[1 - dead].returncode


def rows(folder: Path) -> int:
    """Steps that are in the log."""
    log = folder / "metrics.jsonl"
    return log.read_bytes().count(b"\n") if log.exists() else 0


def reached(folder: Path, step: int) -> bool:
    """Whether so many steps are done; 0: whether the first one has begun."""
    return rows(folder) >= step if step else (folder / "baseline.json").exists()


def kill_once(
    config: Path, folder: Path, draw: random.Random, whole: tuple[int, float], *, in_checkpoint: bool
) -> dict[str, Any] | None:
    """Kill a random rank at a random moment of the steps' time; None if the run had ended before."""
    moment, dead = draw.uniform(0, whole[0]), draw.randrange(2)
    step, part = int(moment), moment % 1
    ranks = start(config, folder)

    def alive() -> bool:
        return all(process.poll() is None for process in ranks)

    while alive() and not reached(folder, step):
        time.sleep(0.001)
    time.sleep(part * whole[1])
    while in_checkpoint and alive() and not any((folder / "checkpoints").glob("*.partial")):
        time.sleep(0.0002)
    if not alive():
        for process in ranks:
            process.wait()
        return None
    ranks[dead].send_signal(signal.SIGKILL)
    done, torn = rows(folder), any((folder / "checkpoints").glob("*.partial"))
    took, said, status = survivor(ranks, folder, dead)
    return {"rank": dead, "steps_done": done, "drawn": round(moment, 2), "writing_a_checkpoint": torn,
            "survivor_seconds": round(took, 1), "survivor_status": status, "said": said.split(";")[0]}  # fmt: skip


def whole_run(config: Path, folder: Path) -> tuple[dict[str, Any], int, float]:
    """What a run that is never stopped leaves, how many steps it has, and the seconds of one of them."""
    ranks, begun = start(config, folder), 0.0
    while any(process.poll() is None for process in ranks):
        if not begun and reached(folder, 1):
            begun, first = time.monotonic(), rows(folder)
        time.sleep(0.01)
    if any(process.returncode for process in ranks):
        sys.exit(folder.with_suffix(".rank0").read_text())
    return contents(folder), rows(folder), (time.monotonic() - begun) / (rows(folder) - first + 1)


def kills(config: Path, folder: Path, wanted: int, seed: int) -> tuple[list[dict[str, Any]], int]:
    """The figures of every kill, and how many went wrong."""
    whole, steps, seconds = whole_run(config, folder / "whole")
    print(f"uninterrupted: {steps} steps, {seconds:.1f} s each, {len(whole)} things to compare", flush=True)
    draw, results, failed = random.Random(seed), [], 0
    while len(results) < wanted:
        place = folder / f"kill_{len(results):02d}"
        found = kill_once(config, place, draw, (steps, seconds), in_checkpoint=len(results) % 5 == 4)
        if found is not None:
            wrong = resumed(config, place)
            found["different"] = [wrong] if wrong else differences(whole, contents(place))
            over = found["steps_done"] == steps and found["survivor_status"] == 0
            bad = bool(found["different"]) or found["survivor_seconds"] > LIMIT or not (over or "rank" in found["said"])
            failed += bad
            results.append(found)
            print(f"kill {len(results):2d}: {json.dumps(found)} {'WRONG' if bad else 'well'}", flush=True)
        shutil.rmtree(place, ignore_errors=True)
    print(f"{wanted - failed} of {wanted}: named in time, and bit-equal after resuming")
    return results, failed


def fails(config: Path, folder: Path, way: str) -> dict[str, Any]:
    """A reward fails on rank 1 alone: what each rank says, and the checkpoint of the one step done."""
    what, words = WAYS[way]
    (folder / f"{way}.py").write_text(FAILS.format(what=what))
    source = f'reward={{timeout: 10, sources: [{{kind: callable, path: "{folder / way}.py:reward"}}]}}'
    place = folder / f"{way}_run"
    ranks = start(config, place, source)
    ranks[1].wait()
    took, said, _ = survivor(ranks, place, 1)
    itself = place.with_suffix(".rank1").read_text()
    saved = checkpoint.steps(place)
    well = all(f"rank 1: RewardError: reward {folder / way}.py:reward {words}" in x for x in (said, itself))
    print(f"a reward that {way}: rank 0 ended {took:.1f} s after rank 1: {said}; checkpoints {saved}", flush=True)
    return {"seconds_apart": round(took, 1), "said": said.split(";")[0].replace(str(folder), "RUN"),
            "checkpoints": saved, "well": well and saved == [1]}  # fmt: skip


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
    failing = {way: fails(config, options.folder, way) for way in WAYS}
    if options.out is not None:
        how = f"python benchmarks/soak/zero.py --kills {options.kills} --stage {options.stage}"
        options.out.parent.mkdir(parents=True, exist_ok=True)
        figures = {"command": how, "kills": results, "a reward of rank 1": failing}
        options.out.write_text(json.dumps(figures, indent=1) + "\n")
    return 1 if failed or not all(found["well"] for found in failing.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
