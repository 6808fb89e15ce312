"""The files below ``configs/scale``: what their headers say, and the plan that each describes.

A header is comment lines ``# key: value`` at the top. ``model`` (a shape), ``hardware`` (as ``8 x 80 GB``) and ``node``
(as ``8 devices, 1000 GB``: main memory) are read here, since a config does not say what it runs on; ``inputs`` and
``launch`` are for people.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from ppo_lab.config import ConfigError, RLHFConfig, load_config
from ppo_lab.paths import config_root, find_config
from ppo_lab.scale.memory.setup import Setup
from ppo_lab.scale.memory.shape import named

HEADER = re.compile(r"^# (\w+): (.+)$")
MACHINE = re.compile(r"(\d+) x (\d+(?:\.\d+)?) GB")
NODE = re.compile(r"(\d+) devices?, (\d+(?:\.\d+)?) GB")
WANTED = ("model", "hardware", "node", "inputs", "launch")


def header_of(path: Path) -> dict[str, str]:
    """The ``# key: value`` lines before the first setting; a line ``#   more`` goes on with the last key."""
    found: dict[str, str] = {}
    last = ""
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        if match := HEADER.match(line):
            last = match[1]
            found[last] = match[2].strip()
        elif last and line.startswith("#   "):
            found[last] += " " + line[1:].strip()
    return found


def scale_names() -> list[str]:
    """Names of the shipped run configs for many devices, as ``scale/7b``."""
    folder = config_root() / "scale"
    return sorted(f"scale/{path.stem}" for path in folder.glob("*.yaml") if "model" in header_of(path))


def is_scale_config(name: str) -> bool:
    """Whether this is a config (shipped, or a file of your own) whose header names a model and a machine."""
    try:
        path = find_config(name)
    except ValueError:
        return False
    return path.suffix in (".yaml", ".yml") and {"model", "hardware"} <= header_of(path).keys()


def settings_of(name: str) -> dict[str, Any]:
    """The config as keyword arguments of `Setup`.

    Raises:
        ConfigError: the header lacks a line, or the hardware is not written as ``8 x 80 GB``.
    """
    path = find_config(name)
    header, cfg = header_of(path), load_config(path, world=RLHFConfig)
    if missing := [key for key in WANTED if key not in header]:
        raise ConfigError(f"{path.name} must say {', '.join(missing)} in its header, as '# hardware: 8 x 80 GB'")
    if not (machine := MACHINE.search(header["hardware"])):
        raise ConfigError(f"{path.name} must name its hardware as '8 x 80 GB', got {header['hardware']!r}")
    if not (node := NODE.search(header["node"])):
        raise ConfigError(f"{path.name} must describe a node as '8 devices, 1000 GB', got {header['node']!r}")
    learner = cfg.learner
    if cfg.ppo.micro_batch is None or cfg.sampling.batch is None:
        raise ConfigError(f"{path.name} must set ppo.micro_batch and sampling.batch; ppo-lab plan chooses them")
    return {
        "policy": named(header["model"]),
        "devices": int(machine[1]),
        "memory": float(machine[2]) * 1e9,
        "node_devices": int(node[1]),
        "node_memory": float(node[2]) * 1e9,
        "load": "sharded" if cfg.policy.path and not cfg.sft.steps else "whole",
        "stage": learner.stage if learner.kind == "zero" else 0,
        "precision": {"no": "fp32"}.get(cfg.precision, cfg.precision),
        "offload": learner.offload,
        "recompute_every": learner.recompute_every,
        "recompute": learner.recompute,
        "lora": cfg.policy.lora.rank or None,
        "critic": "shared" if cfg.critic.trunk == "shared" else "policy" if cfg.critic.init == "policy" else "own",
        "prompt": cfg.corpus.max_prompt_tokens,
        "answer": cfg.sampling.max_new_tokens,
        "rows": cfg.minibatch_rows,
        "micro_batch": cfg.ppo.micro_batch,
        "sample_batch": cfg.sampling.batch,
        "generation": learner.generation,
        "bucket": learner.bucket,
        "prefetch": learner.prefetch,
    }


def setup_of(name: str) -> Setup:
    """What the planner sees in a scale config."""
    return Setup(**settings_of(name))


def zero_files() -> dict[str, dict[str, Any]]:
    """The DeepSpeed settings that the learner makes for a model larger than any bucket, by file name."""
    from ppo_lab.config.scale import LearnerConfig
    from ppo_lab.learners.zero.settings import deepspeed_settings

    large = LearnerConfig(kind="zero", persistence_threshold=1_000_000)
    kinds: dict[str, tuple[str, dict[str, Any]]] = {
        "zero1.json": ("fp16", {"stage": 1}),
        "zero2.json": ("bf16", {"stage": 2, "overlap": True}),
        "zero3.json": ("bf16", {}),
        "zero3_offload.json": ("bf16", {"offload": "all"}),
    }
    return {
        name: deepspeed_settings(large.model_copy(update=changes), precision=precision, max_norm=1.0, elements=1 << 60)
        for name, (precision, changes) in kinds.items()
    }


if __name__ == "__main__":
    for name, settings in zero_files().items():
        (config_root() / "scale" / name).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
