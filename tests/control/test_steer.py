"""What moves besides the weights: plans reach their last value, rules push the right way, TRPO stays in its region."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from control.small_control import config, run

from ppo_lab import faults, seeding
from ppo_lab.control.steer import Knobs, settings, turned
from ppo_lab.control.steps import credit, step_batch
from ppo_lab.control.trpo import NaturalStep, fisher_product, flat, take_natural_step
from ppo_lab.core.trust_region import categorical_fisher_product
from ppo_lab.records import StepBatch


def after(cfg, knobs=None, *, kl=0.0, spread=1.0, step=None) -> Knobs:
    return turned(knobs or Knobs.first(cfg), cfg, kl=kl, spread=spread, step=step, n_steps=64)


def test_plans_are_linear_and_arrive():
    cfg = config("ppo.entropy_coef=0.1", "schedule.entropy_coef=0.01", "schedule.clip=0.1", "schedule.lam=0.9",
                 "total_steps=704")  # fmt: skip
    assert cfg.steps == 11
    first, middle, last = (settings(step, cfg, Knobs.first(cfg)) for step in (0, 5, 10))
    assert (first.entropy_coef, first.clip, first.lam) == (0.1, 0.2, 0.95)
    assert (middle.entropy_coef, middle.clip, middle.lam) == pytest.approx((0.055, 0.15, 0.925), abs=1e-12)
    assert (last.entropy_coef, last.clip, last.lam) == pytest.approx((0.01, 0.1, 0.9), abs=1e-12)


def test_without_a_plan_nothing_moves():
    cfg = config()
    assert settings(3, cfg, Knobs.first(cfg)) == cfg.ppo and after(cfg, kl=9.0, spread=99.0) == Knobs.first(cfg)


def test_the_penalty_follows_the_kl_after_the_epochs():
    cfg = config("ppo.objective=kl_penalty", "ppo.penalty_beta=1.0", "penalty.target=0.01")
    assert after(cfg, kl=0.02).beta == 2.0 and after(cfg, kl=0.005).beta == 0.5 and after(cfg, kl=0.01).beta == 1.0
    assert after(cfg, kl=float("nan")).beta == 1.0
    assert after(config("ppo.objective=kl_penalty", "penalty.rule=fixed"), kl=9.0).beta == 1.0
    with faults.planted("kl_before_epochs"):
        assert after(cfg, kl=0.02).beta == 0.5  # whatever the KL, β falls


def test_the_clip_shrinks_where_the_kl_is_above_its_target():
    cfg = config("schedule.clip_kl=0.01")
    small, large = after(cfg, kl=0.05), after(cfg, kl=0.001)
    assert small.clip < 0.2 < large.clip and settings(1, cfg, small).clip == small.clip


def test_lambda_falls_while_advantages_spread_too_far_and_comes_back():
    cfg = config("schedule.lam_spread=2.0")
    knobs = Knobs.first(cfg)
    for _ in range(20):
        knobs = after(cfg, knobs, spread=3.0)
    assert knobs.lam == pytest.approx(0.75, abs=1e-12)
    for _ in range(20):
        knobs = after(cfg, knobs, spread=1.0)
    assert knobs.lam == 0.95


def test_the_trust_region_grows_where_promises_are_kept():
    cfg = config("algorithm=trpo", "trust_region.adapt=improvement")
    kept = NaturalStep(0, 0.009, 0.9, 1.0, 1.0, 0.0)
    grown, shrunk = after(cfg, step=kept), after(cfg, step=replace(kept, accepted=None, improvement=0.0))
    assert grown.delta == 0.02 and shrunk.delta == 0.005


# --- the natural step ------------------------------------------------------------------------------------------------


@pytest.fixture
def collected(tmp_path):
    """A run after one update."""
    made = run(tmp_path / "run", "algorithm=trpo", "env.count=8", "rollout=32", "total_steps=256", "ppo.epochs=1")
    list(made)
    return made


def batch_of(made) -> StepBatch:
    """A fresh batch of its present policy."""
    noise = made.actions.noise(32, 8, draw=seeding.generator(5, "act"))
    with made.learner.whole() as module:
        found = made.collector.collect(module, noise)
    return step_batch(found, *credit(found.rollout, made.config.ppo, "gae"))


def test_fisher_products_are_those_of_the_closed_form(collected):
    """On a policy that is a table of logits the product is known exactly."""
    logits = torch.nn.Parameter(torch.tensor([[0.3, -0.7, 1.1]], dtype=torch.float64))
    actions, old = collected.actions, logits.detach().clone()
    v = torch.tensor([0.5, 1.0, -2.0], dtype=torch.float64)
    mine = fisher_product(actions.kl(old, logits).mean(), [logits])(v)
    torch.testing.assert_close(mine, categorical_fisher_product(old, v), rtol=0, atol=1e-12)


@pytest.mark.parametrize("delta", [0.001, 0.01, 0.05])
def test_a_natural_step_improves_the_surrogate_inside_the_region(collected, delta):
    batch, cfg = batch_of(collected), config("algorithm=trpo").trust_region
    before = flat([p.detach() for _, p in collected.learner.module.parameter_groups()["actor"]]).clone()
    critic = [p.detach().clone() for _, p in collected.learner.module.parameter_groups()["critic"]]
    step = take_natural_step(collected.learner, batch, collected.actions, cfg, delta=delta)
    with collected.learner.whole() as module:
        kl = float(collected.actions.kl(batch.inputs.head, module.head(batch.inputs.obs)).mean())
    assert step.accepted is not None and step.improvement > 0 and step.ratio_error < 1e-5  # float32
    assert kl == pytest.approx(step.kl, abs=1e-6) and delta / 8 < kl <= delta
    after_ = flat([p.detach() for _, p in collected.learner.module.parameter_groups()["actor"]])
    assert not torch.equal(before, after_)
    assert all(map(torch.equal, critic, [p for _, p in collected.learner.module.parameter_groups()["critic"]]))


def test_where_no_candidate_is_good_the_policy_stays(collected):
    batch, cfg = batch_of(collected), config("algorithm=trpo", "trust_region.backtracks=1").trust_region
    before = {name: p.detach().clone() for name, p in collected.learner.module.named_parameters()}
    flat_batch = replace(batch, advantage=torch.zeros_like(batch.advantage))  # nothing to improve
    step = take_natural_step(collected.learner, flat_batch, collected.actions, cfg, delta=0.01)
    assert step.accepted is None and step.kl == 0.0 and step.improvement == 0.0
    assert all(torch.equal(p, before[name]) for name, p in collected.learner.module.named_parameters())
