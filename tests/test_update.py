"""`ppo_update` against a loop over tokens, and what must change nothing."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from linear import ACTIONS, LENGTHS, PLAIN, Inputs, Linear, Watched, assess, by_hand, make_batch, update

from ppo_lab.config.ppo import PPOConfig
from ppo_lab.records import Assessment, StepBatch
from ppo_lab.update import Leash, accumulate, ppo_update

OBJECTIVES = [
    PLAIN,
    PLAIN.model_copy(update={"clip": (0.1, 0.4), "entropy_coef": 0.3, "value_clip": 0.2}),
    PLAIN.model_copy(update={"dual_clip": 1.1, "clip": 0.05}),
    PLAIN.model_copy(update={"objective": "surrogate"}),
    PLAIN.model_copy(update={"objective": "kl_penalty", "penalty_beta": 0.7}),
    PLAIN.model_copy(update={"objective": "reinforce", "value_clip": 0.1}),
]


@pytest.mark.parametrize("reduction", ["token_mean", "sequence_mean", "sequence_sum", "fixed_length"])
@pytest.mark.parametrize("cfg", OBJECTIVES, ids=["clip", "low_high", "dual", "surrogate", "kl_penalty", "reinforce"])
def test_gradient_and_metrics_of_one_minibatch_are_those_of_a_loop(cfg: PPOConfig, reduction: str) -> None:
    cfg = cfg.model_copy(update={"reduction": reduction})
    batch, learner = make_batch(), Watched()
    hand = by_hand(Linear(), batch, cfg, Leash())
    metrics = update(learner, batch, cfg)
    for name in ("actor", "critic"):
        torch.testing.assert_close(learner.gradients[0][name], hand[name], rtol=0, atol=1e-10)
    n = hand["n"]
    norm = math.sqrt(float(hand["actor"].square().sum() + hand["critic"].square().sum()))
    expected = {
        "policy_loss": hand["policy"], "value_loss": hand["value"], "entropy": hand["entropy"] / n,
        "policy_kl_k1": hand["k1"] / n, "policy_kl_k3": hand["k3"] / n, "clip_fraction": hand["outside"] / n,
        "active_clip_fraction": hand["active"] / n, "ratio_max": max(hand["ratios"]),
        "first_ratio_error": max(abs(r - 1) for r in hand["ratios"]), "gradient_norm": norm, "gradient_norm_max": norm,
    }  # fmt: skip
    for name, value in expected.items():
        assert getattr(metrics, name) == pytest.approx(value, abs=1e-10), name
    # or the batch would test nothing
    assert hand["outside"] and hand["active"] and hand["active"] < hand["outside"] < n
    if cfg.value_clip is None:
        assert metrics.value_clip_fraction is None
    else:
        assert metrics.value_clip_fraction == pytest.approx(hand["value_outside"] / n, abs=1e-12)
        assert 0 < hand["value_outside"] < n


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_the_leash_is_the_estimator_it_names(estimator: str) -> None:
    batch, learner, leash = make_batch(), Watched(), Leash(0.3, estimator)
    hand = by_hand(Linear(), batch, PLAIN, leash)
    metrics = update(learner, batch, leash=leash)
    torch.testing.assert_close(learner.gradients[0]["actor"], hand["actor"], rtol=0, atol=1e-10)
    assert metrics.ref_kl_loss == pytest.approx(hand["kl"] / hand["n"], abs=1e-12)  # logged is what was trained (B08)


def test_without_a_leash_the_reference_is_not_looked_at() -> None:
    batch, learner = make_batch(), Watched()
    metrics = update(learner, replace(batch, ref_logp=None))
    assert metrics.ref_kl_loss is None
    torch.testing.assert_close(learner.gradients[0]["actor"], by_hand(Linear(), batch, PLAIN, Leash())["actor"])


def test_exact_kl_is_taken_from_the_assessment() -> None:
    batch, learner, table = make_batch(), Watched(), torch.rand(7, 5, dtype=torch.float64)

    def exact(learner: Watched, inputs: Inputs) -> Assessment:
        seen = assess(learner, inputs)
        return replace(seen, old_kl=2 * seen.entropy, ref_kl=seen.logp * table[inputs.row])

    metrics = ppo_update(learner, batch, exact, PLAIN, seed=3, leash=Leash(0.3, "exact"))
    logp = Linear()(batch.inputs.obs, batch.inputs.action)["logp"].detach()
    assert metrics.ref_kl_loss == pytest.approx(float((logp * table)[batch.mask].mean()), abs=1e-12)
    penalty = ppo_update(learner := Watched(), batch, exact, OBJECTIVES[4], seed=3)
    model = Linear()
    seen = model(batch.inputs.obs, batch.inputs.action)
    terms = (seen["logp"] - batch.old_logp).exp() * batch.advantage - 0.7 * 2 * seen["entropy"]
    loss = -terms[batch.mask].mean()
    assert penalty.policy_loss == pytest.approx(loss.item(), abs=1e-10)
    torch.testing.assert_close(learner.gradients[0]["actor"], torch.autograd.grad(loss, model.actor)[0])


@pytest.mark.parametrize(("leash", "message"), [(Leash(0.1, "k2"), "ref_logp"), (Leash(0.1, "exact"), "ref_kl")])
def test_a_leash_without_a_reference_is_refused(leash: Leash, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        update(Watched(), replace(make_batch(), ref_logp=None), leash=leash)


def test_single_steps_are_a_batch_too() -> None:
    wide, learner, flat = make_batch((1,) * 6), Watched(), Watched()
    a = update(learner, wide)
    names = ("old_logp", "old_value", "advantage", "return_", "mask", "ref_logp")
    squeezed = {k: getattr(wide, k)[:, 0] for k in names}
    inputs = Inputs(obs=wide.inputs.obs[:, 0], action=wide.inputs.action[:, 0], row=wide.inputs.row)
    b = update(flat, StepBatch(inputs=inputs, **squeezed))
    assert a == b and torch.equal(learner.weights[-1]["actor"], flat.weights[-1]["actor"])


# --- what must change nothing ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("reduction", ["token_mean", "sequence_mean", "sequence_sum", "fixed_length"])
@pytest.mark.parametrize("scope", ["none", "minibatch", "rollout"])
def test_micro_batches_change_nothing(reduction: str, scope: str) -> None:
    results = []
    for micro in (None, 1, 3):
        cfg = PPOConfig(epochs=2, minibatches=2, micro_batch=micro, reduction=reduction, standardize=scope,
                        entropy_coef=0.1)  # fmt: skip
        learner = Watched(max_norm=0.1)
        results.append((update(learner, make_batch(), cfg, leash=Leash(0.2)), learner))
    whole, first = results[0]
    for metrics, learner in results[1:]:
        for a, b in zip(learner.gradients, first.gradients, strict=True):
            for name in a:
                torch.testing.assert_close(a[name], b[name], rtol=0, atol=1e-12)
        for name, p in learner.weights[-1].items():
            torch.testing.assert_close(p, first.weights[-1][name], rtol=0, atol=1e-12)
        assert metrics.log_ratio_histogram == whole.log_ratio_histogram
        assert metrics.policy_kl_k3 == pytest.approx(whole.policy_kl_k3, abs=1e-12)
        assert metrics.gradient_norm == pytest.approx(whole.gradient_norm, abs=1e-12)


@pytest.mark.parametrize("cfg", [*OBJECTIVES, PPOConfig(epochs=2, minibatches=3, target_kl=0.1)])
@pytest.mark.parametrize("poison", [1e6, math.nan, math.inf])
def test_padding_is_inert(cfg: PPOConfig, poison: float) -> None:
    batch = make_batch(steps=6)
    dirty = {k: getattr(batch, k).masked_fill(~batch.mask, poison)
             for k in ("old_logp", "old_value", "advantage", "return_", "ref_logp")}  # fmt: skip
    obs = batch.inputs.obs.masked_fill(~batch.mask[..., None], 1e6)  # finite: 0 · NaN is NaN in any matrix product
    action = batch.inputs.action.masked_fill(~batch.mask, ACTIONS - 1)
    a, b = Watched(), Watched()
    clean = update(a, batch, cfg, leash=Leash(0.2))
    other = update(b, replace(batch, inputs=Inputs(obs=obs, action=action, row=batch.inputs.row), **dirty), cfg,
                   leash=Leash(0.2))  # fmt: skip
    assert clean == other
    for name, p in a.weights[-1].items():
        assert torch.equal(p, b.weights[-1][name]) and p.isfinite().all()


def test_nan_opinions_on_padding_are_inert() -> None:
    batch = make_batch(steps=6)

    def spoiled(learner: Watched, inputs: Inputs) -> Assessment:
        seen = assess(learner, inputs)
        pad = ~batch.mask[inputs.row]
        return Assessment(**{k: getattr(seen, k).masked_fill(pad, math.nan) for k in ("logp", "entropy", "value")})

    cfg = PPOConfig(epochs=2, minibatches=2, entropy_coef=0.1)
    a, b = Watched(), Watched()
    assert ppo_update(a, batch, spoiled, cfg, seed=3, leash=Leash(0.2)) == update(b, batch, cfg, leash=Leash(0.2))
    assert torch.equal(a.weights[-1]["actor"], b.weights[-1]["actor"])


@pytest.mark.parametrize("rows", [1, 2, 5])
@pytest.mark.parametrize("scope", ["none", "minibatch"])
def test_two_ranks_share_one_minibatch(rows: int, scope: str) -> None:
    batch = make_batch(LENGTHS[:rows], steps=5)
    cfg = PLAIN.model_copy(update={"micro_batch": 1, "standardize": scope})
    gradients, forwards, alone = [], [], Watched()
    sums, bins, widest = accumulate(alone, batch, assess, cfg, Leash(0.2), policy_on=True)
    shares = []
    for rank in range(2):
        learner = Watched()
        learner.rank, learner.world = rank, 2
        shares.append(accumulate(learner, batch, assess, cfg, Leash(0.2), policy_on=True))
        gradients.append({n: p.grad for n, p in learner.parameters.items()})
        forwards.append(len(learner.seen))
    assert forwards[0] == forwards[1]  # or one would wait for the other for ever (B39)
    for name, p in alone.parameters.items():
        torch.testing.assert_close(gradients[0][name] + gradients[1][name], p.grad, rtol=0, atol=1e-12)
    for name, value in sums.items():
        assert shares[0][0][name] + shares[1][0][name] == pytest.approx(value, abs=1e-12), name
    assert torch.equal(shares[0][1] + shares[1][1], bins)
    assert torch.equal(torch.maximum(shares[0][2], shares[1][2]), widest)
