"""Shapes read off models without weights: counts to the number, activations within 15 %, strange blocks by name."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ppo_lab import seeding
from ppo_lab.config.scale import LoRAConfig
from ppo_lab.rlhf.models.actor_critic import trunk_of
from ppo_lab.rlhf.models.adapters import add_adapters
from ppo_lab.rlhf.models.build import blocks_of
from ppo_lab.scale.memory import Setup, activation_bytes, cache_bytes, plan, shape_of
from ppo_lab.scale.memory.measure import saved_bytes

SMALL: dict[str, Any] = dict(vocab_size=97, hidden_size=48, num_hidden_layers=3, num_attention_heads=4,
                             intermediate_size=136, max_position_embeddings=64, bos_token_id=0, eos_token_id=1,
                             pad_token_id=2)  # fmt: skip
GROUPED = {"num_key_value_heads": 2}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "mistral": {**GROUPED, "head_dim": 16},
    "gpt2": {"n_inner": 136},
    "qwen2": GROUPED,
    "qwen3": {**GROUPED, "head_dim": 16},
    "gemma": {**GROUPED, "head_dim": 16},
    "gemma2": {**GROUPED, "head_dim": 16},
    "gemma3_text": {**GROUPED, "head_dim": 16},
    "phi": {},
    "phi3": GROUPED,
    "gpt_neox": {},
    "gptj": {"rotary_dim": 4},
    "opt": {"ffn_dim": 136, "word_embed_proj_dim": 48},
    "falcon": {},
    "bloom": {"n_head": 4, "n_layer": 3},
    "starcoder2": GROUPED,
    "olmo2": GROUPED,
    "cohere": {},
    "granite": GROUPED,
    "smollm3": GROUPED,
}
TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
ON_THE_CPU = {("falcon", "bf16")}  # one key for all heads: torch's fused kernel for the CPU leaves it to float32 scores
each = pytest.mark.parametrize("family", FAMILIES)


def config_of(family: str, **more: Any) -> Any:
    from transformers import AutoConfig

    return AutoConfig.for_model(family, **{**SMALL, **FAMILIES.get(family, {}), **more})


def model_of(family: str, precision: str = "fp32") -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_config(config_of(family), dtype=TYPES[precision]).eval()


def batch() -> dict[str, torch.Tensor]:
    tokens = torch.randint(3, 97, (6, 33), generator=seeding.generator("test", "reading"))
    attention = torch.ones(6, 33, dtype=torch.long)
    attention[0, :3] = 0
    return {"input_ids": tokens, "attention_mask": attention}


@each
def test_counts_are_those_of_the_model_with_weights(family: str) -> None:
    model = model_of(family)
    shape = shape_of(model)
    assert shape.parameters == sum(p.numel() for p in model.parameters())
    assert shape.trunk == sum(p.numel() for p in trunk_of(model).parameters())
    assert (shape.layers, shape.block) == (3, sum(p.numel() for p in blocks_of(model)[0].parameters()))
    assert shape == shape_of(model.config)


@each
def test_keys_and_values_are_those_of_the_cache(family: str) -> None:
    from transformers import DynamicCache

    model, cache, given = model_of(family), DynamicCache(), batch()
    with torch.no_grad():
        model(**given, past_key_values=cache, use_cache=True)
    held = sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)
    assert cache_bytes(shape_of(model), rows=6, length=33, precision="fp32") == held


@pytest.mark.parametrize("precision", TYPES)
@each
def test_activations_within_15_percent(family: str, precision: str) -> None:
    if (family, precision) in ON_THE_CPU:
        pytest.skip("not the kernel that is planned for")
    model = model_of(family, precision)
    with saved_bytes(model) as saved:
        trunk_of(model)(**batch(), use_cache=False)
    planned = activation_bytes(shape_of(model), rows=6, length=33, precision=precision)
    assert planned == pytest.approx(saved.bytes, rel=0.15)


@pytest.mark.parametrize("family", ["qwen3", "gpt2", "gpt_neox", "phi3", "opt"])
def test_adapters_on_every_matrix_are_counted(family: str) -> None:
    model = model_of(family)
    before, shape = sum(p.numel() for p in model.parameters()), shape_of(model)
    add_adapters(model, LoRAConfig(rank=2), seed=0)
    assert shape.adapters(2) == sum(p.numel() for p in model.parameters()) - before


def test_a_shape_that_was_read_can_be_planned() -> None:
    """The default Qwen2 (12 billion) needs more than Llama 2 of 7 billion, less than that of 70."""
    from transformers import Qwen2Config

    shape = shape_of(Qwen2Config())
    peaks = [plan(Setup(policy=s, devices=8)).peak for s in (shape_of(config_of("llama")), shape)]
    assert shape.parameters == 12_049_846_272 and peaks[0] < 1e9 < 50e9 < peaks[1]


@pytest.mark.parametrize(
    ("family", "named"),
    [
        ("mixtral", "feed-forward part, got 'mixtral' with mlp.experts.gate_up_proj"),
        ("gpt_oss", "got 'gpt_oss' with mlp.experts"),
        ("deepseek_v3", "got 'deepseek_v3' with"),
        ("mamba", "got 'mamba' with mixer.conv1d.weight"),
        ("lfm2", "got 'lfm2'"),
        ("bert", "model_type must be a causal language model, got 'bert'"),
        ("t5", "model_type must be a causal language model, got 't5'"),
        ("gemma3", "model_type must be a decoder of texts alone, got 'gemma3'; use its text_config"),
    ],
)
def test_what_is_built_otherwise_is_named(family: str, named: str) -> None:
    from transformers import AutoConfig

    with pytest.raises(ValueError, match=named):
        shape_of(AutoConfig.for_model(family))
