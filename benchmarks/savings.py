"""Whether all savings cost reward: the same iterations with and without them, from the same weights, three seeds.

    python benchmarks/savings.py [--seeds 3] [--steps 30] [--rate 3e-4] [--keep savings]

Models, prompts and settings are those of `rlhf_step.py` but for the rate: a reward model of random weights, which PPO
is to please. ``plain`` is the recipe as it is, ``savings`` compiles it, shares one trunk and multiplies in bfloat16.
What is compared is the mean raw score of the last five iterations (320 answers), less that of the first, at equal
optimizer steps. Exit status 1 where the savings' gain, over the seeds, is lower by more than two standard errors.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "peers")]
LAST = 5  # iterations whose scores are averaged


def one(models: Path, seed: int, changes: list[str]) -> dict[str, Any]:
    """Scores of every iteration of a run, and the optimizer steps it took."""
    from rlhf_step import settings

    from ppo_lab.rlhf import Run

    steps = next(int(change.split("=")[1]) for change in changes if change.startswith("steps="))
    with tempfile.TemporaryDirectory() as folder:
        run = Run(settings(models, 1, seed, changes), folder=Path(folder) / "run")
        run.parts.sampling["stop_ids"] = ()  # answers of one length
        rows = [step for _, step in zip(range(steps), run, strict=False)]
        return {"score": [row.raw_score_mean for row in rows], "kl": rows[-1].ref_kl_sum,
                "optimizer_steps": run.learner.optimizer_steps}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--rate", type=float, default=3e-4)
    parser.add_argument("--keep", help="name of the file below results/")
    parser.add_argument("--one", nargs=2, metavar=("MODELS", "SEED"), help=argparse.SUPPRESS)
    parser.add_argument("changes", nargs="*", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        import json

        print(json.dumps(one(Path(asked.one[0]), int(asked.one[1]), asked.changes)))
        return 0
    return compare(asked)


def compare(asked: argparse.Namespace) -> int:
    """Both ways on every seed, side by side; the figures; the verdict."""
    import json

    import numpy as np
    from rlhf_step import SAME, SAVINGS, write_prompts
    from side_by_side import environment, keep, machine
    from tiny_model import make

    rates = [f"optimizer.{who}_rate={asked.rate}" for who in ("actor", "critic")]
    ways, found = {"plain": SAME, "savings": SAVINGS}, {}
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder))
        write_prompts(Path(folder))
        for seed in range(asked.seeds):
            started = {
                name: subprocess.Popen(
                    [sys.executable, __file__, "--one", folder, str(seed), f"steps={asked.steps}", *rates, *changes],
                    env=environment(1, str(HERE.parent)), stdout=subprocess.PIPE, text=True,
                ) for name, changes in ways.items()
            }  # fmt: skip
            said = {name: process.communicate()[0].splitlines()[-1] for name, process in started.items()}
            found[str(seed)] = {name: json.loads(line) for name, line in said.items()}
            for name, run in found[str(seed)].items():
                run["gain"] = float(np.mean(run["score"][-LAST:]) - run["score"][0])
                print(f"seed {seed}  {name:<8} score {run['score'][0]:+.3f} to {np.mean(run['score'][-LAST:]):+.3f}, "
                      f"KL {run['kl']:.2f}, optimizer steps {run['optimizer_steps']}", flush=True)  # fmt: skip
    gains = {name: np.array([runs[name]["gain"] for runs in found.values()]) for name in ways}
    apart = gains["savings"] - gains["plain"]
    error = float(apart.std(ddof=1) / len(apart) ** 0.5)
    equal = len({run["optimizer_steps"] for runs in found.values() for run in runs.values()}) == 1
    good = equal and apart.mean() >= -2 * error
    both = ", ".join(f"{name} {gain.mean():+.3f}" for name, gain in gains.items())
    print(f"gain: {both}, apart {apart.mean():+.3f} "
          f"(standard error {error:.3f}); {'not lower' if good else 'LOWER'}")  # fmt: skip
    if asked.keep:
        keep(asked.keep, {"machine": machine(1), "seeds": found, "apart": float(apart.mean()), "error": error})
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
