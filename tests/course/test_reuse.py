"""Experiments of notebook 04: they measure what they say, and can come out either way."""

from __future__ import annotations

import math

import pytest
import torch

from ppo_lab import faults
from ppo_lab.core.kl import RULES
from ppo_lab.course.experiments import controllers, promises, reuse
from ppo_lab.course.experiments.controllers import SIGNS, TARGET, beta_rule, beta_run, clip_rule, clip_run
from ppo_lab.course.experiments.reuse import METHODS, config, one_batch, rounds, run, study, world
from ppo_lab.course.recordings import recorded
from ppo_lab.exact.mdp import best_policy, solve


def test_the_scale_runs_from_the_undecided_policy_to_the_best() -> None:
    here = world(3)
    undecided = torch.full_like(here.mdp.reward, 0.25)
    assert here.gain(undecided) == 0 and here.gain(best_policy(here.mdp)) == pytest.approx(1, abs=1e-12)
    worst = torch.nn.functional.one_hot(solve(here.mdp, undecided).q.argmin(-1), 4).double()
    assert here.gain(worst) < 0


@pytest.mark.parametrize("rate", [0.05, 0.002])
def test_reuse_breaks_the_surrogate_only_where_steps_are_large(rate: float) -> None:
    """Either way: at a rate of 0.05 forty epochs are too many, at 0.002 they are better than ten."""
    few, many = ([[*rounds(s, config("surrogate", n), rate=rate)][-1].gain for s in (0, 1)] for n in (10, 40))
    lost = sum(few) / 2 - sum(many) / 2
    assert lost > 0.05 if rate == 0.05 else lost < -0.2


def test_all_methods_are_alike_in_the_first_epoch_of_the_first_round() -> None:
    """Ratios are 1 and nothing is clipped yet; TRPO differs, as it takes a step of its own length."""
    first = {method: run(method, 1, 0)[0].kl for method in METHODS if method != "TRPO"}
    assert len({round(kl, 12) for kl in first.values()}) == 1
    trpo = [r.batch_kl for r in run("TRPO", 1, 0)]
    assert max(trpo) <= reuse.DELTA and min(trpo) > reuse.DELTA / 20


def test_a_row_a_run_and_the_same_again() -> None:
    rows = study(["clip", "TRPO"], [1, 4], [5])
    assert [(r["method"], r["epochs"], r["seed"]) for r in rows] == [
        ("clip", 1, 5), ("clip", 4, 5), ("TRPO", 1, 5), ("TRPO", 4, 5)]  # fmt: skip
    assert rows == study(["clip", "TRPO"], [1, 4], [5])
    assert all(r["best"] >= r["gain"] and r["largest_kl"] >= r["kl"] > 0 for r in rows)


@pytest.mark.parametrize("method", METHODS)
def test_what_is_recorded_can_be_repeated(method: str) -> None:
    """One run a method; another machine's rounding may show in the last digit that is kept."""
    (row,) = study([method], [4], [7])
    kept = next(r for r in recorded("reuse").rows if (r["method"], r["epochs"], r["seed"]) == (method, 4, 7))
    assert row == {**kept, **{key: pytest.approx(kept[key], abs=2e-4) for key in ("gain", "best", "kl", "largest_kl")}}


def test_everything_is_recorded() -> None:
    rows = recorded("reuse").rows
    assert [(r["method"], r["epochs"], r["seed"]) for r in rows] == [
        (m, k, s) for m in METHODS for k in reuse.EPOCHS for s in reuse.SEEDS]  # fmt: skip


def test_one_batch_many_epochs_are_one_long_update() -> None:
    """Forty calls with one epoch are the trainer's loop: the KL of the first pass is that of a single-epoch round."""
    seen = one_batch(0, config("clip", 1, clip=0.2), epochs=12)
    assert len(seen) == 12 and seen[0].silent == 0 and seen[-1].silent > 0.3
    assert [e.kl for e in seen] == sorted(e.kl for e in seen)
    free = one_batch(0, config("surrogate", 1), epochs=12)
    assert free[0].kl == seen[0].kl and free[-1].kl > seen[-1].kl


@pytest.mark.parametrize(("rate", "held"), [(0.02, True), (0.5, False)])
def test_clipping_bounds_the_kl_or_not(rate: float, held: bool) -> None:
    kl = one_batch(1, config("clip", 1, clip=0.2), epochs=10, rate=rate)[-1].kl
    assert (kl < -math.log(1 - 0.2)) == held


@pytest.mark.parametrize("name", ["min_left_out", "ratio_outside_the_loop"])
def test_faults_of_the_update_let_the_policy_run(name: str) -> None:
    healthy = one_batch(0, config("clip", 1), epochs=20, rate=0.2)
    with faults.planted(name):
        broken = one_batch(0, config("clip", 1), epochs=20, rate=0.2)
    assert broken[0].kl == healthy[0].kl and broken[-1].kl > 1.2 * healthy[-1].kl
    assert (broken[-1].silent == 0) == (name == "ratio_outside_the_loop")


def test_a_kl_measured_before_the_epochs_is_0_and_beta_only_falls() -> None:
    with faults.planted("kl_before_epochs"):
        broken = beta_run(0, "double_or_halve")
    betas = [r.cfg.penalty_beta for r in broken]
    assert {r.batch_kl for r in broken} == {0.0} and betas == [max(0.5**i, 1e-3) for i in range(len(betas))]
    healthy = [r.cfg.penalty_beta for r in beta_run(0, "double_or_halve")]
    assert max(healthy) > 1


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_for_beta_knows_up_and_down(rule: str) -> None:
    cfg, adapt = config("kl_penalty", 1, penalty_beta=1.0), beta_rule(rule)
    high, same, low = (adapt(cfg, TARGET * factor).penalty_beta for factor in (3, 1, 0))
    assert high > same == 1 > low


def test_the_sign_of_the_rule_for_the_clip() -> None:
    """By the formulas: ε e^{α (target − KL)}, and the printed ε e^{α (KL − target)}."""
    cfg = config("clip", 1, clip=0.2)
    for kl in (0.0, TARGET, 0.03):
        right, printed = (clip_rule(sign)(cfg, kl).clip for sign in SIGNS)
        assert right == pytest.approx(0.2 * math.exp(controllers.SHARP * (TARGET - kl)), abs=1e-12)
        assert printed == pytest.approx(0.2 * math.exp(controllers.SHARP * (kl - TARGET)), abs=1e-12)


def test_controllers_move_the_kl() -> None:
    fixed, steered = controllers.mean_kl(beta_run(0, "fixed")), controllers.mean_kl(beta_run(0, "double_or_halve"))
    assert abs(steered - TARGET) < abs(fixed - TARGET)
    right, printed = (controllers.mean_kl(clip_run(0, sign)) for sign in SIGNS)
    assert right < TARGET * 1.5 < printed


def test_the_trpo_bound_holds_on_random_steps_and_a_false_one_would_show(monkeypatch: pytest.MonkeyPatch) -> None:
    assert min(promises.slack(s) for s in range(10)) >= 0
    wrong = promises.trpo_bound

    def without_penalty(*given):
        found = wrong(*given)
        return found._replace(bound=found.surrogate)

    monkeypatch.setattr(promises, "trpo_bound", without_penalty)
    assert min(promises.slack(s, size=1.0) for s in range(10)) < 0


@pytest.mark.parametrize("clip", [0.3, 0.2, 0.02, 0.002])
def test_two_doors_lose_at_any_clip(clip: float) -> None:
    found = promises.two_door_step(clip)
    p = (1 / (2 + clip) + 0.5) / 2
    q = p * (1 + clip)
    assert found.surrogate == pytest.approx((q - p) * (1 - 2 * p), abs=1e-12)
    assert found.J == pytest.approx(q * (1 - q) - p * (1 - p), abs=1e-12)
    assert found.surrogate > 0 > found.J
