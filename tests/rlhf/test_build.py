"""Models: keyed first weights, frozen layers, reward models on a trunk, and errors about what is not there."""

from __future__ import annotations

import json

import pytest
import torch
from tiny_reward import save_encoder

from ppo_lab.config import ConfigError
from ppo_lab.config.language import PolicyConfig
from ppo_lab.rlhf.models.build import (
    blocks_of,
    build_policy,
    build_reward_model,
    context_of,
    head_layer,
    is_causal,
    load_policy,
    load_reward_model,
    load_tokenizer,
    save_model,
    train_last_layers,
)
from ppo_lab.rlhf.tokens import word_tokenizer

TOKENIZER = word_tokenizer(["a b c d e f"])
FAMILIES = ["llama", "gpt2"]


def policy(family: str = "llama", *, seed: int = 0, **settings):
    return build_policy(
        PolicyConfig(family=family, layers=2, width=16, heads=2, context=32, **settings), TOKENIZER, seed
    )


def equal(a, b) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))


@pytest.mark.parametrize("family", FAMILIES)
def test_first_weights_hang_on_the_seed_and_touch_no_global_state(family):
    before = torch.get_rng_state()
    first = policy(family)
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(3)
    assert equal(first, policy(family)) and not equal(first, policy(family, seed=1))
    assert context_of(first) == 32 and len(blocks_of(first)) == 2
    assert all(p.dtype == torch.float32 for p in first.parameters())


@pytest.mark.parametrize("family", FAMILIES)
def test_folders_come_back_as_they_were(family, tmp_path, capfd):
    made = policy(family)
    save_model(made, TOKENIZER, tmp_path)
    assert (
        equal(load_policy(str(tmp_path)), made) and load_tokenizer(str(tmp_path)).get_vocab() == TOKENIZER.get_vocab()
    )
    judge = build_reward_model(made, seed=0)
    save_model(judge, TOKENIZER, tmp_path / "judge")
    assert equal(load_reward_model(str(tmp_path / "judge"), seed=9), judge)
    assert "Loading weights" not in capfd.readouterr().err, "no progress bars of others"


@pytest.mark.parametrize("family", FAMILIES)
def test_only_the_last_blocks_and_the_final_norm_are_trained(family):
    made = policy(family, trainable_layers=1)
    moving = {name for name, p in made.named_parameters() if p.requires_grad}
    last, norm = ("model.layers.1.", "model.norm.") if family == "llama" else ("transformer.h.1.", "transformer.ln_f.")
    assert moving and all(name.startswith((last, norm)) for name in moving) and any(n.startswith(norm) for n in moving)
    assert (
        not made.get_input_embeddings().weight.requires_grad and not made.get_output_embeddings().weight.requires_grad
    )
    with pytest.raises(ConfigError, match="policy.trainable_layers must be at most the 2 blocks of the model, got 3"):
        train_last_layers(made, 3)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_reward_model_stands_on_a_copy_of_the_trunk(family):
    made = policy(family)
    judge = build_reward_model(made, seed=0)
    assert is_causal(judge) and judge.config.num_labels == 1 and equal(judge.base_model, made.base_model)
    with torch.no_grad():
        next(judge.base_model.parameters()).zero_()
    assert equal(made, policy(family)), "a copy"
    assert torch.equal(head_layer(judge).weight, head_layer(build_reward_model(made, seed=0)).weight)
    assert not torch.equal(head_layer(judge).weight, head_layer(build_reward_model(made, seed=1)).weight)


def test_reward_model_from_an_encoder_has_a_fresh_keyed_head(tmp_path):
    path = save_encoder(tmp_path, TOKENIZER)
    first, again, other = (load_reward_model(path, seed=seed) for seed in (0, 0, 1))
    assert type(first).__name__ == "BertForSequenceClassification" and not is_causal(first)
    assert equal(first, again) and not torch.equal(head_layer(first).weight, head_layer(other).weight)


def test_a_model_without_a_score_is_refused():
    with pytest.raises(
        ConfigError, match="must be a sequence-classification model with one label, got LlamaForCausalLM"
    ):
        head_layer(policy())


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("./nowhere", "policy.path must name an existing folder, .* got './nowhere'; check the path"),
        ("smollm2-135m", "policy.path 'smollm2-135m' is not there yet: .*ppo-lab fetch smollm2-135m"),
        ("{folder}", "policy.path .* could not be loaded"),
    ],
)
def test_a_missing_model_is_named(path, message, tmp_path, monkeypatch):
    monkeypatch.setenv("PPO_LAB_CACHE", str(tmp_path / "cache"))
    with pytest.raises(ConfigError, match=message):
        load_policy(path.format(folder=tmp_path))


def test_a_tokenizer_without_pad_takes_eos_and_one_without_both_is_refused(tmp_path):
    made = word_tokenizer(["a b"])
    made.pad_token = None
    made.save_pretrained(tmp_path / "eos")
    assert load_tokenizer(str(tmp_path / "eos")).pad_token == "<eos>"
    made.eos_token = None
    made.save_pretrained(tmp_path / "none")
    with pytest.raises(ConfigError, match="must have a pad or an EOS token, got neither"):
        load_tokenizer(str(tmp_path / "none"))


def test_a_vocabulary_too_large_for_the_model_is_refused(tmp_path):
    save_model(policy(), TOKENIZER, tmp_path)
    with pytest.raises(ConfigError, match="must have an embedding for each of the tokenizer's 30 tokens, got 10"):
        build_policy(PolicyConfig(path=str(tmp_path)), word_tokenizer([f"w{i}" for i in range(26)]), 0)


def test_dropout_reaches_the_model():
    assert (
        policy("gpt2", dropout=0.2).config.resid_pdrop == policy("llama", dropout=0.2).config.attention_dropout == 0.2
    )


def test_settings_are_saved_in_full(tmp_path):
    save_model(policy(), TOKENIZER, tmp_path)
    saved = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    assert saved["pad_token_id"] == TOKENIZER.pad_token_id and saved["eos_token_id"] == TOKENIZER.eos_token_id
