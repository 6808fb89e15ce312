"""What `ppo_update` does over epochs and minibatches: order, early stop, warm-up, scaling, metrics of them all."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from linear import LENGTHS, PLAIN, Linear, Watched, by_hand, make_batch, update

from ppo_lab import seeding
from ppo_lab.config.ppo import PPOConfig
from ppo_lab.records import HISTOGRAM_EDGES, StepBatch, UpdateMetrics, take
from ppo_lab.update import Leash

# --- epochs, minibatches, early stop ---------------------------------------------------------------------------------


def fresh(batch: StepBatch) -> StepBatch:
    """The batch with old log-probs from the model as it is."""
    return replace(batch, old_logp=Linear()(batch.inputs.obs, batch.inputs.action)["logp"].detach())


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_the_first_ratio_is_exactly_one(dropout: float) -> None:
    learner = Watched(Linear(dropout=dropout).train(), rate=0.2)
    metrics = update(learner, fresh(make_batch()), PPOConfig(epochs=2, minibatches=3, micro_batch=1))
    assert metrics.first_ratio_error == 0.0  # and only there: later minibatches drift rightly (B06)
    assert metrics.ratio_max > 1.01 and metrics.policy_kl_k3 > 1e-4
    assert learner.module.training and learner.module.dropout.training


@pytest.mark.parametrize(("rows", "minibatches"), [(65, 64), (1, 1), (3, 2), (3, 8), (8, 4)])
@pytest.mark.parametrize("scope", ["minibatch", "rollout"])
def test_every_sample_once_an_epoch_and_finite(rows: int, minibatches: int, scope: str) -> None:
    learner = Watched()
    cfg = PPOConfig(epochs=3, minibatches=minibatches, standardize=scope)
    metrics = update(learner, make_batch((1,) * rows), cfg)
    steps = min(minibatches, rows)
    assert metrics.optimizer_steps == metrics.policy_steps == 3 * steps == len(learner.seen)
    epochs = [sum(learner.seen[e * steps : (e + 1) * steps], []) for e in range(3)]
    assert all(sorted(seen) == list(range(rows)) for seen in epochs)
    assert rows < 8 or len({tuple(e) for e in epochs}) == 3  # each epoch in its own order
    assert all(p.isfinite().all() for p in learner.weights[-1].values())
    assert all(math.isfinite(x) for x in vars_of(metrics) if isinstance(x, float))


def vars_of(metrics: UpdateMetrics) -> list[Any]:
    return [getattr(metrics, name) for name in metrics.__dataclass_fields__]


def test_the_order_hangs_on_the_seed() -> None:
    cfg = PPOConfig(epochs=1, minibatches=3)
    seen = []
    for seed in (3, 3, 4):
        learner = Watched()
        update(learner, make_batch(), cfg, seed=seed)
        seen.append(learner.seen)
    assert seen[0] == seen[1] != seen[2]


@pytest.mark.parametrize("world", [1, 2, 4])
def test_b22_the_number_of_ranks_is_nowhere_in_the_rate(world: int) -> None:
    learner = Watched()
    learner.world = world
    update(learner, make_batch(), PPOConfig(epochs=2, minibatches=3, micro_batch=1), actor=0.25, critic=0.75)
    assert learner.multipliers == [(0.25, 0.75)] * 6


def test_early_stop_is_checked_before_the_step_and_the_critic_goes_on() -> None:
    learner = Watched(rate=0.2)
    metrics = update(learner, fresh(make_batch()), PPOConfig(epochs=3, minibatches=2, target_kl=1e-6))
    assert (metrics.policy_steps, metrics.optimizer_steps, metrics.early_stop) == (1, 6, 1)
    assert learner.multipliers == [(1.0, 1.0), *[(0.0, 1.0)] * 5]
    actor, critic = ([w[name] for w in learner.weights] for name in ("actor", "critic"))
    assert not torch.equal(actor[0], actor[1]) and all(torch.equal(actor[1], a) for a in actor[2:])
    assert all(not torch.equal(a, b) for a, b in zip(critic, critic[1:], strict=False))


def test_a_policy_too_far_at_once_does_not_move_at_all() -> None:
    learner, batch = Watched(), make_batch(drift=0.5)
    hand = by_hand(Linear(), batch, PLAIN, Leash())
    k3 = hand["k3"] / hand["n"]
    metrics = update(learner, batch, PLAIN.model_copy(update={"target_kl": k3 / 1.501}))
    assert (metrics.policy_steps, metrics.early_stop) == (0, 1)
    assert torch.equal(learner.weights[0]["actor"], learner.weights[1]["actor"])
    metrics = update(Watched(), batch, PLAIN.model_copy(update={"target_kl": k3 / 1.499}))
    assert (metrics.policy_steps, metrics.early_stop) == (1, 0)


def test_warming_critic_leaves_the_policy_bit_equal() -> None:
    learner, batch = Watched(), make_batch()
    update(learner, batch, PPOConfig(epochs=2))  # now Adam has momentum
    before = learner.snapshot()
    metrics = update(learner, batch, PPOConfig(epochs=2, target_kl=1e-6), actor=0.0, critic=0.5)
    assert torch.equal(before["actor"], learner.snapshot()["actor"])
    assert not torch.equal(before["critic"], learner.snapshot()["critic"])
    assert (metrics.policy_steps, metrics.optimizer_steps, metrics.early_stop) == (0, 8, 0)
    assert set(learner.multipliers[-8:]) == {(0.0, 0.5)}
    assert all(not g["actor"].any() for g in learner.gradients[-8:])


# --- advantages ------------------------------------------------------------------------------------------------------


def standardized(batch: StepBatch) -> StepBatch:
    x = batch.advantage[batch.mask]
    scaled = (batch.advantage - x.mean()) / (x.var(unbiased=False) + 1e-8).sqrt()
    return replace(batch, advantage=scaled)


def test_rollout_scope_uses_one_mean_and_deviation() -> None:
    a, b = Watched(), Watched()
    update(a, make_batch(), PPOConfig(epochs=2, minibatches=3, standardize="rollout"))
    update(b, standardized(make_batch()), PPOConfig(epochs=2, minibatches=3, standardize="none"))
    for x, y in zip(a.gradients, b.gradients, strict=True):
        torch.testing.assert_close(x["actor"], y["actor"], rtol=0, atol=1e-12)


def test_minibatch_scope_uses_each_minibatchs_own() -> None:
    batch, learner = make_batch(), Watched(rate=0.0)
    cfg = PLAIN.model_copy(update={"minibatches": 3, "standardize": "minibatch", "micro_batch": 1})
    update(learner, batch, cfg)
    parts = torch.tensor_split(seeding.permutation(len(batch), 3, "minibatches", 0), 3)
    for rows, gradient in zip(parts, learner.gradients, strict=True):
        hand = by_hand(Linear(), standardized(take(batch, rows)), PLAIN, Leash())
        torch.testing.assert_close(gradient["actor"], hand["actor"], rtol=0, atol=1e-10)


def test_the_batch_is_not_changed() -> None:
    batch = make_batch()
    before = {k: getattr(batch, k).clone() for k in ("advantage", "return_", "old_logp", "old_value", "mask")}
    update(Watched(), batch, PPOConfig())
    assert all(torch.equal(getattr(batch, k), v) for k, v in before.items())


# --- a constant length -----------------------------------------------------------------------------------------------

FIXED = PLAIN.model_copy(update={"reduction": "fixed_length", "minibatches": 2, "micro_batch": 1})


def test_the_fixed_length_is_the_cap_and_not_the_longest_answer() -> None:
    long = make_batch((8, 8, 2, 1))
    for rows in (slice(0, 2), slice(2, 4)):  # a minibatch of short answers, trimmed or not
        part = take(long, rows)
        longest = int(part.mask.sum(-1).max())
        names = ("old_logp", "old_value", "advantage", "return_", "mask", "ref_logp")
        inputs = replace(part.inputs, obs=part.inputs.obs[:, :longest], action=part.inputs.action[:, :longest])
        trimmed = replace(part, inputs=inputs, **{name: getattr(part, name)[:, :longest] for name in names})
        losses = [update(Watched(), batch, PLAIN.model_copy(update={"reduction": "fixed_length"}))
                  for batch in (part, trimmed)]  # fmt: skip
        assert losses[0].policy_loss == pytest.approx(losses[1].policy_loss, abs=1e-12)
        assert losses[0].gradient_norm == pytest.approx(losses[1].gradient_norm, abs=1e-12)


def test_the_size_of_a_step_falls_with_the_cap() -> None:
    batch = make_batch()
    cfg = PLAIN.model_copy(update={"reduction": "fixed_length"})
    norms = [update(Watched(), replace(batch, length=n), cfg).gradient_norm for n in (8, 16, 32)]
    assert norms[0] == pytest.approx(2 * norms[1], rel=1e-12) and norms[1] == pytest.approx(2 * norms[2], rel=1e-12)


def test_a_constant_length_must_be_known() -> None:
    batch = make_batch()
    for length in (None, 4):
        with pytest.raises(ValueError, match=rf"needs StepBatch.length of at least the 5 steps .* got {length}; give"):
            update(Watched(), replace(batch, length=length), FIXED)


# --- metrics over several minibatches --------------------------------------------------------------------------------


def test_token_metrics_are_sums_over_sums_not_means_of_means() -> None:
    batch = fresh(make_batch((12, 4)))
    flagged = torch.zeros_like(batch.mask)
    flagged[0, :3] = flagged[1, :3] = True
    batch = replace(batch, old_logp=batch.old_logp - flagged.double())  # ratio e on 3 of 12 and on 3 of 4 (B42)
    metrics = update(Watched(rate=0.0), batch, PLAIN.model_copy(update={"minibatches": 2}))
    assert metrics.clip_fraction == pytest.approx(6 / 16, abs=1e-15)
    assert metrics.policy_kl_k1 == pytest.approx(-6 / 16, abs=1e-12)
    assert metrics.policy_kl_k3 == pytest.approx(6 / 16 * (math.e - 2), abs=1e-12)
    assert metrics.ratio_max == pytest.approx(math.e, abs=1e-12)


def test_losses_are_means_over_optimizer_steps() -> None:
    batch, learner = make_batch(), Watched(rate=1e-14)  # a rate of 0 would also rest the norm
    metrics = update(learner, batch, PLAIN.model_copy(update={"minibatches": 3}))
    parts = torch.tensor_split(seeding.permutation(len(batch), 3, "minibatches", 0), 3)
    hands = [by_hand(Linear(), take(batch, rows), PLAIN, Leash()) for rows in parts]
    norms = [math.sqrt(float(h["actor"].square().sum() + h["critic"].square().sum())) for h in hands]
    assert metrics.policy_loss == pytest.approx(sum(h["policy"] for h in hands) / 3, abs=1e-10)
    assert metrics.value_loss == pytest.approx(sum(h["value"] for h in hands) / 3, abs=1e-10)
    assert metrics.gradient_norm == pytest.approx(sum(norms) / 3, abs=1e-10)
    assert metrics.gradient_norm_max == pytest.approx(max(norms), abs=1e-10)


def test_histogram_counts_every_step_in_its_bin() -> None:
    batch = make_batch(drift=1.5)
    metrics = update(Watched(rate=0.0), batch, PPOConfig(epochs=2, minibatches=3, micro_batch=2))
    lr = (Linear()(batch.inputs.obs, batch.inputs.action)["logp"] - batch.old_logp)[batch.mask]
    expected = [0] * 41
    for x in lr.tolist():
        expected[min(max(round(x / 0.1) + 20, 0), 40)] += 2  # bins of width 0.1 centred on 0, ±0.1, …; two epochs
    assert len(HISTOGRAM_EDGES) == 40 and metrics.log_ratio_histogram == tuple(expected)
    assert sum(metrics.log_ratio_histogram) == 2 * sum(LENGTHS)
    assert expected[0] and expected[40] and expected[20]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("row", range(4))
def test_one_ratio_that_is_not_finite_shows_whichever_minibatch_it_is_in(row: int, bad: float) -> None:
    batch = make_batch((2, 2, 2, 2))
    spoilt = batch.old_logp.clone()
    spoilt[row, 1] = -bad  # log r is NaN, or inf
    cfg = PLAIN.model_copy(update={"minibatches": 4})
    metrics = update(Watched(), replace(batch, old_logp=spoilt), cfg)
    place = seeding.permutation(4, 3, "minibatches", 0).tolist().index(row)
    assert math.isfinite(metrics.first_ratio_error) == (place > 0)
    assert math.isnan(metrics.ratio_max) if math.isnan(bad) else metrics.ratio_max == math.inf


@pytest.mark.parametrize("row", range(4))
def test_one_gradient_that_is_not_finite_shows_whichever_minibatch_it_is_in(row: int) -> None:
    batch = make_batch((2, 2, 2, 2))
    spoilt = batch.advantage.clone()
    spoilt[row, 1] = math.nan
    cfg = PLAIN.model_copy(update={"minibatches": 4, "objective": "surrogate"})  # a clip may cut a NaN off
    metrics = update(Watched(), replace(batch, advantage=spoilt), cfg)
    assert math.isnan(metrics.gradient_norm_max) and math.isfinite(metrics.ratio_max)


def test_a_ratio_above_what_a_float_holds_is_inf() -> None:
    batch = make_batch((2, 2))
    metrics = update(Watched(), replace(batch, old_logp=batch.old_logp - 800), PLAIN)
    assert metrics.ratio_max == math.inf


def test_a_broken_gradient_moves_nothing_and_shows() -> None:
    learner, batch = Watched(), make_batch()
    broken = replace(batch, advantage=batch.advantage.masked_fill(batch.mask, math.nan))
    metrics = update(learner, broken)
    assert all(torch.equal(p, learner.weights[0][n]) for n, p in learner.snapshot().items())
    assert math.isnan(metrics.gradient_norm) and learner.skipped_steps == 1
