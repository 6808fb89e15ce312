"""Small watchmen: gradient-norm alarm, leak check, range test, loss scaling, traffic, the effective batch."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from linear import PLAIN, Watched, assess, make_batch, update

from ppo_lab import seeding
from ppo_lab.config import OptimizerConfig
from ppo_lab.core.masking import length_mask, step_weights
from ppo_lab.core.schedules import periodic_restart, warmup_cosine
from ppo_lab.learners.rates import rate_multiplier
from ppo_lab.scale.alarm import alarm, row_norms, suspects
from ppo_lab.scale.batch import averaged_weights, effective_batch
from ppo_lab.scale.leak import growth, live_tensor_bytes, process_bytes
from ppo_lab.scale.memory import SHAPES
from ppo_lab.scale.precision import LossScale, moved, smallest
from ppo_lab.scale.range_test import range_test, rate_at
from ppo_lab.scale.traffic import selective_share, traffic, training_flops, watch

# --- the alarm -------------------------------------------------------------------------------------------------------


def spoiled(row: int, by: float):
    """A batch one of whose answers has a wild advantage."""
    batch = make_batch()
    advantage = batch.advantage.clone()
    advantage[row] = by
    return replace(batch, advantage=advantage)


@pytest.mark.parametrize("row", [0, 4, 6])
def test_the_alarm_names_the_sample(row: int) -> None:
    batch, learner = spoiled(row, 300.0), Watched()
    texts = [f"answer {i}" for i in range(len(batch))]
    said = alarm(update(learner, batch, PLAIN), learner, batch, assess, PLAIN, texts=texts)
    assert len(said) == 3 and f"row {row} " in said[0] and f"'answer {row}'" in said[0]
    assert "is above 10" in said[0]


def test_a_healthy_step_rings_nothing() -> None:
    batch, learner = make_batch(), Watched()
    made = update(learner, batch, PLAIN)
    assert made.gradient_norm_max < 10 and alarm(made, learner, batch, assess, PLAIN) == []
    assert alarm(replace(made, gradient_norm_max=math.nan), learner, batch, assess, PLAIN) != []


def test_row_shares_add_up_to_the_gradient_and_move_nothing() -> None:
    """With one row it is the gradient's norm; with many, at least it."""
    batch, learner = make_batch(), Watched(rate=0.0)
    before = learner.snapshot()
    norms = row_norms(learner, batch, assess, PLAIN)
    assert all(torch.equal(before[name], p) and p.grad is None for name, p in learner.parameters.items())
    whole = update(learner, batch, PLAIN).gradient_norm_max
    assert whole == 0  # at rate 0 the norm is that of a resting group
    learner = Watched()
    whole = update(learner, batch, PLAIN).gradient_norm_max
    assert float(norms.max()) < whole < float(norms.sum())
    assert norms[3] == 0  # a row without a valid step
    one = make_batch((5,))
    alone = Watched()
    assert row_norms(alone, one, assess, PLAIN)[0] == pytest.approx(update(alone, one, PLAIN).gradient_norm_max)


def test_suspects_are_ordered_and_nan_is_first() -> None:
    found = suspects([1.0, math.nan, 3.0, 0.0])
    assert [s.row for s in found] == [1, 2, 0] and found[1].share == 0.75


# --- the leak check --------------------------------------------------------------------------------------------------


def readings(leak: bool, steps: int = 12) -> list[int]:
    """Bytes of live tensors over a small training loop; the leak keeps each step's activations."""
    weight, kept, found = torch.nn.Parameter(torch.ones(64, 64)), [], []
    optimizer = torch.optim.Adam([weight])
    for _ in range(steps):
        hidden = torch.ones(16, 64) @ weight
        hidden.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if leak:
            kept.append(hidden)
        del hidden
        found.append(live_tensor_bytes())
    return found


def test_a_planted_leak_is_found_and_its_size_is_right() -> None:
    found = growth(readings(leak=True))
    assert found.leaks and found.per_step == 16 * 64 * 4 and "in every step (100%" in str(found)
    assert not growth(readings(leak=False)).leaks


def test_noise_warm_up_and_one_jump_are_no_leak() -> None:
    noise = (1e6 * torch.randn(40, generator=seeding.generator("test", "leak"))).tolist()
    assert not growth(noise).leaks
    assert not growth([0, 1e6, 2e6, 2e6, 2e6, 2e6, 2e6, 2e6], warmup=2).leaks
    assert not growth([5.0] * 4 + [5e9] * 8).leaks
    assert growth([1e9 + 2e4 * i + 1e3 * (i % 2) for i in range(12)]).leaks
    assert str(growth([0.0] * 8)) == "no steady growth"
    with pytest.raises(ValueError, match="readings must be at least 6, 2 of them for warming up, got 3"):
        growth([1, 2, 3])


def test_process_memory_is_read() -> None:
    before = process_bytes()
    block = torch.ones(30_000_000)
    assert process_bytes() - before > 0.8 * block.nbytes


# --- rates -----------------------------------------------------------------------------------------------------------


def test_range_test_finds_the_edge_of_a_parabola() -> None:
    """Descent on ½ c x² diverges above 2/c: it breaks a little later, and the suggestion is well below."""
    curvature, x = 2e4, 1.0
    batches = iter(torch.randn(400, generator=seeding.generator("test", "range"), dtype=torch.float64).tolist())

    def train(rate: float) -> float:
        nonlocal x
        loss = 0.5 * curvature * x**2 + 1e3
        x -= rate * curvature * (x - 0.1 * next(batches))  # each batch has an optimum of its own
        return loss

    found = range_test(train, steps=400, low=1e-7, high=1e-2)
    assert found.broke_at is not None and 1.5 / curvature < found.broke_at < 4 / curvature
    assert found.suggested == 0.1 * found.best < 2 / curvature and found.sees_the_end
    assert len(found.rates) == len(found.losses) == len(found.smooth) < 400


def test_range_test_says_when_the_range_ends_too_early() -> None:
    losses = iter([10.0 * 0.99**i for i in range(50)])
    found = range_test(lambda rate: next(losses), steps=50)
    assert not found.sees_the_end and found.broke_at is None and found.rates[-1] == pytest.approx(1e-4)
    assert found.smooth[0] == pytest.approx(10.0)  # the running mean is corrected for its start
    broken = range_test(lambda rate: math.nan if rate > 1e-5 else 1.0, steps=50)
    assert broken.broke_at == pytest.approx(1e-5, rel=0.2) and broken.best < 1e-5


def test_rates_of_the_range_have_equal_factors() -> None:
    rates = [rate_at(i, steps=31) for i in range(31)]
    assert (rates[0], rates[-1]) == (1e-7, pytest.approx(1e-4))
    assert all(b / a == pytest.approx(10**0.1) for a, b in zip(rates, rates[1:], strict=False))
    with pytest.raises(ValueError, match="0 < low < high"):
        rate_at(0, steps=5, low=1e-3, high=1e-4)


def test_the_quoted_schedule() -> None:
    """A tenth of the steps from 1 % up, then a cosine to 1 %: 3e-5 starts and ends at 3e-7."""
    rates = [3e-5 * warmup_cosine(s, total=100, warmup=10, start=0.01, floor=0.01) for s in (0, 5, 10, 55, 100)]
    assert rates == pytest.approx([3e-7, 1.515e-5, 3e-5, 1.515e-5, 3e-7], rel=1e-12)


def test_the_quoted_schedule_and_the_restart_in_a_run() -> None:
    cosine = OptimizerConfig(schedule="warmup_cosine", warmup=0.1, start=0.01, floor=0.01)
    rates = [rate_multiplier(s, cosine, total=100) for s in range(100)]
    assert max(rates) == pytest.approx(1, abs=1e-3) and rates.index(max(rates)) == 9
    assert rates[0] == pytest.approx(0.01 + 0.99 / 10) and 0.01 < rates[-1] < 0.012
    plain = OptimizerConfig(schedule="warmup_cosine", warmup=0.1)
    assert rate_multiplier(0, plain, total=100) == pytest.approx(0.1)
    restart = OptimizerConfig(schedule="restart", period=20)
    assert [rate_multiplier(s, restart, total=100) for s in (0, 20, 40)] == [1, 0.5, 0.25]
    assert rate_multiplier(27, restart, total=100) == periodic_restart(27, period=20)
    with pytest.raises(ValueError, match="optimizer.period must be set for schedule restart"):
        OptimizerConfig(schedule="restart")


# --- half precision --------------------------------------------------------------------------------------------------


def test_the_loss_scale_finds_its_level() -> None:
    """Gradients overflow above 2^13: from 2^16 it falls to 2^13, and tries 2^14 again after each window."""
    scale, skipped = LossScale(window=8), []
    for step in range(40):
        finite = scale.scale <= 2.0**13
        if not finite:
            skipped.append(step)
        scale = scale.after(finite)
    assert skipped == [0, 1, 2, 11, 20, 29, 38] and scale.scale == 2.0**13
    assert LossScale(scale=1.0).after(False).scale == 1.0


def test_a_small_step_is_lost_without_the_copy() -> None:
    lost, kept = (moved(1.0, 1e-3, steps=100, dtype=torch.bfloat16, master=m) for m in (False, True))
    assert lost == 1.0 and kept == pytest.approx(1.1, abs=0.01)
    assert moved(1.0, 2**-7, steps=4, dtype=torch.bfloat16, master=False) == 1 + 2**-5


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_smallest_number(dtype: torch.dtype) -> None:
    tiny = torch.tensor(smallest(dtype), dtype=dtype)
    assert float(tiny) == smallest(dtype) and float(tiny.double().mul(0.49).to(dtype)) == 0


# --- traffic and the batch -------------------------------------------------------------------------------------------


def test_traffic_by_sending() -> None:
    """A ring of D devices: reduce-scatter and all-gather each send D - 1 pieces of Ψ/D."""
    for devices in (1, 2, 8):
        piece = 1000 / devices
        for stage, collectives in ((0, 2), (1, 2), (2, 2), (3, 3)):
            sent = collectives * (devices - 1) * piece
            assert traffic(1000, stage=stage, devices=devices, size=1) == pytest.approx(sent)


def test_training_flops_against_a_counted_model() -> None:
    from transformers import AutoModelForCausalLM, LlamaConfig

    from ppo_lab.scale.memory import shape_of
    from ppo_lab.scale.memory.measure import flops

    config = LlamaConfig(vocab_size=97, hidden_size=48, intermediate_size=136, num_hidden_layers=3,
                         num_attention_heads=4, max_position_embeddings=64)  # fmt: skip
    model = AutoModelForCausalLM.from_config(config).eval()
    tokens = torch.zeros(4, 32, dtype=torch.long)
    counted = flops(lambda: model(input_ids=tokens).logits.sum().backward())
    assert training_flops(shape_of(config), tokens=4 * 32, length=32) == pytest.approx(counted, rel=0.1)
    shape = SHAPES["7B"]
    ratio = training_flops(shape, tokens=1, length=1024, recompute=True) / training_flops(shape, tokens=1, length=1024)
    assert ratio == pytest.approx(4 / 3, abs=0.01)


def test_what_selective_recomputation_adds() -> None:
    """7B, 1,024 tokens, by hand: 2 · 32 · 4096 · 512 multiply-adds a token, once more, over 6 a weight."""
    attention = 2 * 32 * 4096 * 512
    matrices = 32 * (4 * 4096**2 + 3 * 4096 * 11008)
    whole = 6 * (matrices + attention) + 6 * 32000 * 4096
    assert selective_share(SHAPES["7B"], length=1024) == pytest.approx(2 * attention / whole, rel=1e-12)
    assert selective_share(SHAPES["70B"], length=1024) < 0.0066 < selective_share(SHAPES["7B"], length=4096)


def test_targets() -> None:
    good = watch(flops=9e14, sent=2e10, seconds=1.0, peak=1e15, bandwidth=1e11)
    assert good.healthy and (good.busy, good.talk) == (0.9, 0.2)
    assert not watch(flops=9e14, sent=4e10, seconds=1.0, peak=1e15, bandwidth=1e11).healthy
    assert not watch(flops=3e14, sent=2e10, seconds=1.0, peak=1e15, bandwidth=1e11).healthy
    with pytest.raises(ValueError, match="seconds must be above 0, got 0"):
        watch(flops=1, sent=1, seconds=0, peak=1, bandwidth=1)


def test_effective_batch_and_what_averaging_gets_wrong() -> None:
    assert effective_batch(64, 4, 8) == 2048
    with pytest.raises(ValueError, match="accumulation must be at least 1"):
        effective_batch(1, 0, 1)
    mask = length_mask(torch.tensor([6, 6, 1, 1]), steps=6)
    right, averaged = step_weights(mask, "token_mean"), averaged_weights(mask, micro_batch=2)
    assert float(right.sum()) == pytest.approx(1) == float(averaged.sum())
    assert float(averaged[2, 0] / averaged[0, 0]) == pytest.approx(6) and float(right[2, 0] / right[0, 0]) == 1
    equal = length_mask(torch.tensor([3, 3, 3, 3]), steps=3)
    assert torch.allclose(step_weights(equal, "token_mean"), averaged_weights(equal, micro_batch=2))


@pytest.mark.parametrize("micro", [1, 2, 3])
def test_the_update_weighs_a_token_alike_in_any_micro_batch(micro: int) -> None:
    """Unequal lengths, one gradient: the real update in pieces is the update in one."""
    whole, pieces = Watched(), Watched()
    update(whole, make_batch(), PLAIN)
    update(pieces, make_batch(), PLAIN.model_copy(update={"micro_batch": micro}))
    for name, gradient in whole.gradients[0].items():
        assert torch.allclose(gradient, pieces.gradients[0][name], rtol=1e-12, atol=1e-14)
