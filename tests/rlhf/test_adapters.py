"""Low-rank adapters: nothing is said otherwise at first, only they learn, the reference keeps its own, and merging."""

from __future__ import annotations

import copy

import pytest
import torch
from small_runs import config
from tiny import tiny

from ppo_lab.config import ConfigError
from ppo_lab.config.scale import LoRAConfig
from ppo_lab.rlhf import Run
from ppo_lab.rlhf.export import export
from ppo_lab.rlhf.models.adapters import add_adapters, linear_names, merge_adapters
from ppo_lab.rlhf.models.build import load_policy

TOKENS = torch.arange(2, 14)[None]


def logits(model):
    with torch.no_grad():
        return model(TOKENS).logits


def adapted(family="llama", **changes):
    model = tiny(family)
    add_adapters(model, LoRAConfig(rank=2, **changes), seed=0)
    return model


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_adapters_say_nothing_at_first_and_are_all_that_learns(family):
    plain, model = tiny(family), adapted(family)
    assert torch.equal(logits(model), logits(plain)) and type(model) is type(plain)
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    assert trained and all("lora_" in name for name in trained)
    layers = [m for n, m in plain.base_model.named_modules() if n.split(".")[-1] in linear_names(plain)]
    assert len(trained) == 2 * len(layers), "A and B, every linear layer of the trunk"
    assert len(layers) == 2 * (7 if family == "llama" else 4), "of two blocks"
    again = dict(adapted(family).named_parameters())
    assert all(torch.equal(p, again[name]) for name, p in model.named_parameters()), "drawn from the seed alone"


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_the_formula_and_that_a_merged_model_says_the_same(family):
    model = adapted(family, alpha=6.0)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "lora_B" in name:
                p.copy_(torch.randn(p.shape, generator=generator) * 0.1)
    name, layer = next((n, m) for n, m in model.named_modules() if hasattr(m, "base_layer"))
    a, b = layer.lora_A["default"].weight, layer.lora_B["default"].weight
    x = torch.randn(3, a.shape[1], generator=generator)
    want = layer.base_layer(x) + 6.0 / 2 * (x @ a.T @ b.T)
    assert torch.allclose(layer(x), want, atol=1e-6), name
    before = logits(model)
    assert not torch.allclose(before, logits(tiny(family)), atol=1e-3)
    merge_adapters(model)
    assert {n for n, _ in model.named_parameters()} == {n for n, _ in tiny(family).named_parameters()}
    assert torch.allclose(logits(model), before, atol=1e-5)


def test_wrong_targets_are_named():
    with pytest.raises(ConfigError, match=r"policy.lora.targets must name linear layers of .* got \['nowhere'\]"):
        adapted(targets=("nowhere",))
    assert {n.split(".")[-1] for n, m in adapted(targets=("q_proj",)).named_modules() if hasattr(m, "base_layer")} == {
        "q_proj"
    }


def test_adapters_and_last_layers_exclude_each_other():
    with pytest.raises(ConfigError, match="policy.trainable_layers must be unset with policy.lora.rank 2"):
        config(policy__lora={"rank": 2}, policy__trainable_layers=1)


def test_a_run_trains_adapters_against_their_first_state_and_exports_them_merged(tmp_path):
    run = Run(config(policy__lora={"rank": 2}, optimizer__actor_rate=0.02), folder=tmp_path / "run")
    reference = run.learner.frozen["reference"].policy
    policy, first = run.learner.module.policy, copy.deepcopy(reference.state_dict())
    assert any("lora_" in name for name in first), "the reference has adapters of its own"
    for name, p in reference.named_parameters():
        shared = dict(policy.named_parameters())[name] is p
        assert shared == ("lora_" not in name), "weights once, adapters twice"
    steps = list(run)
    assert steps[0].ref_kl_sum == pytest.approx(0, abs=1e-5) and abs(steps[-1].ref_kl_sum) > 1e-3
    assert all(torch.equal(x, first[name]) for name, x in reference.state_dict().items())
    written = export(tmp_path / "run", tmp_path / "out")
    assert written["max_logit_difference"] <= 1e-5
    tokens = torch.arange(12)[None]
    with torch.no_grad():
        mine, theirs = policy(tokens).logits, load_policy(str(tmp_path / "out"))(tokens).logits
    assert torch.allclose(mine, theirs, atol=1e-5)
