"""A run as a plain Hugging Face folder: what is written is read back, and nothing empty or half is left behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from small_runs import config

from ppo_lab import checkpoint
from ppo_lab.config import ConfigError
from ppo_lab.rlhf import Run
from ppo_lab.rlhf import export as module
from ppo_lab.rlhf.export import export
from ppo_lab.rlhf.models.build import save_model


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    made = Run(config(steps=2, checkpoint__every=1, checkpoint__keep=2), folder=tmp_path_factory.mktemp("export") / "r")
    list(made)
    return made


def logits(folder: Path) -> torch.Tensor:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        return model(**tokenizer("this movie was", return_tensors="pt")).logits


def test_b40_the_folder_holds_the_trained_policy_and_no_empty_tensor(run: Run, tmp_path: Path) -> None:
    told = export(run.folder, tmp_path / "model")
    policy = run.learner.module.policy.eval()
    inputs = run.parts.tokenizer("this movie was", return_tensors="pt")
    with torch.no_grad():
        here = policy(**inputs).logits
    assert torch.equal(logits(tmp_path / "model"), here)
    assert not torch.equal(logits(run.folder / "models" / "sft"), here), "PPO moved it"
    parameters = sum(p.numel() for p in policy.parameters())
    assert told == {"step": 2, "parameters": parameters, "bytes": 4 * parameters, "max_logit_difference": 0.0}
    with safe_open(tmp_path / "model" / "model.safetensors", framework="pt") as file:
        assert all(file.get_tensor(name).numel() > 0 for name in file.keys())


def test_an_earlier_step_can_be_exported(run: Run, tmp_path: Path) -> None:
    assert export(run.folder, tmp_path / "model", step=1)["step"] == 1
    export(run.folder, tmp_path / "last")
    assert not torch.equal(logits(tmp_path / "model"), logits(tmp_path / "last"))


@pytest.mark.parametrize("spoil", ["empty", "short", "other"])
def test_b40_a_save_that_lost_weights_is_found(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoil: str
) -> None:
    """As a save of shards that nobody gathered."""

    def broken(policy: Any, tokenizer: Any, folder: Path) -> None:
        save_model(policy, tokenizer, folder)
        weights = load_file(folder / "model.safetensors")
        name = next(name for name in weights if "layers.1" in name)
        if spoil == "empty":
            weights[name] = weights[name][:0]
        elif spoil == "short":
            del weights[name]
        else:
            weights[name] = weights[name] + 1
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})

    monkeypatch.setattr(module, "save_model", broken)
    message = {"empty": "empty tensors", "short": "must hold .* bytes of weights", "other": "must give equal logits"}
    with pytest.raises(ConfigError, match=message[spoil]):
        export(run.folder, tmp_path / "model")


def test_what_cannot_be_exported_is_named(run: Run, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("")
    with pytest.raises(ConfigError, match="DIR must be new or empty, got .*full"):
        export(run.folder, tmp_path / "full")
    with pytest.raises(ConfigError, match="RUN must be a run's folder"):
        export(tmp_path, tmp_path / "model")
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "config.yaml").write_bytes((run.folder / "config.yaml").read_bytes())
    with pytest.raises(ConfigError, match="RUN must hold a checkpoint, got none"):
        export(tmp_path / "begun", tmp_path / "model")
    tensors, _ = checkpoint.load(checkpoint.latest(run.folder) or Path())
    wide = {name: torch.cat([x, x]) if x.dim() else x for name, x in tensors.items()}
    with pytest.raises(ConfigError, match="has no place in the run's base model"):
        module.lay_over(run.learner.module.policy, wide)
    assert not (tmp_path / "model").exists()
