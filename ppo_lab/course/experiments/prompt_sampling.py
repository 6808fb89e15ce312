"""Notebook 12, optional: the shipped policy trained on prompts as they come, on the hard ones, on the doubtful ones.

The same seed shares the corpus, the noise and the held-out prompts, which are never weighed; only which training
prompts are drawn differs.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ppo_lab.config import RLHFConfig, load_config
from ppo_lab.rlhf import Run

ORDERS = ("epochs", "difficulty", "uncertainty")
STEPS, PROMPTS = 10, 64


def config(order: str, seed: int, *, steps: int = STEPS, prompts: int = PROMPTS) -> RLHFConfig:
    """The half-minute run with fewer prompts a step, and one evaluation at its end."""
    return load_config("rlhf/start", [
        f"sampling.order={order}", f"seed={seed}", f"steps={steps}", f"sampling.prompts={prompts}",
        f"evaluation.every={steps}", "checkpoint.every=1000000",
    ], world=RLHFConfig)  # fmt: skip


def row(order: str, seed: int, *, steps: int = STEPS, prompts: int = PROMPTS) -> dict[str, Any]:
    """One run. ``score``, ``gold``, ``kl``: sampled, on the held-out prompts, after the last step. ``repeats``: share
    of the prompts drawn whose text had been drawn before. ``trained``: mean score of the last step's own prompts."""
    cpu = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        run = Run(config(order, seed, steps=steps, prompts=prompts), folder=Path(folder) / "run")
        drawn: list[str] = []
        log = []
        for step in run:
            assert run.last_rollout is not None
            drawn += run.texts.prompts_of(run.last_rollout.responses)
            log.append(step)
        run.close()
    last = log[-1].evaluation
    assert last is not None and last.eval_gold is not None
    return {"order": order, "seed": seed, "score": round(last.eval_score, 5), "gold": round(last.eval_gold, 5),
            "kl": round(last.eval_ref_kl_sum, 4), "repeats": round(1 - len(set(drawn)) / len(drawn), 4),
            "trained": round(log[-1].score_mean, 5),
            "cpu_seconds": round(time.process_time() - cpu, 1)}  # fmt: skip


def gain(rows: Sequence[dict[str, Any]], order: str, key: str = "gold") -> list[float]:
    """``key`` under an order less that under epochs, seed by seed."""
    sides = ([row[key] for row in rows if row["order"] == name] for name in (order, "epochs"))
    return [a - b for a, b in zip(*sides, strict=True)]
