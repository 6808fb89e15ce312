"""Notebook 03: panel, figures and experiments against closed forms and long sums."""

from __future__ import annotations

import math

import pytest
import torch

from ppo_lab import faults
from ppo_lab.course.experiments import importance as study
from ppo_lab.course.experiments.importance import Moments, Pair, apart, ratio_kl, ratio_std
from ppo_lab.course.figures import ratios
from ppo_lab.course.figures.importance import GRID, above, actions, answer_ratios, facts, importance_panel

# --- panel -----------------------------------------------------------------------------------------------------------


def test_log_ratios_are_those_of_the_normals() -> None:
    """log N(a; m, 1) − log N(a; 0, 1) = a m − m²/2, summed over the steps."""
    x, mean = answer_ratios(4, 0.3, 1, 64)
    a = actions(4, 1)[:64]
    torch.testing.assert_close(x, (a * 0.3 - 0.045).sum(-1), rtol=0, atol=1e-12)
    torch.testing.assert_close(mean, a.mean(-1), rtol=0, atol=0)


def test_facts_are_the_closed_forms() -> None:
    found = facts(0.5, 4, 256, 0)
    assert found["kl"] == pytest.approx(4 * 0.125, abs=1e-12) and found["std"] == pytest.approx(math.sqrt(math.e - 1))
    assert found["left_exact"] == pytest.approx(math.exp(-1), abs=1e-12)
    assert found["tail"] == pytest.approx(0.5 * math.erfc((math.log(3) + 0.5) / math.sqrt(2)), abs=1e-12)
    w = [math.exp(v) for v in found["log_ratio"].tolist()]
    assert found["left"] == pytest.approx(sum(w) ** 2 / sum(v * v for v in w) / 256, abs=1e-12)
    assert found["heaviest"] == pytest.approx(max(w) / sum(w), abs=1e-12)
    still = facts(0.0, 64, 16, 2)
    assert still["left"] == still["left_exact"] == 1 and still["kl"] == still["tail"] == above(3.0, 0.0) == 0


def test_many_samples_meet_the_closed_forms() -> None:
    """Within four standard errors, over all draws: the error bars of the panel are not decoration."""
    errors = []
    for draw in range(5):
        found = facts(0.4, 4, 4096, draw)
        errors.append((found["estimate"] - 0.4) / (found["error"] / 64))
        share = float((found["log_ratio"] > math.log(3)).double().mean())
        assert share == pytest.approx(found["tail"], abs=4 * math.sqrt(found["tail"] / 4096))
    assert max(map(abs, errors)) < 4 and max(map(abs, errors)) > 0.2


def test_the_picture_shows_the_batch() -> None:
    panel = importance_panel().set(moved=0.4, length=4, samples=1024)
    left, right = panel.figure.axes
    heights = [bar.get_height() for bar in left.containers[0]]
    assert sum(heights) == pytest.approx(1, abs=1e-9) and len(heights) == len(GRID) - 1
    logs = (panel.facts["log_ratio"] / math.log(10)).tolist()
    assert heights[40] == pytest.approx(sum(0 <= v < 0.1 for v in logs) / 1024, abs=1e-9)
    drawn = {line.get_label(): line for line in right.get_lines()}
    assert drawn["estimate"].get_ydata()[-1] == panel.facts["estimate"]
    assert [*drawn["exact"].get_ydata()] == [0.4, 0.4] and len(right.collections) == 1


# --- experiments -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wanted", [0.01, 0.3, 2.0])
def test_pairs_are_as_far_apart_as_asked(wanted: float) -> None:
    for seed in range(3):
        assert ratio_kl(apart(seed, ratio_kl, wanted)) == pytest.approx(wanted, abs=1e-9)
        assert ratio_std(apart(seed, ratio_std, wanted)) == pytest.approx(wanted, abs=1e-9)
    with pytest.raises(ValueError, match="distance must be one that this line reaches, got inf"):
        apart(0, ratio_kl, math.inf)


def test_the_tail_can_come_out_either_way() -> None:
    assert study.tail(1, 0.01) == 0 and max(study.tail(s, 1.0) for s in range(4)) > 0.05
    pair = Pair(torch.tensor([0.5, 0.5]).double().log(), torch.tensor([0.01, 0.99]).double().log())
    assert pair.under_old((pair.ratio > 1.9).double()) == 0.5


def test_variance_factor_is_a_long_sum_and_one_for_equal_policies() -> None:
    seed, pair = 4, apart(4, ratio_std, 1.0)
    from ppo_lab import seeding

    reward = torch.randn(study.VOCABULARY, generator=seeding.generator(seed, "reward"), dtype=torch.float64).tolist()
    old, new = pair.old.exp().tolist(), pair.new.exp().tolist()
    base = sum(p * r for p, r in zip(new, reward, strict=True))

    def variance(sampler: list[float]) -> float:
        total = 0.0
        for i in range(study.VOCABULARY):
            terms = [(new[a] / sampler[a]) * (reward[a] - base) * ((a == i) - new[i]) for a in range(study.VOCABULARY)]
            mean = sum(q * t for q, t in zip(sampler, terms, strict=True))
            total += sum(q * (t - mean) ** 2 for q, t in zip(sampler, terms, strict=True))
        return total

    assert study.variance_factor(seed, 1.0) == pytest.approx(variance(old) / variance(new), rel=1e-6)
    assert study.variance_factor(seed, 1e-6) == pytest.approx(1, abs=1e-4)


def test_k1_and_k3_are_unbiased_and_k2_is_not() -> None:
    near, far = (study.estimator_moments(1, kl) for kl in (0.01, 1.0))
    for found in (near, far):
        assert abs(found["k1"].bias) < 1e-6 and abs(found["k3"].bias) < 1e-6
    assert 0 < near["k2"].bias < 0.1 < far["k2"].bias
    assert near["k3"].std < near["k1"].std / 3


def test_samples_meet_the_exact_moments() -> None:
    for seed in range(3):
        exact, seen = study.estimator_moments(seed, 0.1), study.sampled_kl(seed, 0.1, samples=4000)
        for name, moments in exact.items():
            assert seen[name] == pytest.approx(1 + moments.bias, abs=4 * moments.std / math.sqrt(4000)), name


def test_a_quotient_of_probabilities_fails_for_long_answers_only() -> None:
    healthy, _ = study.answers_update(4)
    with faults.planted("ratio_from_probabilities"):
        short, ok = study.answers_update(4)
        long, learner = study.answers_update(400)
    assert short.policy_loss == pytest.approx(healthy.policy_loss, abs=1e-9) and ok.skipped_steps == 0
    assert math.isnan(long.policy_loss) and learner.skipped_steps == 2
    right, _ = study.answers_update(400)
    assert math.isfinite(right.policy_loss) and right.first_ratio_error == 0


# --- figures ---------------------------------------------------------------------------------------------------------


def test_tails_and_factors_are_drawn_with_their_claims() -> None:
    left, right = ratios.tail_figure({0.1: [0.0, 0.02], 1.0: [0.04, 0.08]}, {0.5: [1.0, 2.0], 1.0: [3.0, 5.0]}).axes
    drawn = [{line.get_label(): [*line.get_ydata()] for line in ax.get_lines()} for ax in (left, right)]
    assert drawn[0]["exact, mean"] == pytest.approx([0.01, 0.06]) and drawn[0]["claimed beyond KL 0.1"] == [0.05, 0.05]
    assert drawn[1]["exact, mean"] == pytest.approx([1.5, 4.0])


def test_estimators_are_drawn_against_the_exact_kl() -> None:
    moments = {kl: [{k: Moments(0.1 * i, 1.0 + i) for i, k in enumerate(("k1", "k2", "k3"))}] for kl in (0.1, 1.0)}
    sampled = {kl: [{"k1": 0.9, "k2": 1.2, "k3": 1.0}] for kl in (0.1, 1.0)}
    left, right = ratios.estimator_figure(moments, sampled).axes
    drawn = {line.get_label(): [*line.get_ydata()] for line in left.get_lines()}
    assert drawn["exact KL"] == [1, 1] and drawn["k2"] == pytest.approx([1.1, 1.1])
    assert [line.get_ydata()[0] for line in right.get_lines()] == [1.0, 2.0, 3.0]
    assert sorted(line.get_ydata()[0] for line in left.get_lines() if line.get_marker() == ".") == [
        0.9, 0.9, 1.0, 1.0, 1.2, 1.2]  # fmt: skip
