"""What a shared trunk saves and what it costs: critics that share nothing, some blocks, all, or all without a pull."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ppo_lab.config import RLHFConfig, load_config
from ppo_lab.rlhf import Run
from ppo_lab.rlhf.assess import arguments, inputs_of, opinions
from ppo_lab.rlhf.compare import before_after
from ppo_lab.rlhf.models.build import blocks_of
from ppo_lab.rlhf.steps import advantages, rewards_of, step_batch
from ppo_lab.scale.memory.measure import learner_bytes, saved_bytes
from ppo_lab.update import ppo_update

VARIANTS = {
    "separate": ["critic.init=policy"],
    "partial": ["critic.trunk=partial", "critic.shared_layers=2"],  # of three blocks
    "shared": ["critic.trunk=shared"],
    "shared, c1 1": ["critic.trunk=shared", "ppo.value_coef=1"],
    "shared, detached": ["critic.trunk=shared", "critic.detach=true"],
}
SAMPLES = 256
REPEATS = 3  # the least of them: what else runs on the machine only adds


def config_of(variant: str, seed: int, steps: int, *more: str) -> RLHFConfig:
    """The shipped short run under this critic; all start from the same policy, and separate from a copy of it."""
    given = ["evaluation.every=1000", f"steps={steps}", f"seed={seed}", *VARIANTS[variant], *more]
    return load_config("rlhf/start", given, world=RLHFConfig)


def measured(variant: str, seed: int, steps: int, folder: Path, *more: str) -> dict[str, Any]:
    """One run: gold and score on held-out prompts, before and after; CPU-seconds; passes of a block; bytes."""
    run = Run(config_of(variant, seed, steps, *more), folder=folder)
    seconds, last = [], time.process_time()
    variances = []
    for step in run:
        seconds.append(time.process_time() - last)
        variances.append(step.explained_variance)
        last = time.process_time()
    pair = before_after(run, SAMPLES)
    means = {f"{name}_{side}": round(float(values[name].mean()), 5)
             for side, values in (("before", pair.before), ("after", pair.after)) for name in ("gold", "score")}
    later = variances[len(variances) // 2 :]
    return {"variant": variant, "seed": seed, **means, "kl": round(float(pair.after["ref_kl_sum"].mean()), 4),
            "explained_variance": round(sum(later) / len(later), 4),
            "cpu_step": round(sorted(seconds[:-1])[len(seconds[:-1]) // 2], 4),  # the last one evaluates
            **cost(run)}  # fmt: skip


def cost(run: Run) -> dict[str, Any]:
    """What one epoch of updates on the last rollout takes, and one scoring; the weights move, so it comes last."""
    rollout, cfg, learner = run.last_rollout, run.config, run.learner
    assert rollout is not None
    reward = rewards_of(rollout, beta=run.beta, cfg=cfg.kl)
    batch = step_batch(rollout, *advantages(rollout, reward, cfg.ppo), cfg=cfg.kl, cap=cfg.sampling.max_new_tokens)
    once = cfg.ppo.model_copy(update={"epochs": 1})

    def update() -> None:
        ppo_update(learner, batch, run.assess, once, seed=0)

    rows = slice(0, cfg.minibatch_rows)
    some = arguments(inputs_of(rollout.responses))
    some = {name: x[rows] for name, x in some.items()}
    with saved_bytes(learner.module) as saved:  # type: ignore[attr-defined]
        kept = learner.forward(**some, **run.parts.lens.options)
    held = learner_bytes(learner)
    weights = held["trained weights"]
    del kept
    return {
        "cpu_update": least(update) / cfg.ppo.minibatches,  # an optimizer step
        "cpu_score": least(lambda: opinions(learner, rollout.responses, run.parts.lens)),
        "passes_update": passes(run, update), "passes_score": passes(run, lambda: opinions(
            learner, rollout.responses, run.parts.lens)),
        "bytes_weights": weights, "bytes_training": 2 * weights + held["optimizer"], "bytes_activations": saved.bytes,
    }  # fmt: skip


def least(work: Callable[[], Any]) -> float:
    """CPU-seconds of the fastest of a few calls."""
    found = []
    for _ in range(REPEATS):
        start = time.process_time()
        work()
        found.append(time.process_time() - start)
    return round(min(found), 5)


def passes(run: Run, work: Callable[[], Any]) -> int:
    """Forward passes of one block, policy and critic together; the reference is the same in all variants."""
    calls, module = [], run.learner.module  # type: ignore[attr-defined]
    blocks = [block for part in (module.policy, module.critic) if part is not None for block in blocks_of(part)]
    handles = [block.register_forward_hook(lambda *_: calls.append(1)) for block in blocks]
    try:
        work()
    finally:
        for handle in handles:
            handle.remove()
    return len(calls)


def faster(rows: list[dict[str, Any]], variant: str, key: str = "cpu_update") -> list[float]:
    """By what share more of this work is done in the same time than with a separate critic, a number a seed."""
    own, base = (by_seed(rows, name, key) for name in (variant, "separate"))
    return [b / a - 1 for a, b in zip(own, base, strict=True)]


def gain(rows: list[dict[str, Any]], variant: str, key: str = "gold") -> list[float]:
    """What training brought, a number a seed."""
    after, before = (by_seed(rows, variant, f"{key}_{side}") for side in ("after", "before"))
    return [a - b for a, b in zip(after, before, strict=True)]


def lost(rows: list[dict[str, Any]], variant: str, key: str = "gold") -> list[float]:
    """Share of the separate critic's mean gain that this variant misses, a number a seed; below 0 it gained more."""
    own, base = gain(rows, variant, key), gain(rows, "separate", key)
    return [(b - a) / (sum(base) / len(base)) for a, b in zip(own, base, strict=True)]


def by_seed(rows: list[dict[str, Any]], variant: str, key: str) -> list[float]:
    """One column of a variant, by ascending seed: columns of two variants are paired."""
    mine = sorted((row for row in rows if row["variant"] == variant), key=lambda row: row["seed"])
    return [row[key] for row in mine]


def total_bytes(row: dict[str, Any]) -> int:
    """Weights, gradients, moments of what is trained, and what one minibatch keeps for its backward pass."""
    return int(row["bytes_training"]) + int(row["bytes_activations"])


