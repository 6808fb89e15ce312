"""Notebook 03: how heavy the tail of the ratio is, what it costs, and what the KL estimators are worth. All exact.

A seed is a pair of policies over a vocabulary of 64: an old one, and one moved in a random direction until it is as far
away as was asked for. Nothing is sampled unless it says so: sums over the vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from ppo_lab import seeding
from ppo_lab.config.ppo import PPOConfig
from ppo_lab.core.kl import categorical_kl, k1, k2, k3
from ppo_lab.exact.agent import TabularActorCritic, TabularInputs
from ppo_lab.exact.agent import assess as assess_steps
from ppo_lab.exact.mdp import bandit
from ppo_lab.learners import Learner
from ppo_lab.learners.plain import PlainLearner
from ppo_lab.records import Assessment, StepBatch, UpdateMetrics
from ppo_lab.update import ppo_update

VOCABULARY, SHARP = 64, 1.5  # spread of the old logits
ESTIMATORS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"k1": k1, "k2": k2, "k3": k3}


class Pair(NamedTuple):
    """Log-probabilities of the old and the new policy, (V,)."""

    old: Tensor
    new: Tensor

    @property
    def ratio(self) -> Tensor:
        """π/π_old of every token."""
        return (self.new - self.old).exp()

    def under_old(self, x: Tensor) -> float:
        """Expectation over samples of the old policy."""
        return float(self.old.exp() @ x)


def ratio_std(pair: Pair) -> float:
    """Standard deviation of the ratio over old samples; its mean is 1."""
    return max(pair.under_old(pair.ratio.square()) - 1, 0.0) ** 0.5


def ratio_kl(pair: Pair) -> float:
    """Exact KL(old‖new), nats."""
    return float(categorical_kl(pair.old, pair.new))


def apart(seed: int, distance: Callable[[Pair], float], wanted: float) -> Pair:
    """Move the new policy along a random line until ``distance(pair)`` is ``wanted``, by bisection."""
    draw = seeding.generator(seed, "pair")
    logits, way = torch.randn(2, VOCABULARY, generator=draw, dtype=torch.float64)

    def at(step: float) -> Pair:
        return Pair((SHARP * logits).log_softmax(-1), (SHARP * logits + step * way).log_softmax(-1))

    low, high = 0.0, 1.0
    while distance(at(high)) < wanted:
        high *= 2
        if high > 1e6:
            raise ValueError(f"distance must be one that this line reaches, got {wanted}; take less")
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if distance(at(middle)) < wanted else (low, middle)
    return at(high)


def tail(seed: int, kl: float) -> float:
    """Share of old samples with \\|r − 1\\| > 2, which is r > 3, at this KL(old‖new)."""
    pair = apart(seed, ratio_kl, kl)
    return pair.under_old((pair.ratio > 3).double())


def variance_factor(seed: int, std: float) -> float:
    """Variance of the policy gradient from weighted old samples, in units of that from fresh ones.

    Rewards are random; the baseline is the new policy's mean reward. Both estimates have the same mean, the exact
    gradient of the new policy.
    """
    pair = apart(seed, ratio_std, std)
    reward = torch.randn(VOCABULARY, generator=seeding.generator(seed, "reward"), dtype=torch.float64)
    p = pair.new.exp()
    score = torch.eye(VOCABULARY, dtype=torch.float64) - p  # gradient of log p_a in the logits, row a
    g = (reward - p @ reward)[:, None] * score
    size, mean = g.square().sum(-1), (p @ g).square().sum()
    fresh = p @ size - mean
    weighted = pair.old.exp() @ (pair.ratio.square() * size) - mean
    return float(weighted / fresh)


class Moments(NamedTuple):
    """Of one sample's estimate of KL(old‖new), relative to that KL."""

    bias: float
    std: float


def estimator_moments(seed: int, kl: float) -> dict[str, Moments]:
    """Exact bias and spread of k1, k2, k3 from old samples, a name each."""
    pair = apart(seed, ratio_kl, kl)
    found = {}
    for name, estimator in ESTIMATORS.items():
        x = estimator(pair.old, pair.new)
        mean = pair.under_old(x)
        spread = max(pair.under_old(x.square()) - mean**2, 0.0) ** 0.5
        found[name] = Moments(mean / kl - 1, spread / kl)
    return found


def sampled_kl(seed: int, kl: float, *, samples: int) -> dict[str, float]:
    """The three estimates from that many old samples, relative to the exact KL."""
    pair = apart(seed, ratio_kl, kl)
    draw = seeding.generator(seed, "sampled kl")
    token = torch.multinomial(pair.old.exp(), samples, replacement=True, generator=draw)
    return {name: float(f(pair.old[token], pair.new[token]).mean()) / kl for name, f in ESTIMATORS.items()}


def answers_update(tokens: int, *, rows: int = 16, seed: int = 0) -> tuple[UpdateMetrics, PlainLearner]:
    """The trainer's update with one ratio for a whole answer of so many tokens: log-probabilities add up to hundreds.

    Two epochs on answers of an undecided policy over 64 tokens; the advantage is random.
    """
    draw = seeding.generator(seed, "answers")
    module = TabularActorCritic(bandit(torch.zeros(VOCABULARY)))
    learner = PlainLearner(module, actor_rate=0.01, critic_rate=0.01, max_norm=None, device="cpu")
    action = torch.randint(VOCABULARY, (rows, tokens), generator=draw)
    inputs = TabularInputs(obs=torch.zeros_like(action), action=action)

    def assess(learner: Learner, seen: TabularInputs) -> Assessment:
        each = assess_steps(learner, seen)
        return replace(each, logp=each.logp.sum(-1), entropy=each.entropy.sum(-1), value=each.value.mean(-1))

    advantage = torch.randn(rows, generator=draw, dtype=torch.float64)
    zero = torch.zeros_like(advantage)
    with torch.no_grad():
        old_logp = assess(learner, inputs).logp
    batch = StepBatch(inputs=inputs, old_logp=old_logp, old_value=zero, advantage=advantage, return_=zero,
                      mask=torch.ones(rows, dtype=torch.bool))  # fmt: skip
    cfg = PPOConfig(epochs=2, minibatches=1, value_clip=None)
    return ppo_update(learner, batch, assess, cfg, seed=seed), learner
