r"""What an added reward does to the best policy, exactly: shaped worlds, value iteration, the set of optimal actions.

A potential Φ turns :math:`Q^*` into :math:`Q^* - \Phi`, the same ranking of actions; any other added table is a new
world, whose best policies are its own.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ppo_lab.exact.mdp.world import MDP

TIE = 1e-9  # actions whose Q differ by less are equally good


def shaped(mdp: MDP, potential: Tensor) -> MDP:
    r"""The world with :math:`F(s, a) = \gamma \sum_{s'} P(s'|s,a)\,\Phi(s') - \Phi(s)` added; Φ is 0 after the end.

    Args:
        mdp: the world.
        potential: Φ, (S,), in units of the reward.

    Source: Ng, Harada & Russell 1999, theorem 1.

    >>> from ppo_lab.exact.mdp import corridor
    >>> shaped(corridor(2, gamma=1.0), torch.tensor([1.0, 3.0]).double()).reward.tolist()
    [[-1.0, 2.0], [-2.0, -2.0]]
    """
    led = mdp.gamma * mdp.transition @ potential.double()
    return paid_besides(mdp, led - potential.double()[:, None])


def paid_besides(mdp: MDP, bonus: Tensor, *, weight: float = 1.0) -> MDP:
    """The world with ``weight * bonus`` added to the reward, (S, A): any ad hoc term. Higher weight: more its own."""
    if bonus.shape != mdp.reward.shape:
        raise ValueError(f"bonus must be (S, A) {tuple(mdp.reward.shape)}, got {tuple(bonus.shape)}; one a step")
    return replace(mdp, reward=mdp.reward + weight * bonus.double())


def nearness(mdp: MDP, potential: Tensor) -> Tensor:
    r"""The usual ad hoc term: the *level* of the state that a step leads to, :math:`\sum_{s'} P(s'|s,a)\,\Phi(s')`."""
    return mdp.transition @ potential.double()


def value_iteration(mdp: MDP, *, tolerance: float = 1e-12, most: int = 100_000) -> Tensor:
    r"""Q*, (S, A), by :math:`Q \leftarrow r + \gamma P \max_a Q` until no entry moves by ``tolerance``.

    Raises:
        ValueError: not settled after ``most`` sweeps, as with γ = 1 and a reward for going on for ever.

    Source: Sutton & Barto 2018, eq. 4.10.

    >>> from ppo_lab.exact.mdp import corridor
    >>> value_iteration(corridor(2, gamma=0.5)).tolist()
    [[0.0, 0.5], [0.25, 1.0]]
    """
    q = torch.zeros_like(mdp.reward)
    for _ in range(most):
        after = mdp.reward + mdp.gamma * mdp.transition @ q.amax(-1)
        if float((after - q).abs().max()) < tolerance:
            return after
        q = after
    raise ValueError(f"value iteration must settle within {most} sweeps; use gamma below 1, got {mdp.gamma}")


def optimal_actions(mdp: MDP) -> Tensor:
    """Which actions are optimal in each state, ties included, (S, A) bool.

    >>> from ppo_lab.exact.mdp import corridor
    >>> optimal_actions(corridor(2)).tolist()
    [[False, True], [False, True]]
    """
    q = value_iteration(mdp)
    return q >= q.amax(-1, keepdim=True) - TIE
