"""Notebook 02: what its panel draws, expectations by enumeration, and that its experiment can come out either way."""

from __future__ import annotations

import pytest
import torch

from ppo_lab import faults
from ppo_lab.course.claims import measure
from ppo_lab.course.experiments.baselines import (
    critic_run,
    expected_gradient,
    study_world,
    value_gaps,
    variance_cut,
)
from ppo_lab.course.experiments.reinforce import ascend, episode_gradients
from ppo_lab.course.figures.baselines import (
    BATCHES,
    KINDS,
    STARTS,
    baselines_panel,
    counts,
    estimates,
    facts,
    pays,
    start,
)
from ppo_lab.course.figures.seeds import cut_figure
from ppo_lab.exact.mdp import gradient_moments, policy_gradient, solve


def table(rows: list) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64)


P, REWARD = table([0.5, 0.3, 0.2]), table([1.0, 3.0, 2.0])


# --- the panel -------------------------------------------------------------------------------------------------------


def test_estimates_from_counts_are_those_of_the_samples() -> None:
    """A batch of 1, 1, 4 by hand, for each kind."""
    p, reward = start("half decided"), pays(1.0)
    seen = torch.zeros(1, 5, dtype=torch.float64)
    seen[0, 1], seen[0, 4] = 2, 1
    arms = [1, 1, 4]
    moments = gradient_moments(p, reward, baseline=0.0)
    means = {i: sum(reward[a] for j, a in enumerate(arms) if j != i) / 2 for i in range(3)}
    for kind in KINDS:
        total = torch.zeros(5, dtype=torch.float64)
        for i, a in enumerate(arms):
            b = {"none": 0.0, "expected reward": moments.value_baseline, "batch mean": reward[arms].mean(),
                 "leave-one-out": means[i], "optimal constant": moments.optimal_baseline}[kind]  # fmt: skip
            total += (reward[a] - b) * (torch.eye(5, dtype=torch.float64)[a] - p) / 3
        assert torch.allclose(estimates(kind, p, reward, seen)[0], total, atol=1e-12)


def test_counts_are_the_policys() -> None:
    for name in STARTS:
        share = counts(name, 64).mean(0) / 64
        assert torch.allclose(share, start(name), atol=4 * 0.5 / (64 * 1000) ** 0.5)
        assert bool((counts(name, 64).sum(-1) == 64).all())


def test_noise_of_constants_is_the_exact_one() -> None:
    for name in STARTS:
        p, reward = start(name), pays(0.5)
        found = facts("none", 8, 0.5, name)
        bare = gradient_moments(p, reward, baseline=0.0)
        size = bare.mean.square().sum()
        for kind, b in (("none", 0.0), ("optimal constant", bare.optimal_baseline)):
            exact = gradient_moments(p, reward, baseline=b).trace_variance / 8 / size
            assert found["noise"][kind] == pytest.approx(float(exact), rel=0.2)  # 1000 draws


def test_the_picture_shows_the_facts() -> None:
    panel = baselines_panel().set(baseline="batch mean", batch=2, policy="undecided")
    left, right = panel.figure.axes
    assert panel.facts["mean"] == 0.5
    (marker,) = [line for line in left.get_lines() if line.get_marker() == "v"]
    assert marker.get_xdata()[0] == 0.5
    heights = [bar.get_height() for bar in left.patches]
    assert sum(heights[:60]) == pytest.approx(1) and sum(heights[60:]) == pytest.approx(1)
    assert [bar.get_width() for bar in right.patches] == pytest.approx([panel.facts["noise"][kind] for kind in KINDS])
    assert len(BATCHES) == 9


# --- by enumeration --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [2, 3, 5])
def test_the_batch_mean_shrinks_the_gradient_by_one_over_n_and_leave_one_out_does_not(batch: int) -> None:
    exact = gradient_moments(P, REWARD, baseline=0.0).mean
    found = {k: expected_gradient(P, REWARD, batch=batch, baseline=k) for k in ("none", "batch mean", "leave-one-out")}
    assert torch.allclose(found["none"], exact, atol=1e-12)
    assert torch.allclose(found["batch mean"], (1 - 1 / batch) * exact, atol=1e-12)
    assert torch.allclose(found["leave-one-out"], exact, atol=1e-12)


def test_with_a_baseline_from_the_batch_an_offset_changes_nothing() -> None:
    options = {"seeds": range(3), "rate": 1.0, "batch": 4, "steps": 20}
    for kind in ("batch mean", "leave-one-out"):
        plain, moved = (ascend(REWARD, offset=c, baseline=kind, **options) for c in (0.0, 10.0))
        assert torch.allclose(plain, moved, atol=1e-9)
    bare, moved = (ascend(REWARD, offset=c, **options) for c in (0.0, 10.0))
    assert (bare - moved).abs().max() > 0.1


# --- several steps ---------------------------------------------------------------------------------------------------


def test_a_baseline_of_the_state_leaves_the_mean_exact() -> None:
    mdp, logits = study_world(3)
    value = solve(mdp, logits.softmax(-1)).value
    tables = {"V": value, "anything": torch.arange(5, dtype=torch.float64)}
    exact = policy_gradient(mdp, logits)
    found = episode_gradients(mdp, logits, episodes=20000, seed=1, baselines=tables)
    for g in found.values():
        assert bool(((g.mean(0) - exact).abs() < 4.5 * g.std(0) / 20000**0.5 + 1e-12).all())


def test_the_experiment_can_come_out_either_way() -> None:
    """With the rewards far from 0 the cut nears the claim's band; as they are it lies far below, and far above 0."""
    as_they_are = variance_cut(range(12), episodes=400)
    assert measure(as_they_are.tolist(), least=0.6, most=0.7).verdict == "did not hold here"
    assert measure(as_they_are.tolist(), least=0.0, most=0.5).verdict == "held here"
    moved = variance_cut(range(12), offset=1.0, episodes=400)
    assert measure(moved.tolist(), least=0.3, most=0.7).verdict == "held here"


def test_the_bugs_picture_is_the_critics_error() -> None:
    steps = critic_run(0.5, iterations=3)
    gaps = value_gaps(steps)
    first = steps[0].rollout
    assert gaps.shape == (3,) and first.value.abs().max() == 0 and gaps[0] < 0
    with faults.planted("baseline_attached"):
        assert value_gaps(critic_run(0.5, iterations=25))[-1] < -1.5


def test_shares_are_drawn() -> None:
    worlds = table([[0.1, 0.2], [0.3, 0.4]])
    (axes,) = cut_figure((0, 1), worlds, table([0.5, 0.6]), claimed=(0.6, 0.7)).axes
    drawn = [torch.as_tensor(line.get_ydata()) for line in axes.get_lines()]
    assert torch.allclose(drawn[-2], worlds.mean(0)) and drawn[-1].tolist() == [0.5, 0.6] and len(drawn) == 4
