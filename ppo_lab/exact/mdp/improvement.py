"""What a new policy gains over an old one, and what can be promised of it from the old one's visits alone."""

from __future__ import annotations

import math
from typing import NamedTuple

from torch import Tensor

from ppo_lab.core.objectives import Clip, clipped_surrogate
from ppo_lab.exact.mdp.gradient import max_kl
from ppo_lab.exact.mdp.solve import check_policy, solve
from ppo_lab.exact.mdp.world import MDP


def performance_difference(mdp: MDP, old_probs: Tensor, new_probs: Tensor) -> Tensor:
    r"""What the new policy gains, :math:`J(new) - J(old) = \sum_s d_{new}(s) \sum_a new(a|s) A_{old}(s, a)`.

    Exact, but it needs the visits of the new policy. Source: Kakade & Langford 2002, lemma 6.1.
    """
    check_policy(mdp, new_probs)
    return solve(mdp, new_probs).visits @ (new_probs * solve(mdp, old_probs).advantage).sum(-1)


def surrogate_value(mdp: MDP, old_probs: Tensor, new_probs: Tensor) -> Tensor:
    r"""What the old visits promise, :math:`L(new) = J(old) + \sum_s d_{old}(s) \sum_a new(a|s) A_{old}(s, a)`.

    Value and gradient are those of J at new = old; further away it may promise what J does not keep.
    Source: Schulman et al. 2015, eq. 3.
    """
    check_policy(mdp, new_probs)
    old = solve(mdp, old_probs)
    return old.J + old.visits @ (new_probs * old.advantage).sum(-1)


def clipped_surrogate_value(mdp: MDP, old_probs: Tensor, new_probs: Tensor, *, clip: Clip) -> Tensor:
    r"""PPO's objective without any sampling: `surrogate_value` with :math:`r A` clipped action by action.

    .. math:: J(old) + \sum_s d_{old}(s) \sum_a old(a|s) \min(r A_{old}, \mathrm{clip}(r, 1 - ε, 1 + ε) A_{old})

    Args:
        mdp, old_probs, new_probs: world and policies, (S, A); the old one must be able to take every action.
        clip: ε, or (low, high).

    Source: Schulman et al. 2017, eq. 7.
    """
    check_policy(mdp, new_probs)
    old = solve(mdp, old_probs)
    terms = clipped_surrogate(new_probs.log() - old_probs.log(), old.advantage, clip=clip)
    return old.J + old.visits @ (old_probs * terms).sum(-1)


class Bound(NamedTuple):
    """The TRPO bound and what it is made of; ``J`` of the new policy is never below ``bound``."""

    bound: Tensor  # surrogate - penalty
    surrogate: Tensor  # L(new)
    penalty: Tensor  # C · max KL
    coefficient: float  # C = 4 ε γ / (1-γ)²
    epsilon: float  # ε = max |A_old|
    kl: Tensor  # max KL(old‖new), nats
    J: Tensor  # J(new)


def trpo_bound(mdp: MDP, old_probs: Tensor, new_probs: Tensor) -> Bound:
    r"""The lower bound on J(new) that a trust region rests on.

    .. math:: J(new) \ge L(new) - C\, KL^{max}(old \| new), \qquad C = \frac{4 ε γ}{(1 - γ)^2}, \quad ε = \max |A_{old}|

    C grows as :math:`1/(1-γ)^2`, so the step that the bound allows is tiny: nobody takes it at its word.

    Raises:
        ValueError: γ = 1, where the bound says nothing.

    Source: Schulman et al. 2015, theorem 1 and eq. 9.
    """
    if mdp.gamma >= 1:
        raise ValueError(f"the bound needs gamma below 1, got {mdp.gamma}; its coefficient is infinite there")
    epsilon = solve(mdp, old_probs).advantage.detach().abs().max().item()
    coefficient = 4 * epsilon * mdp.gamma / math.pow(1 - mdp.gamma, 2)
    surrogate, kl = surrogate_value(mdp, old_probs, new_probs), max_kl(mdp, old_probs, new_probs)
    penalty = coefficient * kl
    return Bound(surrogate - penalty, surrogate, penalty, coefficient, epsilon, kl, solve(mdp, new_probs).J)
