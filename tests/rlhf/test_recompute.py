"""Recomputed blocks: the same gradients from less memory, with dropout off; transformers' own switch is taken over."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import pytest
import torch
from tiny import PAD, STOP, VOCABULARY, prompts_of, tiny
from torch import Tensor, nn

from ppo_lab import seeding
from ppo_lab.config import ConfigError, build
from ppo_lab.config.scale import LearnerConfig
from ppo_lab.learners.plain import PlainLearner
from ppo_lab.rlhf.generate import generate
from ppo_lab.rlhf.models.actor_critic import ActorCritic, ValueHead, trunk_of
from ppo_lab.rlhf.models.build import blocks_of, load_policy
from ppo_lab.rlhf.models.recompute import recompute_blocks
from ppo_lab.scale.memory.measure import flops, saved_bytes

FAMILIES = pytest.mark.parametrize("family", ["llama", "gpt2"])
BATCH = dict(tokens=torch.randint(3, VOCABULARY, (4, 12), generator=seeding.generator("recompute")),
             attention=torch.ones(4, 12, dtype=torch.bool))  # fmt: skip
BATCH["response"] = BATCH["tokens"][:, -8:]


class Counted:
    """How often the blocks' inner parts ran, and how many bytes autograd kept."""

    def __init__(self, model: nn.Module):
        self.calls, self.kept = 0, 0
        for block in blocks_of(model):
            block.mlp.register_forward_pre_hook(self.called)  # a repetition ends where all is known again

    def called(self, *_: Any) -> None:
        self.calls += 1

    def keep(self, x: Tensor) -> Tensor:
        self.kept += x.numel() * x.element_size()
        return x


def learner_of(policy: nn.Module) -> PlainLearner:
    head = ValueHead(32, generator=seeding.generator("head"))
    module = ActorCritic(policy, head, copy.deepcopy(trunk_of(policy))).double().train()
    return PlainLearner(module, actor_rate=0.1, critic_rate=0.1, device="cpu")


def step(family: str, every: int | None, kind: str = "block") -> tuple[dict[str, Tensor], Counted, PlainLearner]:
    policy = tiny(family, dropout=0.5)
    if every is not None:
        recompute_blocks(policy, every=every, kind=kind)
    learner = learner_of(policy)
    counted = Counted(learner.module.policy)
    with torch.autograd.graph.saved_tensors_hooks(counted.keep, lambda x: x):
        seen = learner.forward(**BATCH)
        loss = sum(seen[name].sum() for name in ("logp", "entropy", "value"))
    learner.accumulate(loss)
    return {name: p.grad for name, p in learner.parameters.items()}, counted, learner


@FAMILIES
@pytest.mark.parametrize(("every", "calls"), [(1, 4), (2, 3)])
def test_the_same_gradients_from_less_memory(family: str, every: int, calls: int) -> None:
    plain, before, _ = step(family, None)
    found, after, learner = step(family, every)
    assert before.calls == 2 and after.calls == calls
    assert all(torch.equal(found[name], plain[name]) for name in plain) and len(plain) > 20  # dropout is off in both
    assert after.kept < (0.6 if every == 1 else 0.85) * before.kept
    assert any(part.training for part in learner.module.modules() if isinstance(part, nn.Dropout)) or family == "llama"


@FAMILIES
def test_a_copy_recomputes_its_own_blocks(family: str) -> None:
    policy = tiny(family)
    recompute_blocks(policy)
    other = copy.deepcopy(policy)
    with torch.no_grad():
        for p in other.parameters():
            p.mul_(1.5)
    tokens = BATCH["tokens"]
    assert not torch.equal(policy(tokens).logits, other(tokens).logits)
    other(tokens).logits.sum().backward()
    assert all(p.grad is None for p in policy.parameters()) and all(p.grad is not None for p in other.parameters())


@FAMILIES
def test_sampling_with_a_cache_is_as_before(family: str) -> None:
    model, prompts = tiny(family), prompts_of([[3, 4, 5], [6, 7]])
    options = dict(max_new_tokens=6, stop_ids=[STOP], pad_id=PAD, noise=torch.rand(2, 6))
    before = generate(model, prompts, **options)
    recompute_blocks(model)
    assert torch.equal(generate(model, prompts, **options).logp, before.logp)


@FAMILIES
def test_what_transformers_was_told_is_done_and_never_silently_left_out(family: str, tmp_path: Any) -> None:
    policy = tiny(family)
    policy.activation_checkpointing_enable()
    with pytest.raises(ValueError, match=r"gradient checkpointing of transformers .* got it on in policy\."):
        learner_of(policy)
    policy.config.gradient_checkpointing = True  # as old configs on the hub carry it
    policy.save_pretrained(tmp_path)
    loaded = load_policy(str(tmp_path))
    learner = learner_of(loaded)
    counted = Counted(learner.module.policy)
    learner.accumulate(learner.forward(**BATCH)["logp"].sum())
    assert counted.calls == 4


def test_how_often_is_checked() -> None:
    with pytest.raises(ValueError, match="every must be at least 1, got 0"):
        recompute_blocks(tiny(), every=0)


@FAMILIES
@pytest.mark.parametrize("every", [1, 2])
def test_selective_the_same_gradients_and_no_linear_layer_runs_twice(family: str, every: int) -> None:
    plain, _, _ = step(family, None)
    found, _, _ = step(family, every, kind="selective")
    assert all(torch.equal(found[name], plain[name]) for name in plain) and len(plain) > 20


def test_selective_keeps_more_than_inputs_and_less_than_all() -> None:
    kept = {}
    for kind in (None, "selective", "block"):
        policy = tiny("llama")
        if kind:
            recompute_blocks(policy, kind=kind)
        with saved_bytes(policy) as saved:
            policy(BATCH["tokens"], use_cache=False)
        kept[kind] = saved.bytes
    assert kept["block"] < 0.75 * kept["selective"] and kept["selective"] < 0.75 * kept[None]


def test_a_second_backward_pass_through_kept_results_is_named() -> None:
    policy = tiny("llama")
    recompute_blocks(policy, kind="selective")
    loss = policy(BATCH["tokens"], use_cache=False).logits.square().mean()
    first = torch.autograd.grad(loss, [*policy.parameters()], retain_graph=True)
    assert all(g.isfinite().all() for g in first)
    with pytest.raises(RuntimeError, match="learner.recompute selective lost a linear layer's result to an earlier"):
        torch.autograd.grad(loss, [*policy.parameters()])


def test_kinds_are_named() -> None:
    with pytest.raises(ValueError, match="kind must be one of block, selective, got 'some'"):
        recompute_blocks(tiny(), kind="some")
    with pytest.raises(ConfigError, match="learner.recompute selective needs learner.recompute_every"):
        build(LearnerConfig, {"recompute": "selective"})


def test_selective_under_shards_runs_no_linear_layer_twice() -> None:
    """Marked as ZeRO-3 marks them, so that the other kind of checkpoint is taken."""
    found = {}
    for kind in (None, "selective", "block"):
        policy = tiny("llama").eval()
        if kind:
            recompute_blocks(policy, kind=kind)
            for p in policy.parameters():
                p.ds_id = 0
        once = partial(lambda net: net(BATCH["tokens"], use_cache=False).logits.square().mean().backward(), policy)
        found[kind] = flops(once), [p.grad for p in policy.parameters()]
    plain, selective, block = (found[kind] for kind in (None, "selective", "block"))
    attention = 2 * 2 * 4 * 12 * 12 * 32 * 2  # two products, two operations a number, 4 rows of 12, 2 blocks
    assert selective[0] - plain[0] == attention < (block[0] - plain[0]) / 4
    assert all(torch.equal(a, b) for a, b in zip(plain[1], selective[1], strict=True))
