"""Randomness keyed by purpose: the same numbers whatever was asked for before, beside or by whom."""

from __future__ import annotations

import hashlib
import json
import random
import subprocess
import sys

import numpy as np
import pytest
import torch

from ppo_lab import seeding

GOLDEN_KEY = 2189655688396552454
GOLDEN_UNIFORMS = [[0.437767061312466, 0.41961260386906396], [0.46419905840078957, 0.2707988988805473]]
GOLDEN_PERMUTATION = [3, 2, 4, 0, 6, 5, 7, 1]


def draws() -> list[float]:
    """One number of each kind from the global generators; gauss and normal keep a spare one inside."""
    return [random.random(), random.gauss(0, 1), np.random.rand(), np.random.standard_normal(), torch.rand(()).item()]


def test_key_is_the_same_in_another_process_with_another_hash_seed() -> None:
    code = "from ppo_lab import seeding; print(seeding.key(0, 'generate', 1))"
    environment = {"PYTHONHASHSEED": "7", "PYTHONPATH": ":".join(sys.path)}
    out = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    by_hand = int.from_bytes(hashlib.blake2b(b'[0, "generate", 1]', digest_size=8).digest(), "big") // 2
    assert int(out.stdout) == seeding.key(0, "generate", 1) == GOLDEN_KEY == by_hand


def test_key_tells_parts_apart() -> None:
    names = [(1,), ("1",), (1, 2), (12,), ("a", "b"), ("ab",), ("a,b",), ('a", "b',), (), (-1,), (2**70,)]
    keys = {seeding.key(*parts) for parts in names}
    assert len(keys) == len(names)
    assert all(0 <= k < 2**63 for k in keys)


def test_key_takes_whole_numbers_of_any_kind() -> None:
    assert seeding.key(np.int64(3)) == seeding.key(torch.tensor(3)) == seeding.key(3)  # type: ignore[arg-type]


@pytest.mark.parametrize("part", [1.0, True, None, b"a"])
def test_key_refuses_what_has_no_one_spelling(part: object) -> None:
    with pytest.raises(ValueError, match="seeding parts must be whole numbers or strings, got"):
        seeding.key(0, part)  # type: ignore[arg-type]


def test_uniforms_of_a_row_do_not_depend_on_the_other_rows() -> None:
    whole = seeding.uniforms(3, 5, range(20), 7)
    assert whole.shape == (20, 7) and whole.dtype == torch.float64
    for rows in ([4], [19, 0, 4], torch.tensor([4, 4, 11]), range(11, 15)):
        assert torch.equal(seeding.uniforms(3, 5, rows, 7), whole[torch.as_tensor(list(rows))])


@pytest.mark.parametrize("steps", [0, 1, 3, 16, 17, 64])
def test_uniforms_begin_alike_for_every_length(steps: int) -> None:
    assert torch.equal(seeding.uniforms(0, 1, range(3), steps), seeding.uniforms(0, 1, range(3), 100)[:, :steps])


def test_uniforms_of_no_rows() -> None:
    assert seeding.uniforms(0, 1, range(0), 5).shape == (0, 5)


def test_uniforms_never_repeat_across_seed_step_and_row() -> None:
    some = [seeding.uniforms(seed, step, range(5), 4) for seed in range(3) for step in (0, 1, 2, "evaluation")]
    assert torch.cat(some).unique().numel() == 3 * 4 * 5 * 4


def test_uniforms_are_uniform_and_uncorrelated_between_neighbouring_rows() -> None:
    u = seeding.uniforms(0, 1, range(2000), 50)
    assert 0 <= u.min() and u.max() < 1
    counts = torch.histc(u, bins=20, min=0, max=1)
    chi_square = ((counts - 5000) ** 2 / 5000).sum().item()
    assert 7.6 < chi_square < 36.2  # the middle 98 % of χ² with 19 degrees of freedom; one fixed draw
    centred = u - 0.5
    between = (centred[1:] * centred[:-1]).mean() * 12  # standard error 1/√(1999·50) = 0.0032
    within = (centred[:, 1:] * centred[:, :-1]).mean() * 12
    assert abs(between) < 0.01 and abs(within) < 0.01


def test_uniforms_are_these_numbers_for_good() -> None:
    """A committed run can be repeated only while these stay."""
    assert seeding.uniforms(0, 1, [0, 1], 2).tolist() == GOLDEN_UNIFORMS
    assert seeding.permutation(8, 0, "epoch", 1).tolist() == GOLDEN_PERMUTATION


def test_permutation_is_one_and_belongs_to_its_name() -> None:
    first = seeding.permutation(100, 0, "epoch", 1)
    assert first.dtype == torch.int64 and first.sort().values.tolist() == list(range(100))
    assert torch.equal(first, seeding.permutation(100, 0, "epoch", 1))
    assert not torch.equal(first, seeding.permutation(100, 0, "epoch", 2))
    assert seeding.permutation(0, 0).tolist() == []


def test_generator_belongs_to_its_name() -> None:
    assert torch.equal(*(torch.randn(9, generator=seeding.generator(1, "init")) for _ in range(2)))
    other = torch.randn(9, generator=seeding.generator(1, "other"))
    assert not torch.equal(other, torch.randn(9, generator=seeding.generator(1, "init")))


def test_global_generators_are_left_alone() -> None:
    before = seeding.rng_state()
    seeding.uniforms(0, 1, range(4), 4)
    seeding.permutation(9, 0)
    torch.rand(2, generator=seeding.generator(0))
    assert seeding.rng_state() == before


def test_global_generators_can_be_keyed() -> None:
    before = seeding.rng_state()
    try:
        seeding.seed_globals(1, "reward")
        first = draws()
        seeding.seed_globals(2, "reward")
        other = draws()
        seeding.seed_globals(1, "reward")
        assert draws() == first and not set(first) & set(other)
    finally:
        seeding.set_rng_state(before)


def test_global_generators_come_back_through_json() -> None:
    before = seeding.rng_state()
    try:
        random.seed(1), np.random.seed(2), torch.manual_seed(3)
        draws()  # leaves a spare Gaussian in Python's and NumPy's generators
        saved = json.loads(json.dumps(seeding.rng_state(), allow_nan=False))
        first = [draws() for _ in range(3)]
        draws()
        seeding.set_rng_state(saved)
        assert [draws() for _ in range(3)] == first
    finally:
        seeding.set_rng_state(before)


def test_set_rng_state_names_what_is_missing() -> None:
    state = seeding.rng_state()
    del state["numpy"]
    with pytest.raises(ValueError, match=r"rng state lacks \['numpy'\].*pass what rng_state\(\) returned"):
        seeding.set_rng_state(state)


def test_threads_are_set_in_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    before = torch.get_num_threads()
    try:
        assert seeding.set_threads(2) == before
        assert torch.get_num_threads() == 2
        assert seeding.os.environ["OMP_NUM_THREADS"] == "2"
    finally:
        torch.set_num_threads(before)
    with pytest.raises(ValueError, match="threads must be at least 1, got 0; use 1"):
        seeding.set_threads(0)
