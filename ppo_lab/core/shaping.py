r"""Rewards added to the base reward so that learning is faster: the form that keeps the optimum, and one knob.

A difference of potentials telescopes: over an episode it adds up to :math:`-\Phi(s_0)`, whatever was done, so no policy
gains on another. Anything else that is added is a new task.
"""

from __future__ import annotations

import math

from torch import Tensor

from ppo_lab.core._checks import check_bool, check_range, check_shapes
from ppo_lab.core.masking import last_step, select, upcast
from ppo_lab.core.returns import next_values


def potential_shaping(potential: Tensor, next_potential: Tensor, *, terminated: Tensor, gamma: float) -> Tensor:
    r"""What a step is paid besides, :math:`F = \gamma\,\Phi(s') - \Phi(s)`, with :math:`\Phi = 0` after a termination.

    Adding F to the reward leaves the best policies as they are: Q falls by :math:`\Phi(s)` for all actions alike. A
    time limit is no termination: the potential of the state that it cuts in still counts.

    Args:
        potential, next_potential: Φ of the state and of the one it led to, in units of the reward, any one shape.
        terminated: bool, same shape.
        gamma: discount of the task; another one would not telescope.

    Source: Ng, Harada & Russell 1999, Policy invariance under reward transformations, theorem 1.

    >>> import torch
    >>> phi = torch.tensor([0.0, 1.0, 2.0])
    >>> potential_shaping(phi, torch.tensor([1.0, 2.0, 9.0]), terminated=torch.tensor([False, False, True]), gamma=1.0)
    tensor([ 1.,  1., -2.])
    """
    check_bool(terminated=terminated)
    check_shapes(potential=potential, next_potential=next_potential, terminated=terminated)
    check_range("gamma", gamma, 0, 1, fix="use the discount of the run")
    return gamma * select(upcast(next_potential), ~terminated) - upcast(potential)


def token_shaping(potential: Tensor, mask: Tensor, *, gamma: float = 1.0) -> Tensor:
    r"""The same for tokens: what each is paid for the potential of the answer so far, (B, T).

    The answer's last token terminates it, where :math:`\Phi = 0`; so at γ = 1 an answer's tokens sum to
    :math:`-\Phi(prompt)`, a constant of the prompt, and the best answers stay the best.

    Args:
        potential: (B, T), Φ of prompt and answer *before* each token; the first column is the prompt's.
        mask: (B, T), True on valid response tokens.
        gamma: discount of the run.

    >>> import torch
    >>> token_shaping(torch.tensor([[0.5, 1.0, 3.0, 9.0]]), torch.tensor([[True, True, True, False]]))
    tensor([[ 0.5000,  2.0000, -3.0000,  0.0000]])
    """
    potential = select(upcast(potential), mask)
    paid = potential_shaping(potential, next_values(potential, mask), terminated=last_step(mask), gamma=gamma)
    return select(paid, mask)


def next_shaping_weight(
    weight: float, zero_share: float, *, low: float = 0.1, high: float = 0.2, up: float = 1.1, down: float = 0.9
) -> float:
    r"""The next λ of an added term: ×``up`` while too many episodes earn nothing, ×``down`` when too few do.

    Between ``low`` and ``high`` it stays. The rule has no bound: where the added term itself keeps episodes from
    earning, it raises what does the harm.

    Args:
        weight: λ now; 0.1 is a usual start.
        zero_share: share of episodes (or answers) whose base reward is 0, in [0, 1].
        low, high: the band. Higher: leaves the added term in for longer.
        up, down: factors, down ≤ 1 ≤ up.

    Source: a rule of thumb from write-ups, without a paper.

    >>> round(next_shaping_weight(0.1, 0.5), 4), next_shaping_weight(0.1, 0.15), round(next_shaping_weight(0.1, 0), 4)
    (0.11, 0.1, 0.09)
    """
    check_range("zero_share", zero_share, 0, 1, fix="give a share of episodes")
    check_range("low", low, 0, high, fix="low must not exceed high")
    check_range("up", up, 1, math.inf, fix="1.1 is usual")
    check_range("down", down, 0, 1, fix="0.9 is usual")
    return weight * (up if zero_share > high else down if zero_share < low else 1.0)


def zero_share(base: Tensor) -> float:
    """Share of episodes whose base return is exactly 0, of (E,); NaN of none.

    >>> import torch
    >>> zero_share(torch.tensor([0.0, 0.0, 1.0, -1.0]))
    0.5
    """
    return float((base == 0).double().mean()) if len(base) else math.nan
