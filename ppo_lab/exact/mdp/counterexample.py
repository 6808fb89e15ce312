"""A step that maximises PPO's clipped surrogate and lowers J, small enough to check with a pencil.

Two doors, one parameter. Behind the first door (go, probability p) stands the second, where going again is the mistake
and staying (1 - p) pays 1; to stay at the first door ends the episode with nothing. Both doors look alike, so p is the
same at both, and J = p (1 - p) is highest at one half. An old policy just below that sees that going is better at the
first door than it is worse at the second, by its own visits. But going more also brings one to the second door more
often, which the surrogate, true to the old visits, does not count.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ppo_lab.exact.mdp.improvement import clipped_surrogate_value
from ppo_lab.exact.mdp.solve import solve
from ppo_lab.exact.mdp.world import MDP

OLD, CLIP = 0.48, 0.2
GO, STAY = 0, 1


class Counterexample(NamedTuple):
    """The step, and what the surrogate and J say of it."""

    mdp: MDP
    old: Tensor  # (2, 2) go 0.48, stay 0.52, at both doors
    new: Tensor  # (2, 2) go 0.576 = 1.2 · 0.48: where the clipped surrogate is highest
    clip: float
    surrogate_gain: float  # L^CLIP(new) - L^CLIP(old): 12/3125
    J_gain: float  # J(new) - J(old): -84/15625


def two_doors() -> MDP:
    """State 0: go leads to state 1, stay ends with 0. State 1: go ends with 0, stay ends with 1. γ = 1."""
    transition = torch.zeros(2, 2, 2, dtype=torch.float64)
    transition[0, GO, 1] = 1.0
    reward = torch.tensor([[0.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    return MDP(transition=transition, reward=reward, start=torch.tensor([1.0, 0.0], dtype=torch.float64), gamma=1.0)


def alike(go: float | Tensor) -> Tensor:
    """The policy that goes with this probability at either door, (2, 2)."""
    go = torch.as_tensor(go, dtype=torch.float64)
    return torch.stack([go, 1 - go]).expand(2, 2)


def clip_counterexample() -> Counterexample:
    """PPO's best step at ε = 0.2, which loses: every ratio is inside the band, so clipping has nothing to say.

    By hand: J(p) = p (1 - p). Old p = 12/25, new p' = 72/125, ratios 6/5 and 53/65. The surrogate gains
    (p' - p)(1 - 2p) = 12/3125 > 0, and J changes by p' (1 - p') - p (1 - p) = -84/15625 < 0.

    Source: the argument is Kakade & Langford 2002's: old visits are not new visits.

    >>> found = clip_counterexample()
    >>> found.surrogate_gain > 0 > found.J_gain
    True
    """
    mdp, old, new = two_doors(), alike(OLD), alike(OLD * (1 + CLIP))
    before, after = (clipped_surrogate_value(mdp, old, probs, clip=CLIP) for probs in (old, new))
    gain = solve(mdp, new).J - solve(mdp, old).J
    return Counterexample(mdp, old, new, CLIP, (after - before).item(), gain.item())
