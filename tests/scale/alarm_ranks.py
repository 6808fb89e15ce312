"""The alarm of every learner on every rank, written down: JSON a kind and rank. Also called in one process.

    alarm_ranks.py MODELS OUT KIND ...
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from learners.whole_runs import settings, start

from ppo_lab.learners import processes
from ppo_lab.rlhf.steps import advantages, rewards_of, step_batch
from ppo_lab.scale.alarm import alarm, row_norms
from ppo_lab.update import ppo_update

ROW, BY = 11, 1e4  # whose advantage slips, and how far
SMALL: dict[str, Any] = {"steps": 1, "evaluation": {"every": 1}, "checkpoint": {"every": 1}}
KINDS: dict[str, dict[str, Any]] = {
    "plain": {"kind": "plain"},
    "ddp": {"kind": "ddp"},
    "zero1": {"kind": "zero", "stage": 1},
    "zero2": {"kind": "zero", "stage": 2},
    "zero3": {"kind": "zero"},
    "zero3_block": {"kind": "zero", "recompute_every": 1},
    "zero3_selective": {"kind": "zero", "recompute_every": 1, "recompute": "selective"},
}


def ring(kind: str, folder: Path, models: Path | None) -> dict[str, Any]:
    """Norms of the rows before an update, what the alarm says after it, and the norm of one more update."""
    run = start(settings(learner=KINDS[kind], **SMALL), folder, models)
    for _ in run:
        pass
    cfg, rollout = run.config, run.last_rollout
    assert rollout is not None
    credit = advantages(rollout, rewards_of(rollout, beta=run.beta, cfg=cfg.kl), cfg.ppo)
    batch = step_batch(rollout, *credit, cfg=cfg.kl, cap=cfg.sampling.max_new_tokens)
    advantage = batch.advantage.clone()
    advantage[ROW] *= BY
    spoiled = replace(batch, advantage=advantage)
    once = cfg.ppo.model_copy(update={"epochs": 1, "minibatches": 1, "standardize": "none"})
    norms = row_norms(run.learner, spoiled, run.assess, once).tolist()
    made = ppo_update(run.learner, spoiled, run.assess, once, seed=0)
    said = alarm(made, run.learner, spoiled, run.assess, once)
    later = ppo_update(run.learner, batch, run.assess, once, seed=1)
    return {"norms": norms, "said": said, "norm": made.gradient_norm_max, "later": later.gradient_norm_max}


if __name__ == "__main__":
    models, out, *kinds = sys.argv[1:]
    for kind in kinds:
        processes.join("ddp")
        found = ring(kind, Path(out) / kind, Path(models))
        from ppo_lab.learners import collectives

        (Path(out) / f"{kind}.{collectives.rank()}.json").write_text(json.dumps(found))
    processes.leave()
