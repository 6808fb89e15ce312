"""Moments of GAE against every trajectory of a world without loops, each judged by the package's own `gae`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from material import normal, same

from ppo_lab.core.returns import gae
from ppo_lab.exact.advantages import between_actions, gae_moments
from ppo_lab.exact.mdp import MDP, corridor, grid, solve

SLIPPERY = corridor(5, slip=0.2, gamma=0.9)
PROBS = normal(5, 2).softmax(-1)


def layered() -> MDP:
    """Four states; every step leads to a later one or ends."""
    transition = torch.zeros(4, 2, 4, dtype=torch.float64)
    transition[0, :, 1:] = torch.tensor([[0.5, 0.2, 0.1], [0.1, 0.6, 0.3]], dtype=torch.float64)
    transition[1, :, 2:] = torch.tensor([[0.4, 0.4], [0.9, 0.0]], dtype=torch.float64)
    transition[2, :, 3] = torch.tensor([0.7, 0.2], dtype=torch.float64)
    start = torch.tensor([1.0, 0, 0, 0], dtype=torch.float64)
    return MDP(transition=transition, reward=normal(4, 2, seed=3), start=start, gamma=0.9)


def trajectories(mdp: MDP, probs: torch.Tensor, s: int, a: int) -> Iterator[tuple[float, list[tuple[int, int]]]]:
    """(probability, steps) of everything that may follow action ``a`` in state ``s``."""
    ahead = mdp.transition[s, a]
    if (end := 1 - float(ahead.sum())) > 0:
        yield end, [(s, a)]
    for there in ahead.nonzero()[:, 0].tolist():
        for b in range(mdp.actions):
            for chance, rest in trajectories(mdp, probs, there, b):
                yield float(ahead[there] * probs[there, b]) * chance, [(s, a), *rest]


@pytest.mark.parametrize("lam", [0.0, 0.7, 1.0])
def test_moments_are_those_of_all_trajectories(lam: float) -> None:
    mdp, probs, value = layered(), normal(4, 2).softmax(-1), normal(4, seed=5)
    found = gae_moments(mdp, probs, value, lam=lam)
    for s in range(4):
        for a in range(2):
            first = second = total = 0.0
            for chance, steps in trajectories(mdp, probs, s, a):
                states, actions = (torch.tensor(x) for x in zip(*steps, strict=True))
                last = torch.arange(len(steps)) == len(steps) - 1
                v = value[states]
                x = gae(mdp.reward[states, actions], v, torch.cat([v[1:], v[:1]]), terminated=last, ended=last,
                        gamma=0.9, lam=lam)[0].item()  # fmt: skip
                first, second, total = first + chance * x, second + chance * x * x, total + chance
            assert total == pytest.approx(1, abs=1e-12)
            assert found.mean[s, a].item() == pytest.approx(first, abs=1e-9)
            assert found.variance[s, a].item() == pytest.approx(second - first**2, abs=1e-9)


def test_limits_of_lambda() -> None:
    value, q = normal(5, seed=2), solve(SLIPPERY, PROBS).q
    one_step = SLIPPERY.reward + 0.9 * SLIPPERY.transition @ value - value[:, None]
    assert same(gae_moments(SLIPPERY, PROBS, value, lam=0.0).mean, one_step)
    assert same(gae_moments(SLIPPERY, PROBS, value, lam=1.0).mean, q - value[:, None])


def test_a_right_critic_is_never_biased_and_a_wrong_one_not_between_actions_at_one() -> None:
    found = solve(SLIPPERY, PROBS)
    for lam in (0.0, 0.5, 1.0):
        assert same(gae_moments(SLIPPERY, PROBS, found.value, lam=lam).mean, found.advantage)
    wrong = found.value + normal(5, seed=8)
    off = [between_actions(gae_moments(SLIPPERY, PROBS, wrong, lam=lam).mean, PROBS) - found.advantage
           for lam in (0.0, 0.9, 1.0)]  # fmt: skip
    assert off[0].abs().max() > off[1].abs().max() > 1e-3 and same(off[2], torch.zeros(5, 2))


def test_variance_grows_with_lambda_where_the_critic_is_right() -> None:
    value = solve(SLIPPERY, PROBS).value
    spread = [gae_moments(SLIPPERY, PROBS, value, lam=lam).variance.mean() for lam in (0.0, 0.5, 0.9, 1.0)]
    assert spread == sorted(spread) and spread[0] > 0


def test_no_limit_is_said() -> None:
    forever = grid(2, 2, gamma=1.0)
    with pytest.raises(ValueError, match="γλ is 1 in a world that never ends"):
        gae_moments(
            forever, torch.full((4, 4), 0.25, dtype=torch.float64), torch.zeros(4, dtype=torch.float64), lam=1.0
        )
