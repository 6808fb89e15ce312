"""Metrics of a rollout: padding is invisible to all of them, and the KL that is logged is the one that was charged."""

from __future__ import annotations

import math

import pytest
import torch
from linear import PLAIN, Watched, make_batch, update
from small_runs import timeless
from torch import Tensor

from ppo_lab import seeding
from ppo_lab.config.language import KLConfig
from ppo_lab.core.masking import length_mask, masked_sum
from ppo_lab.metrics.cost import Clock
from ppo_lab.records import Responses, StepMetrics, TextRollout
from ppo_lab.rlhf.measure import measure
from ppo_lab.rlhf.steps import advantages, rewards_of

MASK = length_mask(torch.tensor([3, 1, 5, 2]), steps=6)
UPDATE = update(Watched(), make_batch((2, 3)))


def rollout_of(*, poison: float | None = None) -> TextRollout:
    """Four answers; what lies behind their ends is ``poison``, or 0 as the recipe leaves it."""

    def numbers(name: str) -> Tensor:
        x = torch.randn(4, 6, generator=seeding.generator("measure", name), dtype=torch.float64)
        return torch.where(MASK, x, 0.0 if poison is None else poison)

    draw = seeding.generator("measure", "tokens")
    response = torch.where(MASK, torch.randint(3, 9, (4, 6), generator=draw), 0 if poison is None else 7)
    rows = torch.arange(4)
    responses = Responses(
        tokens=torch.cat([torch.full((4, 2), 5), response], -1),
        attention=torch.cat([torch.ones(4, 2, dtype=torch.bool), MASK], -1),
        response=response, mask=MASK, stopped=rows < 3, logp=numbers("sampler"), index=rows, policy_version=rows,
    )  # fmt: skip
    score = torch.tensor([1.0, -0.5, 0.25, 2.0], dtype=torch.float64)
    return TextRollout(
        responses=responses, old_logp=numbers("logp"), forward_logp=numbers("logp"), ref_logp=numbers("ref"),
        value=numbers("value"), entropy=numbers("entropy"), raw_score=score, score=score,
    )  # fmt: skip


def measured(rollout: TextRollout, kl: KLConfig, *, poison: float | None = None) -> tuple[StepMetrics, Tensor]:
    reward = rewards_of(rollout, beta=kl.beta, cfg=kl)
    advantage, target = advantages(rollout, reward, PLAIN)
    if poison is not None:
        reward, advantage, target = (torch.where(MASK, x, poison) for x in (reward, advantage, target))
    clock = Clock()
    for lap in ("rollout", "score", "update"):
        clock.lap(lap)
    return measure(1, rollout, reward, advantage, target, UPDATE, beta=kl.beta, rates=(1.0, 1.0), clock=clock), reward


@pytest.mark.parametrize("poison", [1e6, math.nan, -math.inf])
def test_b42_pads_move_no_metric(poison: float) -> None:
    clean, _ = measured(rollout_of(), KLConfig())
    dirty, _ = measured(rollout_of(poison=poison), KLConfig(), poison=poison)
    assert timeless(clean.row()) == timeless(dirty.row()) and clean.tokens == 11


def test_b42_token_metrics_are_sums_over_real_tokens() -> None:
    rollout, kl = rollout_of(), KLConfig()
    found, reward = measured(rollout, kl)
    gap = (rollout.forward_logp - rollout.ref_logp)[MASK]
    assert found.ref_kl_token == pytest.approx(float(gap.sum()) / 11, abs=1e-12)
    assert found.value_mean == pytest.approx(float(rollout.value[MASK].sum()) / 11, abs=1e-12)
    advantage, _ = advantages(rollout, reward, PLAIN)
    assert found.advantage_mean == pytest.approx(float(advantage[MASK].sum()) / 11, abs=1e-12)


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_b08_the_kl_that_is_logged_is_the_one_that_was_charged(estimator: str) -> None:
    kl, rollout = KLConfig(beta=0.3, estimator=estimator), rollout_of()
    found, reward = measured(rollout, kl)
    total = 0.0
    for d in (rollout.old_logp - rollout.ref_logp)[MASK].tolist():
        total += {"k1": d, "k2": d * d / 2, "k3": math.exp(-d) - 1 + d}[estimator]
    assert found.non_score_reward == pytest.approx(-0.3 * total / 4, abs=1e-12)
    assert float(masked_sum(reward, MASK).sum()) == pytest.approx(float(rollout.score.sum()) - 0.3 * total, abs=1e-12)
