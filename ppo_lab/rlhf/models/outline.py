"""A model's outline: all of it but its weights, which stay in the folder until somebody owns them.

Once read, it is the model that transformers loads, to the bit. Where that cannot be promised, the model is loaded whole
as ever, and a warning says why.
"""

from __future__ import annotations

import json
import logging
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ppo_lab.learners.collectives import everywhere
from ppo_lab.learners.states import Stored
from ppo_lab.learners.unread import Entry, Unread

log = logging.getLogger(__name__)
KINDS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)  # weights in a file
NONE_MAY = "-"  # begins no name


class NoOutline(Exception):
    """The weights must be loaded whole; says why."""


def outline(auto: Any, where: str, *, fresh: str = NONE_MAY, **options: Any) -> tuple[Any, bool] | None:
    """A model with unread weights, and whether its files lack those named ``fresh…``; None: it must be loaded whole.

    Args:
        auto: ``AutoModelForCausalLM`` or another of transformers' Auto classes.
        where: a folder.
        fresh: how the names of weights begin that may be missing; they are 0 then, for the caller to draw.
        options: for the model's config, as ``num_labels``.

    Every rank asks, and either all get an outline or none does.
    """
    try:
        return everywhere(partial(_outline, auto, Path(where), fresh, options))
    except Exception as error:  # whatever is wrong, the usual way says it as it always did
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        log.warning("%s is loaded whole on every process, not in shards: %s", where, reason)
        return None


def _outline(auto: Any, folder: Path, fresh: str, options: dict[str, Any]) -> tuple[Any, bool]:
    if not folder.is_dir():
        raise NoOutline("it is no folder; fetch it first")
    if (folder / "adapter_config.json").exists():
        raise NoOutline("its adapters are put in while loading; export it with them merged")
    files = [Stored(path) for path in _files(folder)]
    model = _empty(auto, folder, options)
    found = _entries(model, files)
    lacks = {*model.state_dict()} - found.keys()
    _tie(model, found, lacks)
    for name in sorted(lacks):
        if not name.startswith(fresh):
            raise NoOutline(f"its files lack {name}")
    _fill(model, found)
    return model.eval(), bool(lacks)


def _files(folder: Path) -> list[Path]:
    """The safetensors files that transformers would read."""
    one, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if one.is_file():
        return [one]
    if not index.is_file():
        raise NoOutline(f"it holds no {one.name} and no {index.name}")
    return [folder / name for name in sorted({*json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()})]


def _empty(auto: Any, folder: Path, options: dict[str, Any]) -> Any:
    """The model that its config describes: parameters on the meta device, buffers as they are computed."""
    from accelerate import init_empty_weights
    from transformers import AutoConfig, GenerationConfig

    config = AutoConfig.from_pretrained(folder, trust_remote_code=False, **options)
    if getattr(config, "quantization_config", None) is not None:
        raise NoOutline("its weights are quantized")
    with init_empty_weights(include_buffers=False):
        model = auto.from_config(config, dtype=torch.float32, trust_remote_code=False)
    if any(p.dtype != torch.float32 for p in model.parameters()):
        raise NoOutline("some of its weights are of a dtype of their own")
    if model.can_generate() and (folder / "generation_config.json").exists():
        model.generation_config = GenerationConfig.from_pretrained(folder)
    return model


def _entries(model: Any, files: list[Stored]) -> dict[str, Entry]:
    """Where each parameter and buffer lies, by its name in the model, as transformers renames what files hold."""
    from transformers.conversion_mapping import get_model_conversion_mapping
    from transformers.core_model_loading import WeightConverter, WeightRenaming, rename_source_key

    rules, mine, prefix = get_model_conversion_mapping(model), model.state_dict(), model.base_model_prefix
    renamings = [rule for rule in rules if isinstance(rule, WeightRenaming)]
    converters = [rule for rule in rules if isinstance(rule, WeightConverter)]
    found: dict[str, Entry] = {}
    for file in files:
        for key, stored in file.outline.items():
            name, converted = rename_source_key(key, renamings, converters, prefix, mine)
            if name not in mine and key in mine:
                name, converted = rename_source_key(key, [], [], prefix, mine)
            if converted is not None:
                raise NoOutline(f"{key} is converted while loading")
            if name not in mine:
                continue
            if stored.shape != mine[name].shape or not stored.numel():
                raise NoOutline(f"{key} must be {tuple(mine[name].shape)}, got {tuple(stored.shape)}")
            if mine[name].is_floating_point() and stored.dtype not in KINDS:
                raise NoOutline(f"{key} is {stored.dtype}")
            found[name] = Entry(file, key)
    return found


def _tie(model: Any, found: dict[str, Entry], lacks: set[str]) -> None:
    """Share what the config ties; files that hold both must hold the same twice."""
    for target, source in model.all_tied_weights_keys.items():
        if target in found and source in found:
            pairs = zip(found[target].pieces(), found[source].pieces(), strict=True)
            if not all(torch.equal(a.float(), b.float()) for (_, a), (_, b) in pairs):
                raise NoOutline(f"its config ties {target} to {source}, its files hold other values")
            lacks.add(target)
    model.tie_weights(missing_keys=lacks, recompute_mapping=False)


def _fill(model: Any, found: dict[str, Entry]) -> None:
    """Unread parameters in place of those on the meta device, shared as those are; buffers are read."""
    names: dict[int, list[str]] = {}
    for name, p in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(p), []).append(name)
    for alike in names.values():
        entry = next((found[name] for name in alike if name in found), None)
        made = nn.Parameter(torch.zeros(model.get_parameter(alike[0]).shape)) if entry is None else Unread(entry)
        for name in alike:
            prefix, _, last = name.rpartition(".")
            model.get_submodule(prefix)._parameters[last] = made
    for name, x in model.named_buffers():
        if name in found:
            x.copy_(found[name].file[found[name].name])
