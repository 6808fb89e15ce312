"""Parameters that are still in their file: copied, hashed and read without ever being more than asked for."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from ppo_lab.learners import unread
from ppo_lab.learners.states import Stored
from ppo_lab.learners.tensorfile import hash_module
from ppo_lab.learners.unread import Entry, Unread, pieces_of, read_whole, unread_in, whole_copy

TENSORS = {"matrix": torch.randn(7, 5), "bias": torch.randn(3), "number": torch.tensor(2.0),
           "wide": torch.randn(3, 2).double(), "cube": torch.randn(4, 3, 2).bfloat16(),
           "low": torch.randn(6, 2).half()}  # fmt: skip


@pytest.fixture
def entries(tmp_path: Path) -> dict[str, Entry]:
    save_file(TENSORS, tmp_path / "weights.safetensors")
    file = Stored(tmp_path / "weights.safetensors")
    return {name: Entry(file, name) for name in TENSORS}


def module(entries: dict[str, Entry]) -> nn.Module:
    made = nn.Module()
    for name, entry in entries.items():
        made.register_parameter(name, Unread(entry))
    made.tied = made.matrix
    return made


@pytest.mark.parametrize("name", TENSORS)
@pytest.mark.parametrize("most", [1, 4, 1 << 24])
def test_every_stretch_of_a_tensor_is_read_as_it_is(entries, name, most, monkeypatch):
    monkeypatch.setattr(unread, "PIECE", most)
    flat = TENSORS[name].reshape(-1)
    flat = flat.float() if flat.dtype == torch.float64 else flat
    for start in range(len(flat) + 1):
        for stop in range(start, len(flat) + 1):
            pieces = list(entries[name].pieces(start, stop))
            assert all(len(piece) <= most for _, piece in pieces)
            assert [at for at, _ in pieces] == list(range(start, stop, most))
            assert torch.equal(torch.cat([flat[:0], *(piece for _, piece in pieces)]), flat[start:stop])


def test_what_is_unread_takes_no_memory_and_cannot_be_mistaken_for_weights(entries):
    made = module(entries)
    for name, p in made.named_parameters():
        assert p.shape == TENSORS[name].shape and p.untyped_storage().nbytes() == 4 and bool(p.isnan().all())
        assert isinstance(p, nn.Parameter) and p.dtype == torch.float32 and p.requires_grad


def test_copies_are_unread_and_share_what_was_shared(entries):
    made = module(entries)
    made.bias.requires_grad_(False)
    copied = copy.deepcopy(made)
    assert copied.tied is copied.matrix is not made.matrix
    assert len(unread_in(made, copied)) == 2 * len(TENSORS) == 2 * len(unread_in(made, made))
    assert not copied.bias.requires_grad and copied.matrix.requires_grad
    whole = whole_copy(made)
    assert not unread_in(whole) and len(unread_in(made)) == len(TENSORS)
    assert torch.equal(whole.matrix, TENSORS["matrix"]) and whole.tied is whole.matrix
    assert whole_copy(whole) is whole


def test_once_read_it_is_an_ordinary_parameter(entries):
    made = module(entries)
    tied = made.tied
    read_whole(made)
    for name, x in TENSORS.items():
        p = made.get_parameter(name)
        assert type(p) is nn.Parameter and torch.equal(p, x.float()) and p.is_contiguous()
    assert made.tied is made.matrix is tied
    made.matrix.sum().backward()
    assert torch.equal(copy.deepcopy(made).matrix, made.matrix) and bool((made.matrix.grad == 1).all())


def test_the_hash_is_that_of_the_read_module_and_reads_a_piece_at_a_time(entries, monkeypatch):
    made = module(entries)
    want = hash_module(whole_copy(made))
    monkeypatch.setattr(unread, "PIECE", 4)
    assert hash_module(made) == want and max(len(x) for x in pieces_of(made.matrix)) == 4
    with torch.no_grad():
        read_whole(made).matrix[6, 4] += 1
    assert hash_module(made) != want
