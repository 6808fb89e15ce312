"""Notebook 05's experiments can come out either way, and measure what they say."""

from __future__ import annotations

import pytest
import torch

from ppo_lab import faults
from ppo_lab.course.experiments.critic import explain, fit_critic, live, living, scaled
from ppo_lab.course.experiments.gae import lambda_study
from ppo_lab.course.figures.gae import errors, world
from ppo_lab.exact.agent import sample
from ppo_lab.exact.mdp import solve


def test_study_measures_the_exact_bias_and_noise() -> None:
    """One seed against the solved moments, critic right."""
    (zero, one) = lambda_study([0], errors=(0.0,), lams=(0.0, 1.0), batches=(2000,))
    assert zero["noise"] == pytest.approx(errors(0.99, 0.0, 0.0)[1], rel=0.05)
    assert one["noise"] == pytest.approx(errors(0.99, 1.0, 0.0)[1], rel=0.05)
    assert abs(zero["bias2"]) < 0.01 and zero["rmse"] < one["rmse"]


def test_study_comes_out_either_way() -> None:
    """Where the critic is right λ = 0 wins; where it is wrong λ = 0.95 does."""
    rows = lambda_study(range(2), errors=(0.0, 2.0), lams=(0.0, 0.95), batches=(60,))
    error = {(r["seed"], r["error"], r["lam"]): r["rmse"] for r in rows}
    assert all(error[seed, 0.0, 0.0] < error[seed, 0.0, 0.95] for seed in range(2))
    assert all(error[seed, 2.0, 0.0] > error[seed, 2.0, 0.95] for seed in range(2))
    assert all(r["plain"] > r["bias2"] for r in rows if r["error"] == 2.0)


def test_the_planted_limit_ends_episodes_and_nothing_else() -> None:
    mdp = living()
    probs = torch.full_like(mdp.reward, 0.25)
    right = sample(mdp, probs, episodes=8, steps=35, seed=0)
    with faults.planted("limit_is_end"):
        wrong = sample(mdp, probs, episodes=8, steps=35, seed=0)
    more = wrong.terminated & ~right.terminated
    assert more.any() and (right.ended[more]).all() and not right.terminated[more].any()
    assert (wrong.next_value[more] == 0).all() and (right.next_value[more] > 0).all()
    assert torch.equal(wrong.obs, right.obs) and torch.equal(wrong.ended, right.ended)


def test_a_limit_taken_for_an_end_costs_only_where_leaving_pays() -> None:
    best = 10.0
    healthy = live(living(), 0)
    assert healthy.J[-1] == pytest.approx(best, abs=0.05) and healthy.value[-1] == pytest.approx(best, abs=0.1)
    with faults.planted("limit_is_end"):
        broken, harmless = live(living(), 0), live(living(leave=0.0), 0)
    assert broken.J[-1] < 9 and broken.value[-1] < 8 and broken.left[-1] > 0.3 > 0.1 > healthy.left[-1]
    assert abs(broken.explained[-1]) < 0.3 and len(broken.explained) == 14
    assert harmless.J[-1] > 9.5 and harmless.value[-1] < 8  # the value is as wrong, the policy is not


def test_value_clipping_brakes_where_returns_are_large_for_its_band() -> None:
    big = scaled(world(), 10.0)
    assert torch.allclose(solve(big.mdp, big.probs).value, big.value, atol=1e-9)
    free, held = (fit_critic(big, 0, value_clip=clip, rollouts=4).error for clip in (None, 0.2))
    assert all(a < b for a, b in zip(free, held, strict=True))
    assert fit_critic(big, 0, value_clip=1e6, rollouts=2).error == fit_critic(big, 0, rollouts=2).error


def test_a_target_network_lags() -> None:
    here = world()
    assert fit_critic(here, 0, pace=1.0, rollouts=3).error == fit_critic(here, 0, rollouts=3).error
    assert sum(fit_critic(here, 0, pace=0.2, rollouts=6).error) > sum(fit_critic(here, 0, rollouts=6).error)


def test_logged_and_true_explained_variance() -> None:
    right, large = explain(1.0, 0.95, 0), explain(3.0, 0.0, 0)
    assert right.true == pytest.approx(1, abs=1e-9) and right.logged < 0.5
    assert large.true == pytest.approx(-3, abs=1e-9) and large.logged > right.logged
