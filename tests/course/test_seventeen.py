"""Notebook 17: its run divides as it should, its comparison can fail, its fault does what it says."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from linear import PLAIN, Watched, make_batch, update

from ppo_lab import faults, seeding
from ppo_lab.core.masking import standardize
from ppo_lab.course.experiments import ranks
from ppo_lab.course.figures.ranks import LASTING, QUOTED, shares, split_figure, stage_bytes, stages_figure
from ppo_lab.learners.collectives import share
from ppo_lab.scale.batch import pooled_moments
from ppo_lab.scale.memory import SHAPES, Setup, plan, zero_bytes
from ppo_lab.update import standardized

SETUP = Setup(policy=SHAPES["135M"], devices=2, precision="fp32", rows=8)
ROWS = [{"seconds_rollout": 1.0, "seconds_score": 1.0, "seconds_update": 6.0}] * 2


def test_the_run_is_shared_unevenly_and_alike() -> None:
    plain, zero = ranks.config("plain"), ranks.config("zero")
    assert plain.rows == 33 and plain.minibatch_rows == 11
    assert [len(range(11)[share(11, r, 2)]) for r in range(2)] == [6, 5]
    assert zero.model_dump() | {"learner": None} == plain.model_dump() | {"learner": None}
    assert zero.steps == ranks.STEPS


def test_differences_are_seen() -> None:
    one = [dict.fromkeys(ranks.NUMBERS, 2.0)]
    assert ranks.furthest(one, one) == 0
    assert ranks.furthest([{**one[0], "policy_loss": 2.003}], one) == pytest.approx(0.001)


def test_pooled_moments_are_those_of_all_values() -> None:
    draw = seeding.generator("test", "moments")
    parts = [torch.randn(n, generator=draw, dtype=torch.float64) + n for n in (3, 0, 7)]
    count = torch.tensor([float(len(x)) for x in parts], dtype=torch.float64)
    sums = torch.stack([x.sum() for x in parts]), torch.stack([x.square().sum() for x in parts])
    everything = torch.cat(parts)
    wanted = torch.stack([everything.mean(), everything.std(correction=0)])
    assert torch.allclose(pooled_moments(count, *sums), wanted, rtol=1e-12)


def test_whitening_per_rank_is_wrong_where_there_are_ranks() -> None:
    batch = make_batch()
    right = standardized(batch, 2)
    assert torch.equal(right, standardize(batch.advantage, batch.mask))
    with faults.planted("whitened_per_rank"):
        assert torch.equal(standardized(batch, 1), right)
        wrong = standardized(batch, 2)
    for rank in range(2):
        rows = share(len(batch), rank, 2)
        own = wrong[rows][batch.mask[rows]]
        assert float(own.mean()) == pytest.approx(0, abs=1e-12) and float(own.std(correction=0)) == pytest.approx(1)
    assert not torch.allclose(wrong, right, atol=0.01)


def test_the_fault_is_in_the_real_update() -> None:
    cfg = PLAIN.model_copy(update={"standardize": "rollout"})
    learners = [Watched(), Watched()]
    update(learners[0], make_batch(), cfg)
    with faults.planted("whitened_per_rank"):
        update(learners[1], make_batch(), cfg)  # one process: no difference
    assert torch.equal(learners[0].gradients[0]["actor"], learners[1].gradients[0]["actor"])
    batch = make_batch()
    with faults.planted("whitened_per_rank"):
        by_rank = standardized(batch, 2)
    other = Watched()
    update(other, replace(batch, advantage=by_rank), PLAIN)
    assert not torch.allclose(other.gradients[0]["actor"], learners[0].gradients[0]["actor"], rtol=1e-3)


def test_stage_bars_are_the_plan() -> None:
    (axes,) = stages_figure(SETUP).axes
    found = stage_bytes(SETUP)
    for part, bars in zip(LASTING, axes.containers, strict=True):
        assert [bar.get_height() for bar in bars] == pytest.approx([found[s][part] / 1e6 for s in range(4)])
    tops = [bar.get_y() + bar.get_height() for bar in axes.containers[-1]]
    assert tops == pytest.approx([sum(plan(replace(SETUP, stage=s)).lasting.values()) / 1e6 for s in range(4)])
    assert found[3]["optimizer"] * 2 == found[0]["optimizer"]
    assert zero_bytes(1, devices=2, stage=3) == 8


def test_time_bars_are_the_shares_and_the_quoted_split_passes_the_whole() -> None:
    assert shares(ROWS) == {"rollout": 0.125, "score": 0.125, "update": 0.75}
    (axes,) = split_figure({"one": ROWS, "two": ROWS}).axes
    widths = [patch.get_width() for patch in axes.patches]
    assert widths[:6] == pytest.approx([12.5, 12.5, 75.0] * 2)
    assert widths[6:] == [high for _, high in QUOTED.values()] and sum(widths[6:]) == 105
    assert sum(low for low, _ in QUOTED.values()) == 85
