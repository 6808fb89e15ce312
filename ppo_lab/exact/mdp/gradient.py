"""The exact policy gradient of a softmax policy, and distances between policies over the states they visit."""

from __future__ import annotations

import torch
from torch import Tensor

from ppo_lab.core.kl import categorical_kl
from ppo_lab.exact.mdp.solve import check_policy, solve
from ppo_lab.exact.mdp.world import MDP


def policy_gradient(mdp: MDP, logits: Tensor) -> Tensor:
    r"""Exact gradient of J with respect to a table of logits, (S, A).

    .. math:: \frac{\partial J}{\partial z_{sa}} = d(s)\, \pi(a|s)\, A(s, a)

    where d counts visits with their discount :math:`\gamma^t`. What is sampled in practice leaves that factor out, so
    for :math:`\gamma < 1` it points elsewhere; at :math:`\gamma = 1` there is no difference.

    Source: Sutton et al. 2000, theorem 1; Nota & Thomas 2020 for the factor left out.

    >>> from ppo_lab.exact.mdp import bandit
    >>> policy_gradient(bandit(torch.tensor([0.0, 1.0])), torch.zeros(1, 2, dtype=torch.float64))
    tensor([[-0.2500,  0.2500]], dtype=torch.float64)
    """
    probs = logits.softmax(-1)
    found = solve(mdp, probs)
    return found.visits[:, None] * probs * found.advantage


def fisher(mdp: MDP, logits: Tensor) -> Tensor:
    r"""Fisher matrix of a table of logits over the states visited, (S·A, S·A), block by block.

    .. math:: F = \sum_s \bar d(s)\, (\mathrm{diag}\, \pi_s - \pi_s \pi_s^T), \qquad
              \bar{KL}(\pi_z \| \pi_{z + v}) = \tfrac12 v^T F v + O(|v|^3)

    with :math:`\bar d` the visits divided by their sum. Singular: adding a number to a row of logits changes nothing.

    Source: Kakade 2002, A natural policy gradient, sec. 2; Schulman et al. 2015, appendix C.
    """
    probs = logits.softmax(-1)
    blocks = torch.diag_embed(probs) - probs[:, :, None] * probs[:, None, :]
    return torch.block_diag(*(_share(mdp, probs)[:, None, None] * blocks))


def mean_kl(mdp: MDP, old_probs: Tensor, new_probs: Tensor) -> Tensor:
    r"""Mean :math:`KL(old\|new)` over the states that old visits (discounted, normalised), nats.

    Source: Schulman et al. 2015, Trust region policy optimization, eq. 12.
    """
    return _share(mdp, old_probs) @ _kl(mdp, old_probs, new_probs)


def max_kl(mdp: MDP, old_probs: Tensor, new_probs: Tensor) -> Tensor:
    r"""Largest :math:`KL(old\|new)` of any state, visited or not, nats. Source: Schulman et al. 2015, sec. 3."""
    return _kl(mdp, old_probs, new_probs).max()


def _kl(mdp: MDP, old_probs: Tensor, new_probs: Tensor) -> Tensor:
    check_policy(mdp, old_probs)
    check_policy(mdp, new_probs)
    return categorical_kl(old_probs.log(), new_probs.log())


def _share(mdp: MDP, probs: Tensor) -> Tensor:
    visits = solve(mdp, probs).visits
    return visits / visits.sum()
