"""Shaping by potentials telescopes; the adaptive weight follows its rule."""

from __future__ import annotations

import math

import pytest
import torch

from ppo_lab.core.masking import length_mask
from ppo_lab.core.returns import discounted_returns
from ppo_lab.core.shaping import next_shaping_weight, potential_shaping, token_shaping, zero_share

F64 = torch.float64


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=F64, generator=torch.Generator().manual_seed(seed))


def test_the_discounted_sum_of_an_episode_is_minus_its_first_potential():
    phi, gamma, steps = draw(3, 7), 0.9, 6
    terminated = torch.zeros(3, steps, dtype=torch.bool)
    terminated[:2, -1] = True  # the third row is cut by a limit, and its last state's potential counts
    ended = terminated.clone()
    ended[:, -1] = True
    paid = potential_shaping(phi[:, :-1], phi[:, 1:], terminated=terminated, gamma=gamma)
    total = discounted_returns(paid, torch.zeros_like(paid), terminated=terminated, ended=ended, gamma=gamma)[:, 0]
    expected = -phi[:, 0] + torch.tensor([0.0, 0.0, 1.0]).double() * gamma**steps * phi[:, -1]
    torch.testing.assert_close(total, expected, rtol=0, atol=1e-12)


def test_the_potential_of_what_follows_a_termination_is_not_read():
    nan = torch.tensor([math.nan], dtype=F64)
    paid = potential_shaping(draw(1), nan, terminated=torch.tensor([True]), gamma=1.0)
    assert paid.isfinite().all()


def test_an_answers_tokens_sum_to_minus_the_potential_of_its_prompt():
    phi, mask = draw(4, 6), length_mask(torch.tensor([6, 3, 1, 0]), steps=6)
    phi = torch.where(mask, phi, torch.nan)  # padding has no potential
    paid = token_shaping(phi, mask)
    expected = torch.where(mask[:, 0], -phi[:, 0], 0.0)
    torch.testing.assert_close(paid.sum(-1), expected, rtol=0, atol=1e-12)
    assert not paid[~mask].any()
    torch.testing.assert_close(paid[0, :-1], phi[0, 1:] - phi[0, :-1], rtol=0, atol=1e-12)


def test_a_discount_reaches_the_tokens():
    phi = draw(1, 3)
    paid = token_shaping(phi, torch.ones(1, 3, dtype=torch.bool), gamma=0.5)
    torch.testing.assert_close(paid[0, 0], 0.5 * phi[0, 1] - phi[0, 0], rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("share", "factor"), [(0.0, 0.9), (0.0999, 0.9), (0.1, 1.0), (0.2, 1.0), (0.2001, 1.1), (1.0, 1.1)]
)
def test_the_weight_moves_outside_of_the_band_only(share, factor):
    assert next_shaping_weight(0.1, share) == pytest.approx(0.1 * factor, abs=1e-15)


def test_zero_share_counts_exact_zeros():
    assert zero_share(torch.tensor([0.0, 1e-30, 0.0, -2.0], dtype=F64)) == 0.5
    assert math.isnan(zero_share(torch.zeros(0)))


def test_what_is_refused():
    x, flags = torch.zeros(2), torch.zeros(2, dtype=torch.bool)
    with pytest.raises(ValueError, match="terminated must be bool"):
        potential_shaping(x, x, terminated=flags.long(), gamma=1.0)
    with pytest.raises(ValueError, match=r"gamma must be in \[0, 1\]"):
        potential_shaping(x, x, terminated=flags, gamma=1.5)
    with pytest.raises(ValueError, match="next_potential must have the shape"):
        potential_shaping(x, x[:1], terminated=flags, gamma=1.0)
    for wrong in ({"low": 0.3}, {"up": 0.9}, {"down": 1.1}):
        with pytest.raises(ValueError, match="must be in"):
            next_shaping_weight(0.1, 0.5, **wrong)
    with pytest.raises(ValueError, match="zero_share"):
        next_shaping_weight(0.1, math.nan)
