"""Moments of the policy gradient against enumeration by autograd, and what a baseline may and may not change."""

from __future__ import annotations

import torch
from material import normal, same

from ppo_lab.exact.mdp import gradient_moments

LOGITS, REWARD = normal(6), 3 + normal(6, seed=1)
PROBS = LOGITS.softmax(-1)


def test_moments_are_those_of_the_enumerated_estimator() -> None:
    samples = []
    for arm in range(6):
        leaf = LOGITS.clone().requires_grad_()
        ((REWARD[arm] - 0.7) * leaf.log_softmax(-1)[arm]).backward()
        samples.append(leaf.grad)
    g = torch.stack(samples)
    m = gradient_moments(PROBS, REWARD, baseline=0.7)
    mean = PROBS @ g
    assert same(m.mean, mean) and same(m.trace_variance, (PROBS @ g.square()).sum() - mean @ mean, atol=1e-11)


def test_a_baseline_moves_the_variance_and_not_the_mean() -> None:
    m = gradient_moments(PROBS, REWARD, baseline=0.0)
    assert same(m.value_baseline, PROBS @ REWARD)
    leaf = LOGITS.clone().requires_grad_()
    (leaf.softmax(-1) @ REWARD).backward()
    best = gradient_moments(PROBS, REWARD, baseline=m.optimal_baseline)
    for b in (0.0, 1.0, m.value_baseline, m.optimal_baseline + 0.01, m.optimal_baseline - 0.01):
        other = gradient_moments(PROBS, REWARD, baseline=b)
        assert same(other.mean, leaf.grad) and other.trace_variance > best.trace_variance
    shifted = gradient_moments(PROBS, REWARD + 5, baseline=5.7)
    assert same(shifted.trace_variance, gradient_moments(PROBS, REWARD, baseline=0.7).trace_variance)


def test_a_certain_policy_has_no_gradient() -> None:
    m = gradient_moments(torch.tensor([0.0, 1.0]), torch.tensor([1.0, 2.0]), baseline=0.0)
    assert not m.mean.any() and m.trace_variance == 0 and m.optimal_baseline == m.value_baseline == 2
