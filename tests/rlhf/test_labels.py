"""Labels: how often raters err and agree, what is lopsided, relabelling; accuracy at equal gaps."""

from __future__ import annotations

import math

import pytest
import torch
from tiny_reward import learnable

from ppo_lab import seeding
from ppo_lab.rlhf.reward_model import (
    Pair,
    check_labels,
    cohens_kappa,
    compared,
    expected_kappa,
    in_random_order,
    matched,
    relabelled,
)
from ppo_lab.rlhf.reward_model.labels import chance_right, turned
from ppo_lab.rlhf.reward_model.pairs import prefers_first


def pairs(n: int) -> list[Pair]:
    gaps = (0.05 + seeding.uniforms(1, "gaps", range(n), 1)[:, 0]).tolist()
    return [Pair(prompt="p", chosen=f"good {'very ' * (i % 3)}", rejected="bad", gap=g, group=i // 4)
            for i, g in enumerate(gaps)]  # fmt: skip


@pytest.mark.parametrize("seed", range(5))
def test_kappa_is_the_textbooks(seed):
    a, b = (seeding.uniforms(seed, name, range(60), 1)[:, 0] < p for name, p in (("a", 0.7), ("b", 0.6)))
    b = torch.where(seeding.uniforms(seed, "same", range(60), 1)[:, 0] < 0.5, a, b)
    table = [[int((a.eq(x) & b.eq(y)).sum()) for y in (True, False)] for x in (True, False)]
    (yes, yes_no), (no_yes, no) = table
    chance = ((yes + yes_no) * (yes + no_yes) + (no + no_yes) * (no + yes_no)) / 60**2
    assert cohens_kappa(a, b) == pytest.approx(((yes + no) / 60 - chance) / (1 - chance), abs=1e-12)


def test_kappa_at_its_ends_and_what_it_refuses():
    a = torch.tensor([True, False, True, False])
    assert cohens_kappa(a, a) == 1 and cohens_kappa(a, ~a) == -1
    assert math.isnan(cohens_kappa(torch.ones(3).bool(), torch.ones(3).bool()))
    for bad in (a.double(), a[:2], torch.zeros(0).bool()):
        with pytest.raises(ValueError, match="kappa needs two bool labels a pair"):
            cohens_kappa(a if len(bad) else bad, bad)


@pytest.mark.parametrize("noise", [0.0, 0.1, 0.5, 2.0])
def test_expected_kappa_is_what_two_such_raters_reach(noise):
    made = pairs(20_000)
    gap = torch.tensor([pair.gap for pair in made], dtype=torch.float64)
    a, b = (torch.tensor([pair.gap > 0 for pair in relabelled(made, noise=noise, seed=s)]) for s in (0, 1))
    coin = seeding.uniforms(9, "side", range(len(made)), 1)[:, 0] < 0.5  # which answer both were shown first
    four_errors = 4 * 2 * 0.5 / math.sqrt(len(made))
    assert cohens_kappa(a ^ coin, b ^ coin) == pytest.approx(expected_kappa(gap, noise=noise), abs=four_errors)
    assert expected_kappa(gap, noise=0) == 1


def test_a_rater_is_wrong_as_often_as_the_noise_says():
    made = pairs(20_000)
    wrong = torch.tensor([pair.gap < 0 for pair in relabelled(made, noise=0.4, seed=3)]).double()
    p = 1 - chance_right(torch.tensor([pair.gap for pair in made], dtype=torch.float64), noise=0.4)
    error = float(wrong.sum() - p.sum()) / math.sqrt(float((p * (1 - p)).sum()))
    assert abs(error) < 4
    gap, half = torch.tensor([0.2, -0.2]), torch.tensor([0.5, 0.5])
    assert prefers_first(gap, noise=0.0, uniform=half).tolist() == [True, False]
    assert prefers_first(gap, noise=1.0, uniform=half).tolist() == [True, False]


def test_relabelling_is_nested_keyed_and_turns_whole_pairs():
    made = pairs(400)
    little, much = (relabelled(made, noise=noise, seed=5) for noise in (0.1, 0.8))
    assert relabelled(made[:50], noise=0.1, seed=5) == little[:50] and relabelled(made, noise=0.1, seed=6) != little
    assert all(m.gap < 0 for m, few in zip(much, little, strict=True) if few.gap < 0)
    assert 0 < sum(p.gap < 0 for p in little) < sum(p.gap < 0 for p in much)
    assert relabelled(much, noise=0.0, seed=1) == made, "without noise the better answer is chosen, whatever it was"
    assert turned(turned(made[0])) == made[0] and turned(made[0]).chosen == made[0].rejected


def test_the_order_is_a_coin_and_label_and_gap_belong_together():
    made = relabelled(pairs(2000), noise=0.3, seed=0)
    gap, label, lengths = in_random_order(made, seed=1)
    assert 0.45 < float(label.double().mean()) < 0.55
    for i in (0, 7, 99):
        pair = made[i]
        assert float(gap[i]) == (pair.gap if label[i] else -pair.gap)
        words = [len(text.split()) for text in pair.texts]
        assert lengths[i].tolist() == (words if label[i] else words[::-1])


def test_a_check_finds_what_is_planted():
    gap = torch.linspace(-1.2, 1.2, 400).double()
    truth = gap > 0
    even = torch.stack([torch.arange(400) % 7, torch.arange(400) % 5], -1)
    fine = check_labels(gap, truth, truth, even)
    assert fine.faults() == [] and fine.kappa == 1 and fine.first == 0.5
    assert fine.hard + fine.middling + fine.easy == pytest.approx(1, abs=1e-12)
    flips = torch.arange(400) % 4 == 0
    assert check_labels(gap, truth, truth ^ flips, even).faults() == ["raters agree too little: κ 0.50, not above 0.7"]
    always = check_labels(gap.abs() + 0.01, torch.ones(400).bool(), torch.arange(400) > 0, even).faults()
    assert any("the first answer wins 100% of the pairs" in fault for fault in always)
    long = torch.stack([truth.long(), (~truth).long()], -1)
    assert check_labels(gap, truth, truth, long).faults() == [
        "the longer answer wins 100% of the pairs, not about half"
    ]
    easy = check_labels(torch.where(truth, 1.0, -1.0).double(), truth, truth, even).faults()
    assert easy == ["only 0% of the pairs are hard", "only 0% of the pairs are middling"]


# --- at equal gaps ---------------------------------------------------------------------------------------------------


def test_every_pair_of_a_prompt_is_compared():
    score, gold = torch.tensor([[3.0, 1.0, 2.0], [0.0, 1.0, 5.0]]), torch.tensor([[0.9, 0.1, 0.1], [0.2, 0.1, 0.6]])
    gap, right = compared(score, gold)
    assert torch.allclose(gap, torch.tensor([0.8, 0.8, 0.1, 0.4, 0.5]), atol=1e-6)
    assert right.tolist() == [True, True, False, True, True]
    with pytest.raises(ValueError, match="must be \\(prompts, answers\\) alike"):
        compared(score, gold[:1])


def test_closer_pairs_alone_cost_accuracy_and_matching_takes_that_away():
    """Planted: the same judge, right with probability σ(gap / 0.3), on wide and on close pairs."""
    u = seeding.uniforms(0, "shift", range(40_000), 2)
    wide, close = 2 * u[:20_000, 0], 2 * u[20_000:, 0] ** 3
    right = [u[:20_000, 1] < torch.sigmoid(wide / 0.3), u[20_000:, 1] < torch.sigmoid(close / 0.3)]
    found = matched(wide, right[0], close, right[1])
    assert found.loss > 0.1 and abs(found.matched_loss) < 0.02
    worse = matched(wide, right[0], close, right[1] & (u[20_000:, 0] * 7 % 1 < 0.6))
    assert worse.matched_loss > 0.35, "a judge that is worse at every gap shows at equal gaps too"


def test_matching_weighs_by_the_smaller_side_and_needs_common_gaps():
    gap, right = torch.tensor([0.01, 0.02, 0.5]), torch.tensor([True, False, True])
    found = matched(gap, right, torch.tensor([0.01, 1.5]), torch.tensor([True, True]), bins=4)
    assert (found.pairs, found.matched_before, found.matched_after) == (1, 0.5, 1.0)
    assert found.before == pytest.approx(2 / 3) and found.after == 1 and found.matched_loss == -1
    same = matched(gap, right, gap, right)
    assert same.before == same.matched_before == same.matched_after and same.loss == same.matched_loss == 0
    with pytest.raises(ValueError, match="no gap occurs on both sides"):
        matched(gap[:2], right[:2], gap[2:], right[2:])


def test_learnable_pairs_are_lopsided():
    gap, label, lengths = in_random_order(learnable(400, 0), seed=0)
    check = check_labels(gap, label, label, lengths)
    assert any("longer" in fault for fault in check.faults())
