"""A trained policy as a plain Hugging Face folder, verified after writing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ppo_lab import checkpoint
from ppo_lab.config import ConfigError, RLHFConfig, load_config

from .models.adapters import add_adapters, merge_adapters
from .models.build import load_policy, load_tokenizer, save_model

POLICY = {False: "model.policy.", True: "ema.policy."}  # by whether the average is meant


def export(
    run_folder: str | Path, target: str | Path, *, step: int | None = None, average: bool = False
) -> dict[str, Any]:
    """Write the policy of a run to ``target`` so that any Hugging Face tool loads it.

    The weights come from a checkpoint (the newest, or ``step``) of any learner, laid over the model the run started
    from; with ``average`` they are the moving average that ``policy.ema`` keeps. Adapters are merged into the layers
    under them. Then the folder is read back: no tensor may be empty, the bytes must be those of the parameters, the
    logits equal.

    Returns:
        ``step, parameters, bytes, max_logit_difference``.

    Raises:
        ConfigError: no run, no checkpoint, no average in it, or a target that already holds something.
        CheckpointError: the checkpoint is torn or corrupt.
    """
    folder, target = Path(run_folder), Path(target)
    if not (folder / "config.yaml").exists():
        raise ConfigError(f"RUN must be a run's folder, got {folder} without config.yaml; see the folders in runs/")
    if target.exists() and any(target.iterdir()):
        raise ConfigError(f"DIR must be new or empty, got {target}; choose another, or delete it")
    where = checkpoint.latest(folder) if step is None else folder / "checkpoints" / f"{step:06d}"
    if where is None:
        raise ConfigError(f"RUN must hold a checkpoint, got none in {folder}; let it train, or resume it")
    tensors, state = checkpoint.stored(where)
    config = load_config(folder / "config.yaml", world=RLHFConfig)
    if average and config.policy.ema is None:
        raise ConfigError("policy.ema must be set in the run to export its average, got None; leave out --average")
    base = base_of(folder, config)
    policy, tokenizer = load_policy(base), load_tokenizer(base)
    if config.policy.lora.rank:
        add_adapters(policy, config.policy.lora, seed=0)  # all of them are overwritten
    lay_over(policy, tensors, prefix=POLICY[average])
    merge_adapters(policy)
    _write(target, policy, tokenizer)
    return {"step": state["step"], **verify(policy, target)}


def base_of(folder: Path, config: RLHFConfig) -> str:
    """Where the run's reference is: its own SFT model, or the model it was given."""
    own = folder / "models" / "sft"
    return str(own) if own.exists() else str(config.policy.path)


@torch.no_grad()
def lay_over(policy: torch.nn.Module, tensors: Mapping[str, Tensor], *, prefix: str = POLICY[False]) -> None:
    """Copy the trained parameters of a checkpoint over the model they started from."""
    parameters = dict(policy.named_parameters(remove_duplicate=False))
    for name in tensors:
        if name.startswith(prefix):
            own, x = parameters.get(name[len(prefix) :]), tensors[name]
            if own is None or own.shape != x.shape:
                raise ConfigError(f"checkpoint tensor {name} {tuple(x.shape)} has no place in the run's base model; "
                                  "put models/sft (or policy.path) back as it was")  # fmt: skip
            own.copy_(x)


def verify(policy: torch.nn.Module, target: Path) -> dict[str, Any]:
    """Read the folder back and compare.

    Raises:
        ConfigError: an empty tensor, a wrong byte count, or logits that differ by more than 1e-5.
    """
    from safetensors import safe_open

    size, empty = 0, []
    for path in sorted(target.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():
                x = file.get_tensor(name)
                size += x.numel() * x.element_size()
                empty += [name] if x.numel() == 0 else []
    unique = {p.data_ptr(): p.numel() * p.element_size() for p in policy.parameters()}
    if empty or size < sum(unique.values()):
        holes = f" and empty tensors {empty[:3]}" if empty else ""
        raise ConfigError(
            f"export to {target} must hold {sum(unique.values())} bytes of weights, got {size}{holes}; free disk space "
            "and export again"
        )
    again = load_policy(str(target))
    vocabulary = policy.get_input_embeddings().num_embeddings  # type: ignore[operator]
    tokens = torch.arange(min(32, vocabulary))[None]
    with torch.no_grad():
        gap = float((policy.eval()(tokens).logits - again.eval()(tokens).logits).abs().max())
    if not gap <= 1e-5:
        raise ConfigError(f"export to {target} must give equal logits when read back, got a difference of {gap:.1e}")
    return {"parameters": sum(p.numel() for p in policy.parameters()), "bytes": size, "max_logit_difference": gap}


def _write(target: Path, policy: Any, tokenizer: Any) -> None:
    partial = target.with_name(target.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
        save_model(policy, tokenizer, partial)
        if target.exists():
            target.rmdir()
        os.replace(partial, target)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise ConfigError(f"DIR must be writable with enough free space, got {target} ({error})") from error
