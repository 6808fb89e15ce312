"""Tabular worlds, solved by linear algebra: what policy gradients would be if nothing had to be sampled.

===============  ===============================================================================
`world`          an `MDP` as data, and five makers: a bandit, a corridor, a chain, a grid, a random one
`solve`          V, Q, A, visits and J of a policy; the best policy; values under a time limit
`gradient`       the exact policy gradient, the Fisher matrix, KL over the states visited
`improvement`    what a new policy gains, what surrogates promise, the TRPO bound
`shaping`        worlds with an added reward, value iteration, which actions are optimal
`counterexample` a step that PPO's clipped surrogate likes and J does not
`moments`        mean and variance of the one-sample gradient of a bandit
===============  ===============================================================================
"""

from __future__ import annotations

from ppo_lab.exact.mdp.counterexample import Counterexample, clip_counterexample
from ppo_lab.exact.mdp.gradient import fisher, max_kl, mean_kl, policy_gradient
from ppo_lab.exact.mdp.improvement import (
    Bound,
    clipped_surrogate_value,
    performance_difference,
    surrogate_value,
    trpo_bound,
)
from ppo_lab.exact.mdp.moments import GradientMoments, gradient_moments
from ppo_lab.exact.mdp.shaping import nearness, optimal_actions, paid_besides, shaped, value_iteration
from ppo_lab.exact.mdp.solve import Solution, best_policy, limited_values, solve
from ppo_lab.exact.mdp.world import MDP, bandit, chain, corridor, grid, random_mdp

__all__ = [
    "MDP", "Bound", "Counterexample", "GradientMoments", "Solution", "bandit", "best_policy", "chain",
    "clip_counterexample", "clipped_surrogate_value", "corridor", "fisher", "gradient_moments", "grid",
    "limited_values", "max_kl", "mean_kl", "nearness", "optimal_actions", "paid_besides", "performance_difference",
    "policy_gradient", "random_mdp", "shaped", "solve", "surrogate_value", "trpo_bound", "value_iteration",
]  # fmt: skip
