"""Notebook 01: what its panel draws, and that its experiment can come out either way."""

from __future__ import annotations

import pytest
import torch

from ppo_lab.course.claims import measure
from ppo_lab.course.experiments.reinforce import ascend
from ppo_lab.course.figures.reinforce import BATCHES, CORNERS, STARTS, facts, field, pays, reinforce_panel, start
from ppo_lab.exact.mdp import bandit, policy_gradient


def test_the_panels_gradient_is_the_solved_one() -> None:
    for name in STARTS:
        exact = policy_gradient(bandit(pays()), start(name).log()[None])[0]
        found = facts(0.1, 256, 0.0, name)
        step = (start(name).log() + 0.1 * exact).softmax(-1)
        assert torch.allclose(found["aim"], step, atol=1e-12)
        assert found["size"] == pytest.approx(exact.norm().item(), abs=1e-12)


def test_noise_of_the_cloud_is_the_promised_one() -> None:
    """At a tiny rate the cloud is the estimates themselves: its spread is the exact noise, within 15 % of 400 draws."""
    for batch in BATCHES[::3]:
        found = facts(0.1, batch, 2.0, "undecided")
        moved = found["cloud"].log() - found["here"].log()
        moved = (moved - moved.mean(-1, keepdim=True)) / 0.1
        spread = moved.var(0, correction=0).sum().sqrt().item() / found["size"]
        assert spread == pytest.approx(found["noise"], rel=0.15)


def test_arrows_point_where_the_exact_gradient_goes() -> None:
    points, moves = field()
    assert torch.allclose(moves.sum(-1), torch.zeros(len(moves), dtype=torch.float64), atol=1e-12)
    assert bool((moves @ pays() > 0).all()) and points.min() > 0


def test_the_picture_shows_the_facts() -> None:
    panel = reinforce_panel().set(rate=3.0, batch=4, policy="mostly the best")
    triangle, right = panel.figure.axes
    drawn = {line.get_label(): line for line in triangle.get_lines()}
    cloud = panel.facts["cloud"] @ CORNERS
    assert torch.allclose(torch.as_tensor(drawn["after one estimate"].get_xdata()), cloud[:, 0])
    assert sum(bar.get_height() for bar in right.patches) == pytest.approx(1)
    lower = sum(bar.get_height() for bar in right.patches if bar.get_x() + bar.get_width() < 0)
    assert lower <= panel.facts["worse"]


REWARD = torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64)


def test_same_noise_for_the_same_seed_whatever_the_others() -> None:
    one = ascend(REWARD, seeds=[3], rate=1.0, batch=4, steps=6)
    many = ascend(REWARD, seeds=[1, 3, 5], rate=1.0, batch=4, steps=6)
    assert torch.equal(one[0], many[1]) and not torch.equal(many[0], many[1]) and many.shape == (3, 7)


def test_one_step_by_hand() -> None:
    """All samples fall on arm 2 where its probability is all but 1: the step is α (R + offset) (e - p)."""
    logits = torch.tensor([0.0, 0.0, 40.0], dtype=torch.float64)
    still = ascend(REWARD, seeds=[0], rate=1.0, batch=4, steps=1, logits=logits)
    assert torch.allclose(still, torch.ones(1, 2, dtype=torch.float64), atol=1e-12)
    huge = ascend(REWARD, seeds=range(400), rate=0.01, batch=1, steps=1)
    gain = (huge[:, 1] - huge[:, 0]).mean().item() / 0.01
    p, g = torch.full((3,), 1 / 3, dtype=torch.float64), policy_gradient(bandit(REWARD), torch.zeros(1, 3).double())[0]
    assert gain == pytest.approx(float((p * (g - p @ g)) @ REWARD), rel=0.15)  # E[dJ] to first order, 400 samples


def test_an_offset_hurts_with_small_batches_and_not_with_exact_gradients() -> None:
    """The experiment can come out either way: with 4096 samples a step ten more on every reward cost nothing."""

    def loss(batch: int, rate: float, steps: int) -> list[float]:
        runs = [ascend(REWARD, seeds=range(40), rate=rate, batch=batch, steps=steps, offset=c)[:, -1] for c in (0, 10)]
        return (runs[0] - runs[1]).tolist()

    assert measure(loss(8, 1.0, 100), least=0.1).verdict == "held here"
    assert measure(loss(4096, 0.5, 20), least=0.1).verdict == "did not hold here"
