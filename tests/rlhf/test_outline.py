"""Models whose weights stay in their folder: once read they are those of transformers, or they are loaded whole."""

from __future__ import annotations

import copy
import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_reward import save_encoder

from ppo_lab.config import ConfigError
from ppo_lab.config.scale import LoRAConfig
from ppo_lab.learners.unread import read_whole, unread_in
from ppo_lab.rlhf.models.adapters import add_adapters
from ppo_lab.rlhf.models.build import load_policy, load_reward_model, quiet, save_model, train_last_layers
from ppo_lab.rlhf.tokens import word_tokenizer

TOKENIZER = word_tokenizer(["a b c d e f"])
SPECIAL = dict(vocab_size=20, pad_token_id=0, bos_token_id=1, eos_token_id=2)
LLAMA = dict(hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=32, **SPECIAL)  # fmt: skip
GPT2 = dict(n_embd=16, n_layer=2, n_head=4, n_positions=32, **SPECIAL)
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", LLAMA | {"tie_word_embeddings": False}),
    "llama tied": ("LlamaConfig", LLAMA | {"tie_word_embeddings": True}),
    "gpt2": ("GPT2Config", GPT2),
    "gpt2 untied": ("GPT2Config", GPT2 | {"tie_word_embeddings": False}),
    "qwen2": ("Qwen2Config", LLAMA | {"tie_word_embeddings": True}),
    "qwen3": ("Qwen3Config", LLAMA | {"head_dim": 4}),
    "mistral": ("MistralConfig", LLAMA),
    "gemma2": ("Gemma2Config", LLAMA | {"head_dim": 4}),
    "neox": ("GPTNeoXConfig", {k: v for k, v in LLAMA.items() if k != "num_key_value_heads"}),
}
DTYPES = {"qwen2": torch.bfloat16, "mistral": torch.float16}  # of the files; the others' are float32
IDS = torch.arange(3, 19).view(2, 8)


def folder_of(family: str, path: Path, *, files: str = "4KB") -> str:
    """A new model of a family, in several files."""
    import transformers

    kind, settings = FAMILIES[family]
    config = getattr(transformers, kind)(**settings)
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config).to(DTYPES.get(family, torch.float32))
    with quiet():
        model.save_pretrained(path, max_shard_size=files)
    TOKENIZER.save_pretrained(path)
    return str(path)


def assert_same(mine: Any, theirs: Any) -> None:
    """Class, weights, buffers, what is shared, mode, settings, and what it says."""
    assert type(mine) is type(theirs) and mine.training == theirs.training
    ours, others = mine.state_dict(), theirs.state_dict()
    assert list(ours) == list(others)
    assert all(torch.equal(x, others[name]) and x.dtype == others[name].dtype for name, x in ours.items())
    buffers = dict(theirs.named_buffers())
    assert {*buffers} == {name for name, _ in mine.named_buffers()}
    assert all(torch.equal(x, buffers[name]) and x.dtype == buffers[name].dtype for name, x in mine.named_buffers())
    assert shared(mine) == shared(theirs)
    assert json.loads(mine.config.to_json_string()) == json.loads(theirs.config.to_json_string())
    with torch.no_grad():
        assert torch.equal(mine(IDS).logits, theirs(IDS).logits)


def shared(model: Any) -> set[frozenset[str]]:
    names: dict[int, set[str]] = {}
    for name, p in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(p), set()).add(name)
    return {frozenset(alike) for alike in names.values()}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_policy_read_later_is_the_one_that_transformers_loads(family, tmp_path, caplog):
    folder = folder_of(family, tmp_path)
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    before = torch.get_rng_state()
    model = load_policy(folder, read=False)
    assert torch.equal(torch.get_rng_state(), before)
    whole = load_policy(folder)
    assert len(unread_in(model)) == len(list(model.parameters())) and not caplog.records
    assert model.generation_config.to_dict() == whole.generation_config.to_dict()
    copied = copy.deepcopy(model)
    assert_same(read_whole(model), whole)
    assert_same(read_whole(copied), whole)


@pytest.mark.parametrize("family", ["llama", "gpt2", "qwen2"])
def test_a_reward_model_too_with_and_without_a_head_in_the_folder(family, tmp_path, caplog):
    folder = folder_of(family, tmp_path / "trunk")
    model, whole = load_reward_model(folder, seed=3, read=False), load_reward_model(folder, seed=3)
    assert [name for name, p in model.named_parameters() if p not in set(unread_in(model))] == ["score.weight"]
    assert_same(read_whole(model), whole)
    save_model(whole, TOKENIZER, tmp_path / "judge")
    trained = load_reward_model(str(tmp_path / "judge"), seed=9, read=False)
    assert len(unread_in(trained)) == len(list(trained.parameters()))
    assert_same(read_whole(trained), whole)
    assert not caplog.records


def test_an_encoder_with_its_head(tmp_path, caplog):
    path = save_encoder(tmp_path / "base", TOKENIZER)
    whole = load_reward_model(path, seed=0)
    save_model(whole, TOKENIZER, tmp_path / "judge")
    again = load_reward_model(str(tmp_path / "judge"), seed=1, read=False)
    assert unread_in(again) and not caplog.records
    read_whole(again)
    assert all(torch.equal(x, whole.state_dict()[name]) for name, x in again.state_dict().items())
    assert not unread_in(load_reward_model(path, seed=0, read=False)), "its head is drawn while it is loaded"
    assert "its files lack classifier" in caplog.text


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_adapters_and_frozen_layers_are_put_on_before_the_weights_are_read(family, tmp_path):
    folder = folder_of(family, tmp_path)
    model, whole = load_policy(folder, read=False), load_policy(folder)
    for made in (model, whole):
        add_adapters(made, LoRAConfig(rank=2), seed=0)
    assert {name: p.requires_grad for name, p in model.named_parameters()} == {
        name: p.requires_grad for name, p in whole.named_parameters()
    }
    assert_same(read_whole(model), whole)
    model, whole = load_policy(folder, read=False), load_policy(folder)
    for made in (model, whole):
        train_last_layers(made, 1)
    assert [p.requires_grad for p in model.parameters()] == [p.requires_grad for p in whole.parameters()]


# --- loaded whole, with a reason ------------------------------------------------------------------------------------


def rewritten(folder: Path, change: Any) -> None:
    """The model's one file with other tensors."""
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def unpicklable(folder: Path) -> None:
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def other_twin(tensors: dict[str, torch.Tensor]) -> None:
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"] + 1


WHOLE = {
    "bin": ("llama", unpicklable, "it holds no model.safetensors and no model.safetensors.index.json"),
    "another twin": ("llama tied", lambda f: rewritten(f, other_twin),
                     "its config ties lm_head.weight to model.embed_tokens.weight, its files hold other values"),
    "a gap": ("llama", lambda f: rewritten(f, lambda t: t.pop("model.norm.weight")),
              "its files lack model.norm.weight"),
    "whole numbers": ("llama", lambda f: rewritten(f, lambda t: t.update({"model.norm.weight": torch.ones(16).int()})),
                      "model.norm.weight is torch.int32"),
}  # fmt: skip


@pytest.mark.parametrize("case", WHOLE)
def test_what_cannot_be_promised_is_loaded_whole_and_says_why(case, tmp_path, caplog):
    family, spoil, reason = WHOLE[case]
    folder = folder_of(family, tmp_path, files="1GB")
    spoil(tmp_path)
    with caplog.at_level(logging.WARNING):
        torch.manual_seed(0)
        model = load_policy(folder, read=False)
    assert caplog.messages == [f"{folder} is loaded whole on every process, not in shards: {reason}"]
    torch.manual_seed(0)
    assert_same(model, load_policy(folder))


def test_twins_that_are_alike_are_shared(tmp_path, caplog):
    folder = folder_of("llama tied", tmp_path, files="1GB")
    rewritten(tmp_path, lambda t: t.update({"lm_head.weight": t["model.embed_tokens.weight"].clone()}))
    model = load_policy(folder, read=False)
    assert not caplog.records and model.lm_head.weight is model.model.embed_tokens.weight
    assert_same(read_whole(model), load_policy(folder))


def test_only_the_output_layer_of_two_tied_ones_is_in_the_file(tmp_path, caplog):
    folder = folder_of("llama tied", tmp_path, files="1GB")
    rewritten(tmp_path, lambda t: t.update({"lm_head.weight": t.pop("model.embed_tokens.weight")}))
    model = load_policy(folder, read=False)
    assert not caplog.records and model.lm_head.weight is model.model.embed_tokens.weight
    assert_same(read_whole(model), load_policy(folder))


def no_config(folder: Path) -> None:
    (folder / "config.json").unlink()


def torn_config(folder: Path) -> None:
    (folder / "config.json").write_text('{"model_type": "lla')


def no_such_kind(folder: Path) -> None:
    (folder / "config.json").write_text('{"model_type": "nothing"}')


def no_weights(folder: Path) -> None:
    for path in folder.glob("model*"):
        path.unlink()


def lost_file(folder: Path) -> None:
    sorted(folder.glob("*.safetensors"))[1].unlink()


@pytest.mark.parametrize("spoil", [no_config, torn_config, no_such_kind, no_weights, lost_file])
def test_a_wrong_folder_is_the_same_named_error_either_way(spoil, tmp_path):
    folder = folder_of("llama", tmp_path)
    spoil(tmp_path)
    said = []
    for read in (True, False):
        with pytest.raises(ConfigError, match="policy.path .* could not be loaded") as error:
            load_policy(folder, read=read)
        said.append(str(error.value))
    assert said[0] == said[1]


@pytest.mark.parametrize("path", ["./nowhere", "smollm2-135m"])
def test_a_folder_that_is_not_there_too(path, tmp_path, monkeypatch):
    monkeypatch.setenv("PPO_LAB_CACHE", str(tmp_path / "cache"))
    said = []
    for read in (True, False):
        with pytest.raises(ConfigError) as error:
            load_policy(path, read=read)
        said.append(str(error.value))
    assert said[0] == said[1]


def test_a_torn_file_is_the_same_error_either_way(tmp_path):
    folder = folder_of("llama", tmp_path, files="1GB")
    data = (tmp_path / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(data[: len(data) // 2])
    said = []
    for read in (True, False):
        with pytest.raises(Exception) as error:  # noqa: B017 - whichever it is
            load_policy(folder, read=read)
        said.append((type(error.value), str(error.value)))
    assert said[0] == said[1]
