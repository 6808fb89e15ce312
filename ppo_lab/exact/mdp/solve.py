"""What a policy is worth: one linear system. Gradients flow through it, to the policy's probabilities."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ppo_lab.exact.mdp.world import MDP, ROUNDING


class Solution(NamedTuple):
    """A policy, solved. All float64, in units of the reward but for ``visits``."""

    value: Tensor  # (S,) V(s)
    q: Tensor  # (S, A) Q(s, a)
    advantage: Tensor  # (S, A) Q - V
    visits: Tensor  # (S,) discounted visits Σ_t γ^t P(s_t = s), not normalised: 1/(1-γ) in all if nothing terminates
    J: Tensor  # () expected return from the start


def solve(mdp: MDP, probs: Tensor) -> Solution:
    r"""V, Q, A, visits and J of a policy, exactly.

    .. math:: V = (I - \gamma P_\pi)^{-1} r_\pi, \quad Q = r + \gamma P V, \quad d = (I - \gamma P_\pi^T)^{-1} \rho,
              \quad J = \rho \cdot V

    A time limit changes none of them: it cuts episodes and does not end them.

    Args:
        mdp: the world.
        probs: π(a|s), (S, A); may carry a gradient.

    Raises:
        ValueError: not a policy; or γ = 1 with a policy that never terminates.

    Source: Sutton & Barto 2018, eq. 3.14; visits as in Sutton et al. 2000, theorem 1.

    >>> from ppo_lab.exact.mdp import corridor
    >>> half = torch.full((3, 2), 0.5, dtype=torch.float64)
    >>> solve(corridor(3, gamma=1.0), half).value
    tensor([0.2500, 0.5000, 0.7500], dtype=torch.float64)
    """
    check_policy(mdp, probs)
    step = torch.einsum("sa,saz->sz", probs, mdp.transition)
    system = torch.eye(mdp.states, dtype=torch.float64) - mdp.gamma * step
    try:
        value = torch.linalg.solve(system, (probs * mdp.reward).sum(-1))
        visits = torch.linalg.solve(system.T, mdp.start)
    except torch.linalg.LinAlgError:
        raise ValueError("gamma 1 needs a policy that terminates from every state, got one that may go on for ever; "
                         "use gamma below 1") from None  # fmt: skip
    q = mdp.reward + mdp.gamma * mdp.transition @ value
    return Solution(value, q, q - value[:, None], visits, mdp.start @ value)


def best_policy(mdp: MDP) -> Tensor:
    """A policy that no other beats in any state, (S, A) of 0 and 1; policy iteration from the undecided policy.

    Source: Sutton & Barto 2018, sec. 4.3.

    >>> from ppo_lab.exact.mdp import corridor
    >>> best_policy(corridor(2)).tolist()
    [[0.0, 1.0], [0.0, 1.0]]
    """
    probs = torch.full_like(mdp.reward, 1 / mdp.actions)
    while True:
        q = solve(mdp, probs).q
        kept = (q * probs).sum(-1, keepdim=True) >= q.amax(-1, keepdim=True) - 1e-12  # ties keep what there is
        decided = probs.amax(-1, keepdim=True) == 1
        greedy = torch.nn.functional.one_hot(q.argmax(-1), mdp.actions).double()
        better = torch.where(kept & decided, probs, greedy)
        if torch.equal(better, probs):
            return probs
        probs = better


def limited_values(mdp: MDP, probs: Tensor, steps: int) -> Tensor:
    r"""V with h steps to go, were the cut an end: :math:`V_0 = 0,\ V_h = r_\pi + \gamma P_\pi V_{h-1}`. (steps + 1, S).

    What a critic learns that takes a time limit for a termination. With reward 1 and no end in the world it is
    :math:`(1 - \gamma^h) / (1 - \gamma)`, against :math:`1 / (1 - \gamma)` of `solve`.
    """
    check_policy(mdp, probs)
    step, reward = torch.einsum("sa,saz->sz", probs, mdp.transition), (probs * mdp.reward).sum(-1)
    values = [torch.zeros(mdp.states, dtype=torch.float64)]
    for _ in range(steps):
        values.append(reward + mdp.gamma * step @ values[-1])
    return torch.stack(values)


def check_policy(mdp: MDP, probs: Tensor) -> None:
    """`ValueError` where ``probs`` is no policy of this world."""
    if probs.shape != mdp.reward.shape or probs.dtype != torch.float64:
        raise ValueError(f"probs must be (S, A) {tuple(mdp.reward.shape)} float64, got {tuple(probs.shape)} "
                         f"{probs.dtype}; use logits.double().softmax(-1)")  # fmt: skip
    off = (probs.detach().sum(-1) - 1).abs().max().item()
    if not off <= ROUNDING or bool((probs < 0).any()):
        raise ValueError(f"probs must be at least 0 and sum to 1 in each state, got a sum {off:g} off; use softmax(-1)")
