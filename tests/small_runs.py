"""Small RLHF runs for tests: a config that takes seconds, and what of a run must be equal to the bit."""

from __future__ import annotations

from typing import Any

import torch

from ppo_lab import metrics
from ppo_lab.config import RLHFConfig, build

BASE: dict[str, Any] = {
    "steps": 4,
    "corpus": {"size": 200, "held_out": 16},
    "policy": {"layers": 2, "width": 32, "heads": 4, "dropout": 0.1},
    "sft": {"steps": 8, "batch": 32},
    "reward": {"sources": [{"kind": "vader"}]},
    "sampling": {"prompts": 6, "samples": 2, "max_new_tokens": 10},
    "ppo": {"epochs": 2, "minibatches": 2},
    "evaluation": {"every": 2, "prompts": 8, "gold": "vader"},
    "checkpoint": {"every": 2},
    "log": {"samples": 3},
}


def config(**changes) -> RLHFConfig:
    data = {k: dict(v) if isinstance(v, dict) else v for k, v in BASE.items()}
    for dotted, value in changes.items():
        node, *rest = dotted.split("__")
        if rest:
            data.setdefault(node, {})[rest[0]] = value
        else:
            data[node] = value
    return build(RLHFConfig, data)


def timeless(row: dict) -> dict:
    return {k: v for k, v in row.items() if not k.startswith(("seconds", "peak_memory"))}


def log_of(folder) -> list[dict]:
    return [timeless(row) for row in metrics.read(folder / "metrics.jsonl")]


def same_tensors(a: dict, b: dict) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)
