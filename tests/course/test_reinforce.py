"""Notebook 01: what its panel draws, and that its experiment can come out either way."""

from __future__ import annotations

import pytest
import torch

from ppo_lab.course.claims import measure
from ppo_lab.course.experiments.reinforce import ascend, doors_run, episode_gradients, sweep
from ppo_lab.course.figures.reinforce import BATCHES, CORNERS, STARTS, facts, field, pays, reinforce_panel, start
from ppo_lab.course.figures.seeds import curves_figure, sweep_figure
from ppo_lab.exact.agent import sample
from ppo_lab.exact.mdp import bandit, corridor, policy_gradient, random_mdp


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


def test_episode_gradients_are_autograds() -> None:
    """Row by row, with the log-probs summed and weighted in a loop over the steps that count."""
    mdp, leaf = corridor(3, step=-0.25, gamma=1.0), torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
    found = episode_gradients(mdp, leaf.detach(), episodes=5, seed=1)
    seen = sample(mdp, leaf.detach().softmax(-1), episodes=5, steps=200, seed=1, after_end="mask")
    for row in range(5):
        length = int(seen.mask[row].sum())
        logp = leaf.log_softmax(-1)[seen.obs[row, :length], seen.action[row, :length]]
        reward = seen.reward[row, :length]
        for name, weight in (("whole", reward.sum()), ("to go", reward.flip(0).cumsum(0).flip(0))):
            (gradient,) = torch.autograd.grad((logp * weight).sum(), leaf, retain_graph=True)
            assert torch.allclose(found[name][row], gradient, atol=1e-12)


def test_both_weights_have_the_exact_mean_and_only_one_the_noise() -> None:
    mdp, logits = corridor(3, step=-0.25, gamma=1.0), torch.zeros(3, 2, dtype=torch.float64)
    found, exact = episode_gradients(mdp, logits, episodes=20000, seed=0), policy_gradient(mdp, logits)
    for g in found.values():
        assert bool(((g.mean(0) - exact).abs() < 4 * g.std(0) / 20000**0.5).all())
    assert found["whole"].var(0).sum() > 2 * found["to go"].var(0).sum()
    with pytest.raises(ValueError, match="must terminate within 200 steps"):
        episode_gradients(random_mdp(0), torch.zeros(5, 3, dtype=torch.float64), episodes=2, seed=0)


def test_a_sweep_is_its_runs_and_is_drawn() -> None:
    options = {"seeds": range(3), "batch": 4, "steps": 5}
    found = sweep(REWARD, (0.1, 1.0), **options)
    assert torch.equal(found[:, 1], ascend(REWARD, rate=1.0, **options)[:, -1])
    (axes,) = sweep_figure({"rates": ((0.1, 1.0), found)}, xlabels=("rate",), best=1.0).axes
    drawn = [line.get_ydata() for line in axes.get_lines()]
    assert len(drawn) == 1 + 3 + 1 and torch.allclose(torch.as_tensor(drawn[-1]), found.mean(0))
    curves = ascend(REWARD, rate=1.0, **options)
    (left, right) = curves_figure({"a": curves, "b": curves[:1]}, best=1.0).axes
    assert torch.allclose(torch.as_tensor(left.get_lines()[-1].get_ydata()), curves.mean(0))
    assert len(left.get_lines()) == 5 and len(right.get_lines()) == 3 and left.get_legend() is not None


def test_doors_are_run_by_the_real_trainer() -> None:
    steps = doors_run(corridor(3, gamma=1.0), seed=0, iterations=3)
    assert [s.update.optimizer_steps for s in steps] == [1, 1, 1] and steps[0].rollout.value.abs().max() == 0
