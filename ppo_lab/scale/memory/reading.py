"""The `Shape` of any decoder that transformers knows, read off a model without weights (on torch's meta device).

Nothing is downloaded and nothing is believed: weights are counted, and a block whose matrices are not those of
attention and one feed-forward part (experts, state spaces, compressed keys) is refused by name.
"""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from ppo_lab.rlhf.models.actor_critic import trunk_of
from ppo_lab.rlhf.models.build import blocks_of, quiet
from ppo_lab.scale.memory.shape import Shape, Weights

HEAD_NORMS = ("q_norm", "k_norm", "q_layernorm", "k_layernorm")


def shape_of(config: Any) -> Shape:
    """The shape behind a Hugging Face config, or behind a model that has one.

    Raises:
        ValueError: no decoder of texts alone, or its blocks are built otherwise; the message says what was found.
    """
    config = getattr(config, "config", config)
    kind: Any = type(config)
    shape = _shape(kind, config.to_json_string(use_diff=False))
    return replace(shape, fused=False) if getattr(config, "_attn_implementation", None) == "eager" else shape


@lru_cache(maxsize=64)
def _shape(kind: Any, text: str) -> Shape:
    return read(empty_model(kind.from_dict(json.loads(text))))


def empty_model(config: Any) -> nn.Module:
    """The causal language model of a config, every weight a size without numbers.

    Raises:
        ValueError: transformers makes no causal language model of it, or it reads both ways.
    """
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_MASKED_LM_MAPPING, AutoModelForCausalLM

    kind = config.model_type
    both = type(config) in MODEL_FOR_MASKED_LM_MAPPING and not getattr(config, "is_decoder", False)
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING or both:
        raise ValueError(f"model_type must be a causal language model, got {kind!r}; write its Shape by hand")
    if config.get_text_config() is not config or getattr(config, "is_encoder_decoder", False):
        raise ValueError(f"model_type must be a decoder of texts alone, got {kind!r}; use its text_config")
    with quiet(), torch.device("meta"):
        return AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()  # type: ignore[no-any-return]


def read(model: nn.Module) -> Shape:
    """Sizes of a causal language model, from its modules; see `shape_of`."""
    config: Any = model.config
    block = max(blocks_of(model), key=_count)
    norms = [name for name, part in block.named_modules() if "norm" in type(part).__name__.lower()]
    of_heads = [name for name in norms if name.endswith(HEAD_NORMS)]
    sizes = _attention_and_inner(block, config)
    table: Any = model.get_input_embeddings()  # type: ignore[operator]
    tied = model.get_output_embeddings().weight is table.weight  # type: ignore[operator]
    others = [m for m in trunk_of(model).modules() if isinstance(m, nn.Embedding) and m is not table]
    matrices = tuple(_in_out(m) for m in _layers(block))
    one = sizes["head"] * (sizes["heads"] + 2 * sizes["kv_heads"])
    turned = any(b == one for _, b in matrices) and "rotary" in _classes(trunk_of(model)) and not of_heads
    return Shape(layers=len(blocks_of(model)), width=config.hidden_size, vocabulary=table.num_embeddings, tied=tied,
                 positions=sum(m.num_embeddings for m in others), norm=_norm(block, config.hidden_size),
                 norms=len(norms) - len(of_heads), head_norms=bool(of_heads),
                 pieces=_pieces(block, config.model_type) + 2 * sizes["gated"], fused=bool(model._supports_sdpa),
                 turned=turned,
                 weights=Weights(_count(block), _count(trunk_of(model)), _count(model), matrices), **sizes)  # fmt: skip


def _attention_and_inner(block: nn.Module, config: Any) -> dict[str, Any]:
    """Heads, their width, and the feed-forward part, such that the block's matrices have just these elements."""
    d, heads = config.hidden_size, getattr(config, "num_attention_heads", None) or 0
    found = [_in_out(m) for m in _layers(block)]
    strange = [name for name, p in block.named_parameters() if p.dim() > 2]
    all_of_it = sum(a * b for a, b in found)
    named = [getattr(config, name, None) for name in ("num_key_value_heads", "num_kv_heads")]
    width = getattr(config, "head_dim", None) or d // max(heads, 1)
    for kv in (*named, heads, 1):  # of several queries alike with one key, the config may still name all heads
        for inner, out in reversed(found):
            attention = 2 * d * width * (heads + (kv or 0))
            for gated in (True, False):
                if (not strange and heads and isinstance(kv, int) and kv and heads % kv == 0 and out == d
                        and attention + (3 if gated else 2) * d * inner == all_of_it):  # fmt: skip
                    return {"heads": heads, "kv_heads": kv, "head": width, "inner": inner, "gated": gated}
    raise ValueError(
        f"model_type must have blocks of attention and one feed-forward part, got {config.model_type!r} with "
        f"{', '.join(strange) or ', '.join(f'{a} x {b}' for a, b in found) or 'no matrix'}; write its Shape by hand"
    )


def _layers(block: nn.Module) -> list[nn.Module]:
    from transformers.pytorch_utils import Conv1D

    return [m for m in block.modules() if isinstance(m, nn.Linear | Conv1D)]


def _in_out(layer: Any) -> tuple[int, int]:
    """Of a linear layer, or of GPT-2's Conv1D, which keeps its matrix the other way round."""
    a, b = layer.weight.shape
    return (b, a) if isinstance(layer, nn.Linear) else (a, b)


def _count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def _classes(module: nn.Module) -> str:
    return " ".join(type(m).__name__.lower() for m in module.modules())


def _norm(block: nn.Module, width: int) -> tuple[float, float] | None:
    """Bytes a number that a norm of the block keeps, its output with them, in float32 and in half precision."""
    found = [m for m in block.modules() if "norm" in type(m).__name__.lower()]
    if not found:
        return (0.0, 0.0)
    kept = []
    for dtype in (torch.float32, torch.bfloat16):
        norm = copy.deepcopy(found[-1]).to_empty(device="cpu").to(dtype)
        size = max([p.numel() for p in norm.parameters()] or [width])
        x = torch.ones(1, 4, size, dtype=dtype, requires_grad=True) * 1
        _, saved = _kept(norm, x)
        kept.append(sum(t.untyped_storage().nbytes() for t in saved if t.numel() >= x.numel()) / x.numel())
    return (kept[0], kept[1])


def _pieces(block: nn.Module, model_type: str) -> int:
    """How many tensors of its size the feed-forward part's activation keeps, what it writes counted with them."""
    for part in reversed([*block.modules()]):
        strange = isinstance(part, nn.Dropout | nn.Identity) or "norm" in type(part).__name__.lower()
        if strange or any(part.children()) or [*part.parameters(), *part.buffers()]:
            continue
        x = torch.ones(64, requires_grad=True) * 1.0
        try:
            y, saved = _kept(part, x)
        except (TypeError, ValueError, RuntimeError, IndexError):
            continue  # a part that is no function of one tensor
        if isinstance(y, Tensor) and y.shape == x.shape and len(saved) > 0:
            return len(saved)
    raise ValueError(f"model_type must have an activation between its matrices, got {model_type!r} without one")


def _kept(part: nn.Module, x: Tensor) -> tuple[Any, list[Tensor]]:
    """The part's answer to ``x``, and the storages that autograd keeps of it, the answer's with them."""
    own = {p.untyped_storage().data_ptr() for p in part.parameters()}
    kept: dict[int, Tensor] = {}

    def keep(t: Tensor) -> Tensor:
        kept[t.untyped_storage().data_ptr()] = t.detach()
        return t

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        y = part(x)
    if isinstance(y, Tensor):
        kept[y.untyped_storage().data_ptr()] = y.detach()
    return y, [t for address, t in kept.items() if address not in own]
