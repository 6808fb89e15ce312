"""Whole RLHF runs, four models each, recorded to be compared: one process here, several ranks in `rank_runs.py`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from ppo_lab.config import RLHFConfig, build
from ppo_lab.rlhf import Run
from ppo_lab.rlhf.steps import advantages, rewards_of

BASE: dict[str, Any] = {
    "steps": 5,
    "corpus": {"size": 200, "held_out": 16},
    "policy": {"layers": 2, "width": 32, "heads": 4},
    "sft": {"steps": 8},
    "reward_model": {"pairs": 60, "held_out_pairs": 40, "epochs": 1, "allow_weak_reward_model": True},
    "reward": {"references": 16, "normalize": "none"},  # an untrained model's deviation, 0.16, would multiply rounding
    "sampling": {"prompts": 17, "max_new_tokens": 10},
    "ppo": {"epochs": 2, "minibatches": 1, "micro_batch": 5},
    "evaluation": {"every": 5, "prompts": 8, "gold": "vader"},
    "checkpoint": {"every": 5},
    "log": {"samples": 3},
}
BREAKS_IN: list[int] = []  # calls until `by_length` raises; empty: never
TENSORS = ("tokens", "logp", "ref_logp", "value", "score", "advantage")


def by_length(prompts: list[str], responses: list[str], **columns: list) -> list[float]:
    """A reward of a user's own."""
    if BREAKS_IN:
        BREAKS_IN[0] -= 1
        if not BREAKS_IN[0]:
            raise KeyError("nobody knows this word")
    return [float(len(response.split())) for response in responses]


def settings(**sections: Any) -> RLHFConfig:
    """`BASE` with sections laid over it, as ``ppo={"epochs": 1}``."""
    data = {k: dict(v) if isinstance(v, dict) else v for k, v in BASE.items()}
    for name, value in sections.items():
        data[name] = {**data.get(name, {}), **value} if isinstance(value, dict) else value
    return build(RLHFConfig, data)


def start(config: RLHFConfig, folder: Path, models: Path | None, *, resume: bool = False) -> Run:
    """A run that finds its SFT and reward model made."""
    if models is not None and not (folder / "models").exists():
        shutil.copytree(models, folder / "models")
    return Run(config, folder=folder, resume=resume)


def record(run: Run, *, until: int | None = None) -> tuple[dict[str, torch.Tensor], list[dict[str, Any]]]:
    """Iterate it; what was sampled, seen and judged at every step, and its metrics."""
    tensors: dict[str, torch.Tensor] = {}
    rows: list[dict[str, Any]] = []
    for step in run:
        rollout, cfg = run.last_rollout, run.config
        assert rollout is not None
        reward = rewards_of(rollout, beta=step.beta, cfg=cfg.kl)
        seen = (rollout.responses.tokens, rollout.old_logp, rollout.ref_logp, rollout.value, rollout.score,
                advantages(rollout, reward, cfg.ppo)[0])  # fmt: skip
        tensors |= {f"{step.step}.{name}": x.detach().cpu().contiguous() for name, x in zip(TENSORS, seen, strict=True)}
        rows.append({k: v for k, v in step.row().items() if not k.startswith(("seconds", "peak_memory"))})
        if step.step == until:
            break
    return tensors, rows


def keep(found: tuple[dict[str, torch.Tensor], list[dict[str, Any]]], name: Path) -> None:
    """Write a recording: ``NAME.safetensors`` and ``NAME.json``."""
    save_file(found[0], f"{name}.safetensors")
    Path(f"{name}.json").write_text(json.dumps(found[1]))


def kept(name: Path) -> tuple[dict[str, torch.Tensor], list[dict[str, Any]]]:
    """Read it back."""
    return load_file(f"{name}.safetensors"), json.loads(Path(f"{name}.json").read_text())


def assert_equal_runs(several: Any, one: Any) -> None:
    """The same text to the token; every number within 1e-6 + 1e-6·|x|, gradient norms within 1e-5·|x|."""
    assert several[0].keys() == one[0].keys()
    for name, x in one[0].items():
        if name.endswith("tokens"):
            assert torch.equal(several[0][name], x), name
        else:
            torch.testing.assert_close(several[0][name], x, rtol=1e-6, atol=1e-6, msg=lambda m, n=name: f"{n}: {m}")
    assert len(several[1]) == len(one[1])
    for mine, theirs in zip(several[1], one[1], strict=True):
        assert mine.keys() == theirs.keys()
        for name, x in theirs.items():
            relative, absolute = (1e-5, 0.0) if name.startswith("gradient_norm") else (1e-6, 1e-6)
            if isinstance(x, (int, float)):
                assert abs(mine[name] - x) <= absolute + relative * abs(x), (name, mine["step"], mine[name], x)
            elif name == "log_ratio_histogram":  # log ratios of 0 lie on an edge: rounding sends them to either side
                assert sum(mine[name]) == sum(x)
            else:
                assert mine[name] == x, (name, mine["step"])
