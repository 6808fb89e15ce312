"""Checkpoints come back bit for bit, and a damaged one says what is wrong with it."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest
import torch
from checkpoint_runs import STATE, leftovers, same, weights, write
from torch import nn

from ppo_lab import checkpoint, seeding
from ppo_lab.checkpoint import CheckpointError, hash_module, hash_tensors, latest, load, save, steps

# --- there and back ----------------------------------------------------------------------------------------------


def test_tensors_of_every_kind_come_back_bit_for_bit(tmp_path: Path) -> None:
    table = torch.arange(12.0).reshape(3, 4)
    tensors = {
        "double": table.double() / 3,
        "half": (table / 3).bfloat16(),
        "whole": table.long(),
        "flag": table > 5,
        "scalar": torch.tensor(7.0),
        "strided": table.t(),
        "shared": table[1:],
        "odd": torch.tensor([float("nan"), float("-inf"), -0.0]),
    }
    path = save(tmp_path, 12, tensors, {}, keep=1)
    assert path == tmp_path / "checkpoints" / "000012" == latest(tmp_path)
    assert sorted(p.name for p in path.iterdir()) == ["state.json", "weights.safetensors"]
    back, state = load(path)
    assert back.keys() == tensors.keys() and state == {}
    for name, x in tensors.items():
        assert back[name].dtype == x.dtype and back[name].shape == x.shape
        assert hash_tensors({"": back[name]}) == hash_tensors({"": x})


def test_state_comes_back_with_beta_and_generators(tmp_path: Path) -> None:
    state = STATE | {"rng": seeding.rng_state(), "list": [1, (2.5, "x")], "third": 1 / 3, "inf": float("inf")}
    _, back = load(save(tmp_path, 3, weights(), state, keep=1))
    assert back == state | {"list": [1, [2.5, "x"]]} and list(back) == list(state)
    assert back["beta"] == 0.31 and type(back["position"]) is int
    _, back = load(save(tmp_path, 4, weights(), {"score": float("nan")}, keep=1))
    assert back["score"] != back["score"]


def test_state_json_is_strict_and_speaks_for_the_weights(tmp_path: Path) -> None:
    def refuse(name: str) -> NoReturn:
        raise AssertionError(f"{name} is no JSON")

    path = save(tmp_path, 3, weights(), STATE, keep=1)
    head = json.loads((path / "state.json").read_text(), parse_constant=refuse)
    assert head["schema"] == 1 and head["step"] == 3 and head["state"]["best"] == "-inf"
    assert head["weights_sha256"] == hashlib.sha256((path / "weights.safetensors").read_bytes()).hexdigest()


def test_tensors_outlive_their_folder(tmp_path: Path) -> None:
    back, _ = load(save(tmp_path, 1, weights(size=100_000), {}, keep=1))
    shutil.rmtree(tmp_path / "checkpoints")
    assert same(back, weights(size=100_000))


REFUSED = {
    r"state\.score must not be the string 'nan', which stands for the number": {"score": "nan"},
    r"state\.a must have string keys, got 1; write str\(key\)": {"a": {1: 2}},
    r"state\.a\[1\] must be plain data, got Tensor; use \.item\(\), \.tolist": {"a": [0, torch.ones(1)]},
    r"state\.a\.b must be plain data, got float64": {"a": {"b": np.float64(1)}},
}


@pytest.mark.parametrize("message", REFUSED)
def test_state_that_would_come_back_as_something_else_is_refused(tmp_path: Path, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        save(tmp_path, 1, weights(), REFUSED[message], keep=1)
    assert latest(tmp_path) is None


def test_an_empty_tensor_is_refused(tmp_path: Path) -> None:
    """What a sharded model gives when it is saved without gathering."""
    with pytest.raises(CheckpointError, match=r"tensor model.w must not be empty, got \(0,\); gather the shards first"):
        save(tmp_path, 1, {"model.w": torch.empty(0)}, {}, keep=1)


@pytest.mark.parametrize("keep, step", [(0, 1), (1, -1)])
def test_keep_and_step_are_checked(tmp_path: Path, keep: int, step: int) -> None:
    with pytest.raises(CheckpointError, match=rf"needs keep >= 1 and step >= 0, got {keep} and {step}; keep 2"):
        save(tmp_path, step, weights(), {}, keep=keep)


# --- which are kept ----------------------------------------------------------------------------------------------


def test_the_newest_and_the_protected_are_kept(tmp_path: Path) -> None:
    write(tmp_path, 2, 4, 6, 8, 10, keep=2, protect=(4,))
    assert steps(tmp_path) == [4, 8, 10] and leftovers(tmp_path) == []
    write(tmp_path, 12, keep=1)
    assert steps(tmp_path) == [12]


def test_the_step_just_written_is_kept_though_later_ones_exist(tmp_path: Path) -> None:
    write(tmp_path, 5, 6, 7)
    write(tmp_path, 2, keep=2)
    assert steps(tmp_path) == [2, 6, 7]


def test_latest_goes_by_number_and_ignores_other_folders(tmp_path: Path) -> None:
    assert latest(tmp_path) is None and steps(tmp_path) == []
    write(tmp_path, 999_999, 1_000_000)
    for name in ("best", "2000000.partial", "42"):
        (tmp_path / "checkpoints" / name).mkdir()
    assert latest(tmp_path) == tmp_path / "checkpoints" / "1000000"
    assert load(latest(tmp_path))[0]["t"] == 1_000_000  # type: ignore[arg-type]


def test_a_kill_in_the_middle_of_a_removal_leaves_no_torn_checkpoint(tmp_path: Path, monkeypatch) -> None:
    def half(folder: Path, ignore_errors: bool) -> None:
        if folder.exists():
            (folder / "weights.safetensors").unlink()

    write(tmp_path, 1, 2)
    monkeypatch.setattr(shutil, "rmtree", half)
    write(tmp_path, 3, keep=1)
    monkeypatch.undo()
    assert steps(tmp_path) == [3] and leftovers(tmp_path) == ["000001.partial", "000002.partial"]
    write(tmp_path, 4)
    assert steps(tmp_path) == [3, 4] and leftovers(tmp_path) == []


def test_a_step_can_be_saved_again(tmp_path: Path) -> None:
    write(tmp_path, 1, 2)
    save(tmp_path, 2, weights(77), STATE, keep=1)
    assert same(load(tmp_path / "checkpoints" / "000002")[0], weights(77)) and leftovers(tmp_path) == []


def test_a_kill_between_the_two_renames_of_a_second_save_loses_nothing(tmp_path: Path) -> None:
    write(tmp_path, 1)
    home = tmp_path / "checkpoints"
    os.rename(home / "000001", home / "000001.aside")
    shutil.copytree(home / "000001.aside", home / "000001.partial")
    assert steps(tmp_path) == [1] and same(load(latest(tmp_path))[0], weights(1))  # type: ignore[arg-type]
    write(tmp_path, 2)
    assert steps(tmp_path) == [1, 2] and leftovers(tmp_path) == []


def test_what_an_interrupted_save_left_is_cleared_by_the_next(tmp_path: Path) -> None:
    write(tmp_path, 1)
    torn = tmp_path / "checkpoints" / "000002.partial"
    torn.mkdir()
    (torn / "weights.safetensors").write_bytes(b"half")
    assert latest(tmp_path) == tmp_path / "checkpoints" / "000001" and torn.exists()  # reading touches nothing
    write(tmp_path, 2)
    assert leftovers(tmp_path) == [] and same(load(tmp_path / "checkpoints" / "000002")[0], weights(2))


# --- damage ------------------------------------------------------------------------------------------------------


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-5])


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


def edit(before: str, after: str):
    def change(file: Path) -> None:
        text = file.read_text()
        assert before in text
        file.write_text(text.replace(before, after))

    return change


DAMAGE = [
    ("weights.safetensors", cut, r"is torn or was changed: SHA-256 must be \w{64}, got \w{64}"),
    ("weights.safetensors", flip, r"is torn or was changed: SHA-256 must be \w{64}, got \w{64}"),
    ("weights.safetensors", Path.unlink, "is missing"),
    ("state.json", cut, "is torn or not JSON"),
    ("state.json", Path.unlink, "is missing"),
    ("state.json", edit('"beta": 0.3', '"beta": 0.4'), "was changed: its state does not match its SHA-256"),
    ("state.json", edit('"schema": 1', '"schema": 9'), "must be of schema 1, got 9, of another ppo_lab"),
    ("state.json", edit('"step": 3', '"step": 4'), "must be of step 3, as its folder says, got 4"),
    ("state.json", edit('"weights_sha256"', '"hash"'), "must hold schema, step, weights_sha256, state_sha256, state"),
]


@pytest.mark.parametrize("name, spoil, message", DAMAGE, ids=[f"{name} {message}" for name, _, message in DAMAGE])
def test_damage_is_named_with_the_step_to_resume_from(tmp_path: Path, name: str, spoil, message: str) -> None:
    write(tmp_path, 1, 2, 3)
    home = tmp_path / "checkpoints"
    flip(home / "000002" / "weights.safetensors")  # no way back either
    spoil(home / "000003" / name)
    with pytest.raises(CheckpointError, match=rf"000003/{name} {message}.*; delete .*000003 to resume from .*000001$"):
        load(home / "000003")
    assert same(load(home / "000001")[0], weights(1))


def test_where_nothing_sound_is_left_the_message_says_so(tmp_path: Path) -> None:
    write(tmp_path, 1)
    cut(tmp_path / "checkpoints" / "000001" / "weights.safetensors")
    with pytest.raises(CheckpointError, match="no earlier checkpoint is sound, start again"):
        load(tmp_path / "checkpoints" / "000001")
    with pytest.raises(CheckpointError, match="elsewhere/state.json is missing; no earlier checkpoint is sound"):
        load(tmp_path / "elsewhere")


class Bomb:
    def __reduce__(self):  # noqa: ANN204
        return (os.mkdir, ("pickled",))


def test_nothing_is_ever_unpickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pickle whose hash is right is still no safetensors."""
    monkeypatch.chdir(tmp_path)
    path = save(tmp_path, 1, weights(), {}, keep=1)
    old = hashlib.sha256((path / "weights.safetensors").read_bytes()).hexdigest()
    (path / "weights.safetensors").write_bytes(pickle.dumps(Bomb()))
    edit(old, hashlib.sha256(pickle.dumps(Bomb())).hexdigest())(path / "state.json")
    with pytest.raises(CheckpointError, match="weights.safetensors cannot be read"):
        load(path)
    assert not Path("pickled").exists()


# --- the hash of a model -----------------------------------------------------------------------------------------


def test_hash_is_sha256_over_names_types_shapes_and_bytes() -> None:
    tensors = {"b": torch.tensor([1.0, 2.0]), "a": torch.tensor(3)}
    by_hand = hashlib.sha256(b'["a", "torch.int64", []]' + (3).to_bytes(8, "little"))
    by_hand.update(b'["b", "torch.float32", [2]]' + bytes.fromhex("0000803f00000040"))
    assert hash_tensors(tensors) == by_hand.hexdigest() == hash_tensors(dict(reversed(tensors.items())))


def test_hash_notices_every_change() -> None:
    x = torch.arange(4.0)
    bits = x.clone().view(torch.int32)
    bits[3] ^= 1
    others = [{"b": x}, {"a": x.double()}, {"a": x.view(2, 2)}, {"a": bits.view(torch.float32)}, {"a": x, "b": x}, {}]
    assert len({hash_tensors(tensors) for tensors in [{"a": x}, *others]}) == 7
    assert hash_tensors({"a": torch.stack([x, x])[:, 0]}) == hash_tensors({"a": torch.zeros(2)})  # whatever strides


def test_hash_of_a_module_holds_parameters_and_buffers_and_knows_a_copy() -> None:
    def build() -> nn.Module:
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)).bfloat16()
        module.register_buffer("scratch", torch.rand(1), persistent=False)
        return module

    one, other = build(), build()
    assert hash_module(one) == hash_module(other)
    other[1].running_mean[0] = 1  # type: ignore[index, operator]
    assert hash_module(one) != hash_module(other)


def test_checkpoints_load_without_heavy_imports() -> None:
    code = (
        "import sys, ppo_lab.checkpoint, ppo_lab.learners.plain\n"
        "heavy = {'accelerate', 'transformers', 'deepspeed', 'matplotlib', 'gymnasium'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    root = Path(checkpoint.__file__).parents[1]
    subprocess.run([sys.executable, "-c", code], cwd=root, check=True)
