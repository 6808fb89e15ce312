"""What GAE gives on average, and how far it scatters, on a tabular world: solved, not sampled.

Shapes: S states, A actions. The estimate is the one of `ppo_lab.core.returns.gae` from an episode that is followed to
its end; a critic of any quality may stand in for V.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from ppo_lab.core._checks import check_range, check_shapes

if TYPE_CHECKING:
    from ppo_lab.exact.mdp import MDP


class AdvantageMoments(NamedTuple):
    """Of the estimate Â after action a in state s, both (S, A)."""

    mean: Tensor
    variance: Tensor


def gae_moments(mdp: MDP, probs: Tensor, value: Tensor, *, lam: float) -> AdvantageMoments:
    r"""Exact mean and variance of :math:`\hat A = \delta_t + \gamma\lambda \hat A_{t+1}`, given state and action.

    Taking expectations on both sides gives one linear system a moment:
    :math:`m(s,a) = E[\delta] + \gamma\lambda \sum_{s'} P(s'|s,a) \sum_{a'} \pi(a'|s') m(s',a')`, and for the second
    moment the square of the same sum. With λ = 0 the mean is biased by the critic; with λ = 1 it is
    :math:`Q^\pi(s,a) - V(s)`, whatever the critic: off by a number a state, and so right between actions.

    Args:
        mdp: the world, with its discount γ.
        probs: π(a|s), (S, A).
        value: the critic V, (S,); need not be the policy's.
        lam: λ in [0, 1]. Higher: less bias from the critic, more variance from the episode.

    Raises:
        ValueError: γλ = 1 in a world that never ends, where the sum has no limit.

    Source: Schulman et al. 2016, High-dimensional continuous control using GAE, eq. 16; Sobel 1982 for the second
    moment of a return.
    """
    check_range("lam", lam, 0, 1, fix="0 is the TD error, 1 is return minus value")
    p, reward = mdp.transition.double(), mdp.reward.double()
    check_shapes(probs=probs, reward=reward)
    check_shapes(value=value, start=mdp.start)
    probs, value = probs.double(), value.double()
    decay = mdp.gamma * lam
    now = reward - value[:, None]  # δ of a step that terminates, (S, A)
    delta = now[:, :, None] + mdp.gamma * value  # δ of a step to s', (S, A, S)
    end = (1 - p.sum(-1)).clamp(min=0)
    step = torch.einsum("sa,sap->sp", probs, p)  # P_π

    first = end * now + (p * delta).sum(-1)
    mean = first + decay * p @ _solve(step, (probs * first).sum(-1), decay)
    ahead = (probs * mean).sum(-1)
    second = end * now.square() + (p * (delta.square() + 2 * decay * delta * ahead)).sum(-1)
    square = second + decay**2 * p @ _solve(step, (probs * second).sum(-1), decay**2)
    return AdvantageMoments(mean, (square - mean.square()).clamp(min=0))


def between_actions(estimate: Tensor, probs: Tensor) -> Tensor:
    r"""What is left when the policy's mean in each state is taken off, :math:`x(s,a) - \sum_b \pi(b|s) x(s,b)`.

    Only this part moves a policy gradient: a number a state is a baseline. Shapes (S, A).

    >>> between_actions(torch.tensor([[1.0, 3.0]]), torch.tensor([[0.5, 0.5]]))
    tensor([[-1.,  1.]])
    """
    check_shapes(estimate=estimate, probs=probs)
    return estimate - (probs * estimate).sum(-1, keepdim=True)


def _solve(step: Tensor, x: Tensor, decay: float) -> Tensor:
    """``y = x + decay * step @ y``."""
    system = torch.eye(len(step), dtype=step.dtype) - decay * step
    if torch.linalg.cond(system) > 1e12:
        raise ValueError(f"γλ is {decay:g} in a world that never ends: no limit; take γ or λ below 1")
    found: Tensor = torch.linalg.solve(system, x)
    return found
