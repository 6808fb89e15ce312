"""Low-rank adapters in place of training whole layers (Hu et al. 2022), by peft.

The adapters are put into the model itself: its class, its `base_model` and its generation stay what they were. The
reference is a copy of policy *and adapters* as they were at the start (`copy_trainable`: the frozen weights under them
are shared). Switching the adapters off would be another model wherever they did not start at zero.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from ppo_lab.config import ConfigError
from ppo_lab.config.scale import LoRAConfig

from .build import random_state

NAME = "default"  # peft's, part of every parameter name


def add_adapters(model: nn.Module, cfg: LoRAConfig, *, seed: int, field: str = "policy.lora") -> None:
    r"""Freeze a model and give its linear layers trainable adapters, :math:`W x + \frac{\alpha}{r} B A x`.

    A is drawn from ``seed`` and B starts at 0, so at first the model says what it said before. Raising r: more to learn
    with, at more memory.

    Raises:
        ConfigError: peft is not installed, or no layer has such a name.
    """
    from transformers.pytorch_utils import Conv1D

    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError as error:
        raise ConfigError(f"{field}.rank {cfg.rank} needs peft ({error}); pip install 'ppo_lab[scale]'") from error
    targets = list(cfg.targets) or linear_names(model)
    settings = LoraConfig(
        r=cfg.rank, lora_alpha=cfg.alpha, target_modules=targets, lora_dropout=0.0, bias="none",  # type: ignore[arg-type]
        fan_in_fan_out=any(isinstance(part, Conv1D) for part in model.modules()),
    )  # fmt: skip
    model.requires_grad_(False)
    try:
        with random_state("adapters", seed):
            inject_adapter_in_model(settings, model)
    except ValueError as error:
        raise ConfigError(f"{field}.targets must name linear layers of the model, got {targets} ({error})") from error


def linear_names(model: nn.Module) -> list[str]:
    """Last names of all linear layers of the trunk (transformers' Conv1D counts); the output layer is left alone."""
    from transformers.pytorch_utils import Conv1D  # what GPT-2 has for linear layers, its weight the other way round

    trunk = model.base_model
    kinds = (nn.Linear, Conv1D)
    return sorted({name.split(".")[-1] for name, part in trunk.named_modules() if isinstance(part, kinds)})  # type: ignore[operator, union-attr]


def merge_adapters(model: nn.Module) -> None:
    """Add every adapter to the layer under it and take it out: a plain model again, which says the same."""
    for name, part in list(model.named_modules()):
        base: Any = getattr(part, "base_layer", None)
        if base is not None:
            part.merge()  # type: ignore[operator]
            parent, _, last = name.rpartition(".")
            setattr(model.get_submodule(parent), last, base)
