"""Activations, logits and weights by arithmetic against what autograd and transformers really keep."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from ppo_lab import seeding
from ppo_lab.rlhf.logprobs import head_of, hidden_logprobs
from ppo_lab.rlhf.models.actor_critic import ActorCritic, ValueHead, copy_trainable, trunk_of
from ppo_lab.rlhf.models.recompute import recompute_blocks
from ppo_lab.scale.memory import SHAPES, Shape, activation_bytes, cache_bytes, logits_bytes, shape_of
from ppo_lab.scale.memory.activations import LOGIT_KEPT
from ppo_lab.scale.memory.measure import flops, saved_bytes

ROWS, PROMPT, STEPS = 6, 13, 20
LENGTH = PROMPT + STEPS
TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
FAMILIES = ("llama", "grouped", "gpt2")
each_family = pytest.mark.parametrize("family", FAMILIES)


def config_of(family: str, layers: int = 4) -> Any:
    from transformers import GPT2Config, LlamaConfig

    if family == "gpt2":
        return GPT2Config(vocab_size=97, n_embd=48, n_layer=layers, n_head=4, n_positions=64, bos_token_id=0,
                          eos_token_id=0)  # fmt: skip
    grouped = {"num_key_value_heads": 2, "tie_word_embeddings": True} if family == "grouped" else {}
    return LlamaConfig(vocab_size=97, hidden_size=48, intermediate_size=136, num_hidden_layers=layers,
                       num_attention_heads=4, max_position_embeddings=64, **grouped)  # fmt: skip


def model_of(family: str, precision: str = "fp32", layers: int = 4) -> nn.Module:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_config(config_of(family, layers), dtype=TYPES[precision]).eval()


def batch() -> dict[str, torch.Tensor]:
    generator = seeding.generator("test", "activations")
    tokens = torch.randint(0, 97, (ROWS, LENGTH), generator=generator)
    attention = torch.ones(ROWS, LENGTH, dtype=torch.bool)
    attention[0, :3] = False  # left padding: without it transformers leaves the mask out
    return {"tokens": tokens, "attention": attention, "response": tokens[:, PROMPT:]}


def actor_critic(family: str, precision: str, layers: int = 4) -> ActorCritic:
    policy = model_of(family, precision, layers)
    head = ValueHead(48, generator=seeding.generator("test", "head"))
    return ActorCritic(policy, head, copy_trainable(trunk_of(policy)))


def kept(model: ActorCritic) -> int:
    """Bytes that one forward of actor and critic keeps."""
    with saved_bytes(model) as saved:
        model(**batch())
    return saved.bytes


@each_family
def test_weights_are_exact(family: str) -> None:
    model = model_of(family)
    shape = shape_of(model)
    assert shape.parameters == sum(p.numel() for p in model.parameters())
    assert shape.trunk == sum(p.numel() for p in trunk_of(model).parameters())


def test_shapes_of_real_models_by_their_published_counts() -> None:
    """Llama 2 (6.74, 13.0, 69.0 billion) and SmolLM2-135M (134,515,008)."""
    assert [round(SHAPES[name].parameters / 1e9, 2) for name in ("7B", "13B", "70B")] == [6.74, 13.02, 68.98]
    assert SHAPES["135M"].parameters == 134_515_008


@each_family
@pytest.mark.parametrize("precision", TYPES)
@pytest.mark.parametrize("every", [None, 1, 2, 3])
def test_activations_of_actor_and_critic_within_a_few_percent(family: str, precision: str, every: int | None) -> None:
    model = actor_critic(family, precision)
    if every is not None:
        recompute_blocks(model.policy, every=every)
        recompute_blocks(model.critic, every=every)
    shape = shape_of(model.policy)
    planned = 2 * activation_bytes(shape, rows=ROWS, length=LENGTH, precision=precision, recompute_every=every,
                                   peak=False)  # fmt: skip
    planned += logits_bytes(shape, rows=ROWS, steps=STEPS)
    assert planned == pytest.approx(kept(model), rel=0.08)


@each_family
@pytest.mark.parametrize("precision", TYPES)
@pytest.mark.parametrize("every", [1, 2])
def test_selective_recomputing_within_a_few_percent(family: str, precision: str, every: int) -> None:
    """Counted are inputs of blocks (autograd keeps them) and results of linear layers (kept beside it)."""
    model = actor_critic(family, precision)
    for trunk in (model.policy, model.critic):
        recompute_blocks(trunk, every=every, kind="selective")
    planned = 2 * activation_bytes(shape_of(model.policy), rows=ROWS, length=LENGTH, precision=precision,
                                   recompute_every=every, recompute="selective", peak=False)  # fmt: skip
    planned += logits_bytes(shape_of(model.policy), rows=ROWS, steps=STEPS)
    assert planned == pytest.approx(kept(model), rel=0.08)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@each_family
def test_operations_run_again_are_those_of_attention(family: str, attention: str) -> None:
    """Of a forward and backward; eager attention adds up to the two products of scores and values, by hand."""
    from transformers import AutoModelForCausalLM

    def count(kind: str | None) -> int:
        config = config_of(family)
        net = AutoModelForCausalLM.from_config(config, attn_implementation=attention).eval()
        if kind:
            recompute_blocks(net, kind=kind)
        given = batch()

        def once() -> None:
            states = trunk_of(net)(input_ids=given["tokens"], attention_mask=given["attention"].long(), use_cache=False)
            states.last_hidden_state.square().mean().backward()

        return flops(once)

    plain, selective, block = (count(kind) for kind in (None, "selective", "block"))
    products = 2 * 2 * ROWS * LENGTH * LENGTH * 48 * 4  # two, of two operations a number, in four blocks
    assert selective - plain == products
    assert block - plain > 4 * products


@each_family
def test_a_block_more_costs_what_is_said(family: str) -> None:
    """The difference of two depths has neither head nor embedding in it: it is right to 1 %."""
    shape = shape_of(config_of(family))
    read = LENGTH - 1  # nothing is predicted from the last token
    block = activation_bytes(shape, rows=ROWS, length=read, precision="fp32", layers=4) - activation_bytes(
        shape, rows=ROWS, length=read, precision="fp32", layers=3
    )
    measured = kept(actor_critic(family, "fp32", 4)) - kept(actor_critic(family, "fp32", 3))
    assert 2 * block == pytest.approx(measured, rel=0.01)


def test_a_wrong_count_would_show() -> None:
    """Planted: a block without its feed-forward part is far off."""
    shape = shape_of(config_of("llama"))
    thin = Shape(**{**{f: getattr(shape, f) for f in shape.__slots__}, "inner": 1})
    planned = 2 * activation_bytes(thin, rows=ROWS, length=LENGTH, precision="fp32")
    assert planned < 0.75 * kept(actor_critic("llama", "fp32"))


def test_recomputing_keeps_less_and_its_peak_is_one_block_more() -> None:
    shape = SHAPES["7B"]
    sizes = {"rows": 2, "length": 256}
    plain, *cut = (activation_bytes(shape, **sizes, recompute_every=k) for k in (None, 4, 2, 1))
    assert plain > cut[0] > cut[1] > cut[2]
    one = activation_bytes(shape, **sizes, recompute_every=1) - activation_bytes(
        shape, **sizes, recompute_every=1, peak=False
    )
    assert one == pytest.approx((plain - activation_bytes(shape, **sizes, layers=0)) / shape.layers, rel=1e-12)


def test_tensor_parallelism_divides_part_of_a_block() -> None:
    one, four = (activation_bytes(SHAPES["7B"], rows=1, length=512, tensor=t) for t in (1, 4))
    assert one / 4 < four < one


@pytest.mark.parametrize("rows", [2, 5])
def test_logits_of_one_chunk_are_what_autograd_keeps(rows: int) -> None:
    model = model_of("llama")
    hidden = torch.randn(rows, STEPS, 48, requires_grad=True)
    with saved_bytes(model) as saved:
        hidden_logprobs(hidden, head_of(model), batch()["response"][:rows])
    planned = logits_bytes(shape_of(model), rows=rows, steps=STEPS) * LOGIT_KEPT / (LOGIT_KEPT + 4)
    planned += rows * STEPS * (8 + 4)  # the tokens themselves, and an entropy each
    assert planned == pytest.approx(saved.bytes - hidden.nbytes, rel=0.02)


def test_logits_are_at_most_a_chunk() -> None:
    small, large = (logits_bytes(SHAPES["7B"], rows=rows, steps=512) for rows in (1, 64))
    assert small == large < 100e6


@each_family
def test_cache_is_exact(family: str) -> None:
    from transformers import DynamicCache

    model = model_of(family)
    cache = DynamicCache()
    tokens = batch()["tokens"]
    with torch.no_grad():
        model(input_ids=tokens, past_key_values=cache, use_cache=True)
    held = sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)
    assert cache_bytes(shape_of(model), rows=ROWS, length=LENGTH, precision="fp32") == held


@pytest.mark.parametrize("wrong", [{"rows": -1}, {"length": 0}, {"recompute_every": 0}, {"tensor": 0}])
def test_sizes_that_cannot_be_are_named(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        activation_bytes(SHAPES["7B"], **{"rows": 1, "length": 8, **wrong})


def test_unknown_families_and_precisions_are_named() -> None:
    with pytest.raises(ValueError, match="precision must be one of fp32, bf16, fp16, got 'int8'"):
        activation_bytes(SHAPES["7B"], rows=1, length=8, precision="int8")
    from transformers import BertConfig

    with pytest.raises(ValueError, match="bert"):
        shape_of(BertConfig())
