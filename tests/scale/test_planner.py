"""The plan of four models: exact states, phases, what fits, what to change, and the quoted table refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ppo_lab.scale.memory import SHAPES, Setup, advice, bubble, choose_batches, plan, zero_bytes
from ppo_lab.scale.memory.planner import changes, counts
from ppo_lab.scale.memory.quoted import QUOTED, as_printed, objections
from ppo_lab.scale.memory.sheet import lines, table, todo

SMALL = Setup(policy=SHAPES["135M"], devices=4, rows=64)


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
@pytest.mark.parametrize("devices", [1, 64])
def test_trained_states_are_zeros_arithmetic(stage: int, devices: int) -> None:
    """Rajbhandari et al. 2020, fig. 1, for whatever the four models train; frozen ones are divided at stage 3 only."""
    made = plan(Setup(devices=devices, stage=stage))
    n = counts(made.setup)
    trained = made.lasting["trained weights"] + made.lasting["gradients"] + made.lasting["optimizer"]
    assert trained == pytest.approx(zero_bytes(n["trained"], devices=devices, stage=stage), rel=1e-12)
    assert made.lasting["frozen weights"] == 2 * n["frozen"] / (devices if stage == 3 else 1)


def test_the_papers_model_by_the_planner() -> None:
    """7.5 B on 64 devices: 120, 31.4, 16.6 and 1.9 GB, with the plan's own parts scaled to 7.5 B weights."""
    found = []
    for stage in range(4):
        made = plan(Setup(devices=64, stage=stage))
        each = sum(made.lasting.values()) - made.lasting["frozen weights"]
        found.append(round(each / counts(made.setup)["trained"] * 7.5, 1))
    assert found == [120, 31.4, 16.6, 1.9]


def test_the_master_copy_is_four_bytes_a_weight() -> None:
    """175 B trained: moments alone 1.4 TB, 22 GB on each of 64; with the float32 copy 2.1 TB, 33 GB."""
    one = [zero_bytes(175e9, devices=1, stage=1, optimizer_bytes=k) - 4 * 175e9 for k in (8, 12)]
    assert one == [1.4e12, 2.1e12] and [round(x / 64 / 1e9) for x in one] == [22, 33]
    with_it, without = (plan(replace(SMALL, master=m)).lasting["optimizer"] for m in (True, False))
    assert with_it - without == 4 * counts(SMALL)["trained"] / 4
    assert plan(replace(SMALL, precision="fp32")).lasting["optimizer"] == without


def test_four_models_are_counted() -> None:
    n = counts(Setup(policy=SHAPES["70B"], other=SHAPES["7B"]))
    assert n["policy"] == n["reference"] == SHAPES["70B"].parameters
    assert n["critic"] == n["reward"] + 1 == SHAPES["7B"].trunk + 4096 + 1
    assert n["trained"] + n["frozen"] == sum(n[name] for name in ("policy", "critic", "reference", "reward"))


def test_adapters_are_all_that_is_trained_and_the_reference_shares_the_base() -> None:
    full, lora = (counts(replace(SMALL, lora=rank, critic="policy")) for rank in (None, 8))
    adapters = SMALL.policy.adapters(8)
    assert lora["trained"] == 2 * adapters + 577 < 0.1 * full["trained"]
    assert lora["frozen"] == full["policy"] + adapters + full["reward"]
    own, shared = (counts(replace(SMALL, lora=8, critic=critic)) for critic in ("own", "shared"))
    assert own["trained"] == adapters + full["critic"] and shared["trained"] == adapters + 577


def test_a_shared_critic_is_a_head_and_one_trunk_of_activations() -> None:
    own, shared = (plan(replace(SMALL, critic=critic)) for critic in ("own", "shared"))
    assert counts(shared.setup)["critic"] == 577
    activations = [made.phases["update"]["activations"] for made in (own, shared)]
    assert activations[0] == 2 * activations[1]


def test_offloading_moves_bytes_and_loses_none() -> None:
    here, optimizer, everything = (plan(replace(SMALL, offload=name)) for name in ("none", "optimizer", "all"))
    whole = sum(here.lasting.values())
    for made in (optimizer, everything):
        assert sum(made.lasting.values()) + made.host == pytest.approx(whole, rel=1e-12)
    assert optimizer.lasting["optimizer"] == 0 < optimizer.lasting["trained weights"]
    assert everything.lasting["frozen weights"] == 0 < everything.lasting["gradients"]


@pytest.mark.parametrize(
    "change",
    [{"stage": 2}, {"precision": "fp32"}, {"micro_batch": 16}, {"sample_batch": 512}, {"devices": 2}, {"answer": 4096}],
)
def test_more_of_it_needs_more(change: dict[str, Any]) -> None:
    assert plan(replace(SMALL, **change)).peak > plan(SMALL).peak


def test_phases_add_up_and_the_largest_decides() -> None:
    made = plan(SMALL)
    assert made.peak == max(made.totals.values()) == made.totals[made.phase] == pytest.approx(sum(made.parts.values()))
    assert made.fits and not plan(replace(SMALL, memory=made.peak)).fits
    assert plan(replace(SMALL, memory=made.peak / (1 - SMALL.headroom) * 1.0001)).fits


def test_sharded_generation_never_holds_the_whole_policy() -> None:
    big = Setup(policy=SHAPES["70B"], devices=64)
    plans = [plan(replace(big, generation=how)) for how in ("gathered", "sharded")]
    whole, shards = (made.phases["rollout"]["gathered policy"] for made in plans)
    assert whole == 2 * SHAPES["70B"].parameters > 10 * shards


def test_three_dimensions() -> None:
    """64 = 8 x 4 x 2, and a pipeline of 2 with 4 micro-batches stands still a fifth of the time."""
    setup = Setup(devices=64, tensor=4, pipeline=2, stage=1, rows=64, micro_batch=2)
    assert (setup.data, setup.layers, setup.accumulation) == (8, 16, 4)
    made, flat = plan(setup), plan(replace(setup, tensor=1, pipeline=1, rows=512))
    assert made.bubble == bubble(4, pipeline=2) == 0.2 and flat.bubble == 0
    assert made.lasting["trained weights"] == flat.lasting["trained weights"] / 8
    assert made.phases["rollout"]["key-value cache"] == flat.phases["rollout"]["key-value cache"] / 8


def test_a_pipeline_holds_several_micro_batches() -> None:
    setup = Setup(devices=4, pipeline=4, stage=1, rows=8)
    many, one = (plan(replace(setup, rows=r)).phases["update"]["activations"] for r in (8, 1))
    assert many == 4 * one


def test_batches_are_the_largest_that_fit() -> None:
    start = Setup(devices=8, memory=60e9, recompute_every=1)
    best = choose_batches(start)
    assert plan(best).fits and best.micro_batch > 1 and best.sample_batch > 1
    for name in ("micro_batch", "sample_batch"):
        twice = 2 * getattr(best, name)
        assert twice > best.rank_rows or not plan(replace(best, **{name: twice})).fits
    assert best.micro_batch * best.accumulation * best.data == best.rows
    kept = choose_batches(start, free=["sample_batch"])
    assert kept.micro_batch == start.micro_batch
    hopeless = choose_batches(replace(start, memory=1e9))
    assert (hopeless.micro_batch, hopeless.sample_batch) == (1, 1) and not plan(hopeless).fits


def test_a_micro_batch_is_never_fuller_than_a_ranks_rows() -> None:
    whole, larger = (plan(replace(SMALL, micro_batch=n)).phases["update"] for n in (16, 100_000))
    assert SMALL.rank_rows == 16 and larger == whole


@pytest.mark.parametrize("model", ["7B", "13B", "70B"])
@pytest.mark.parametrize("devices", [1, 8, 64])
def test_advice_ends_in_a_plan_that_fits(model: str, devices: int) -> None:
    setup = Setup(policy=SHAPES[model], devices=devices, stage=0, micro_batch=4)
    steps = advice(setup)
    assert steps and steps[-1][1].fits and not any(made.fits for _, made in steps[:-1])
    peaks = [plan(setup).peak, *(made.peak for _, made in steps)]
    assert all(after < before for before, after in zip(peaks, peaks[1:], strict=False))
    assert advice(steps[-1][1].setup) == []


def test_advice_takes_one_change_where_one_does() -> None:
    setup = Setup(devices=8, micro_batch=32, recompute_every=1)
    tight = replace(setup, memory=plan(replace(setup, micro_batch=1)).peak / (1 - setup.headroom) + 1)
    assert [words for words, _ in advice(tight)] == ["micro-batch 1, more accumulation"]
    assert {words for words, _ in changes(SMALL)} >= {"sharded generation", "optimizer on the host", "8 devices"}


@pytest.mark.parametrize("row", QUOTED, ids=lambda row: row.model)
def test_the_quoted_table_is_refused_as_printed(row: Any) -> None:
    """Devices left out of the batch, and memory that does not hold it: both, for every column."""
    found = [*objections(row)]
    assert "the devices were left out" in found[0] and "as printed" in found[1]
    assert not plan(as_printed(row)).fits
    assert not plan(replace(as_printed(row), memory=80e9)).fits  # not on larger devices either


def test_a_right_row_is_not_refused() -> None:
    right = replace(QUOTED[0], per_device=8, accumulation=4, memory=(80e9, 80e9), every=1)
    assert [*objections(right)] == []


def test_the_planner_chooses_what_the_table_should_have_said() -> None:
    for row, devices in zip(QUOTED, (8, 16, 64), strict=True):
        setup = choose_batches(replace(as_printed(row), devices=devices, memory=80e9, rows=row.effective,
                                       recompute_every=1))  # fmt: skip
        assert plan(setup).fits
        assert setup.micro_batch * setup.accumulation * setup.data == row.effective
        assert setup.micro_batch < row.per_device


def test_sheet_says_what_the_plan_says() -> None:
    made = plan(Setup(devices=8, stage=0))
    text = "\n".join(lines(made))
    assert f"does not fit: {(made.peak - made.setup.budget) / 1e9:.1f} GB too much" in text
    assert "change first: ZeRO stage 1" in text and "which fits" in text
    assert "pipeline bubble 20%" in "\n".join(
        lines(plan(Setup(devices=64, tensor=4, pipeline=2, stage=1, rows=64, micro_batch=2)))
    )
    assert [*todo(SMALL)] == []
    hopeless = Setup(devices=1, memory=1e8, rows=1)
    assert "then: more devices, or a smaller model" in [*todo(hopeless)]


def test_table_has_three_models_on_three_machines() -> None:
    rows = table()
    assert [row[:2] for row in rows][:2] == [("7B", "8 x 80 GB"), ("7B", "16 x 80 GB")] and len(rows) == 9
    fits = {row[:2]: row[3] for row in rows}
    assert fits["7B", "8 x 80 GB"] == "yes" and fits["70B", "8 x 80 GB"] == "no"


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"stage": 4}, "stage must be 0, 1, 2 or 3, got 4"),
        ({"devices": 6, "tensor": 4}, "tensor x pipeline must divide devices, got 4 x 1 on 6"),
        ({"pipeline": 2}, "stage must be 0 or 1 under a pipeline"),
        ({"offload": "all", "stage": 2}, "offload all needs stage 3"),
        ({"offload": "disk"}, "offload must be one of none, optimizer, all, got 'disk'"),
        ({"rows": 4}, "rows must be at least one a data-parallel rank, got 4 for 8"),
        ({"headroom": 1.0}, "headroom"),
        ({"micro_batch": 0}, "micro_batch must be at least 1"),
        ({"precision": "int4"}, "precision must be one of"),
        ({"lora": -4}, "lora must be at least 1, or None for none, got -4"),
        ({"recompute_every": 0}, "recompute_every must be at least 1, or None for none, got 0"),
    ],
)
def test_setups_that_cannot_be_are_named(wrong: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        Setup(**wrong)


def test_bubble_by_drawing_it() -> None:
    """Slots of a stage in a forward pipeline: M of work in M + P - 1."""
    for stages in (1, 2, 4):
        for micro in (1, 3, 8):
            start = [[m + s for m in range(micro)] for s in range(stages)]
            length = max(max(row) for row in start) + 1
            assert bubble(micro, pipeline=stages) == pytest.approx(1 - micro / length)
    with pytest.raises(ValueError, match="at least 1"):
        bubble(0, pipeline=1)
