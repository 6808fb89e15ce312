"""What notebook 09 draws, measures and breaks, as data."""

from __future__ import annotations

import math

import pytest
import torch
from tiny_reward import TEXTS, judge

from ppo_lab import faults, seeding
from ppo_lab.core.schedules import periodic_restart, warmup_cosine
from ppo_lab.course.claims import measure
from ppo_lab.course.experiments.policy_shift import by_gap, valence
from ppo_lab.course.experiments.preferences import NOISES, PAIRS, config, kappa, labelled, packed, pool, unpacked
from ppo_lab.course.experiments.sft_rates import SCHEDULES, find_rate, trained
from ppo_lab.course.figures.reward_models import DRAWS, cells, facts, reward_models_panel
from ppo_lab.course.figures.reward_study import by_gap as read_gaps
from ppo_lab.course.figures.reward_study import (
    people_figure,
    pooled,
    quality_figure,
    range_figure,
    schedule_figure,
    shift_figure,
    thirds,
)
from ppo_lab.course.recordings import load
from ppo_lab.rlhf.reward_model import matched, score_texts
from ppo_lab.rlhf.reward_model import measure as fit_of
from ppo_lab.scale.range_test import RangeTest

# --- the panel -------------------------------------------------------------------------------------------------------


def test_every_cell_has_its_draws_in_order() -> None:
    assert {*cells()} == {(n, noise) for n in PAIRS for noise in NOISES}
    assert all([row["draw"] for row in cell] == [*range(DRAWS)] for cell in cells().values())
    assert all(row["kappa"] == 1 for (_, noise), cell in cells().items() for row in cell if noise == 0)


def test_the_panel_draws_what_was_recorded() -> None:
    panel = reward_models_panel().set(pairs=2000, noise=0.3, draw=2, threshold=0.65)
    accuracies = [row["accuracy"] for n in PAIRS for row in cells()[n, 0.3]]
    assert [*panel._artists["dots"].get_ydata()] == accuracies
    one = cells()[2000, 0.3][1]
    assert [*panel._artists["mark"].get_ydata()] == [one["accuracy"]] == [panel.facts["accuracy"]]
    assert panel._artists["bins"].get_offsets().tolist() == [[sure, right] for sure, right, _ in unpacked(one["bins"])]
    assert [*panel._artists["threshold"].get_ydata()] == [0.65, 0.65]
    assert panel.facts["passed"] == sum(row["accuracy"] >= 0.65 for row in cells()[2000, 0.3])


def test_a_draw_passes_at_its_own_accuracy() -> None:
    best = max(cells()[1000, 0.15], key=lambda row: row["accuracy"])
    at = facts(pairs=1000, noise=0.15, draw=best["draw"] + 1, threshold=best["accuracy"])
    assert at["passes"] and at["passed"] == 1 and at["words"] == "passes"
    above = facts(pairs=1000, noise=0.15, draw=1, threshold=0.95)
    assert not above["passes"] and above["passed"] == 0 and above["words"] == "is refused"


def test_bins_survive_packing() -> None:
    fit = fit_of(torch.tensor([2.0, 2.0, -0.1, 0.4]))
    assert [count for *_, count in unpacked(packed(fit))] == [b.count for b in fit.bins]
    assert unpacked(packed(fit))[0][0] == pytest.approx(fit.bins[0].confidence, abs=5e-4)  # three decimals are kept


# --- pairs and labels of the recording -------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", [0.15, 0.6])
def test_the_recorded_kappa_is_that_of_the_pairs(noise: float) -> None:
    assert kappa(0, noise) == pytest.approx(cells()[500, noise][0]["kappa"], abs=5e-5)  # four decimals are kept


def test_fewer_pairs_are_the_first_of_more_and_noise_is_nested() -> None:
    clean = pool(0)
    few, many = (labelled(clean, n, 0.3, 0) for n in (100, 300))
    assert few.train == many.train[:100] and few.held_out == many.held_out and len(clean.train) == PAIRS[-1]
    assert all(pair.gap > 0 for pair in clean.train + clean.held_out)
    louder = labelled(clean, 300, 0.6, 0)
    assert all(b.gap < 0 for a, b in zip(many.train, louder.train, strict=True) if a.gap < 0)
    assert config(100).reward_model.answers == 8


# --- the range test and schedules ------------------------------------------------------------------------------------


def test_a_range_test_starts_at_the_loss_of_a_beginner_and_rises_in_rate() -> None:
    found = find_rate(0, steps=12)
    assert found.losses[0] == pytest.approx(math.log(101), abs=0.2) and found.rates == tuple(sorted(found.rates))
    assert (found.rates[0], found.suggested) == (1e-7, 0.1 * found.best)


def test_training_at_a_rate_of_nothing_learns_nothing() -> None:
    still, losses = trained(0, 0.0, "constant", steps=4)
    moved, _ = trained(0, 5e-3, "warm-up, cosine", steps=30)
    assert still == pytest.approx(math.log(101), abs=0.2) and len(losses) == 4 and moved < still - 0.5


def test_schedules_are_those_of_the_core() -> None:
    assert [SCHEDULES["restarts"](i, 8) for i in (0, 2, 4)] == [periodic_restart(i, period=2) for i in (0, 2, 4)]
    assert SCHEDULES["warm-up, cosine"](0, 100) == 0.01
    assert SCHEDULES["warm-up, cosine"](50, 100) == warmup_cosine(50, total=100, warmup=10, start=0.01, floor=0.01)


def test_range_and_schedule_figures_draw_the_numbers() -> None:
    found = RangeTest((1e-5, 1e-3, 1e-1), (4.0, 2.0, 3.0), (4.0, 3.0, 3.1), 1e-3, 1e-4, None)
    lines = range_figure(found).axes[0].get_lines()
    assert [*lines[0].get_ydata()] == [4.0, 2.0, 3.0] and [*lines[1].get_ydata()] == [4.0, 3.0, 3.1]
    assert [line.get_xdata()[0] for line in lines[2:]] == [1e-4, 1e-3]
    left, right = schedule_figure({"constant": [3.0, 2.0], "restarts": [3.0, 2.0, 1.5, 1.0]}, peak=0.5).axes
    assert [*left.get_lines()[0].get_ydata()] == [0.5, 0.5] and [*left.get_lines()[1].get_ydata()][1] == 0.25
    assert [*right.get_lines()[1].get_ydata()] == [3.0, 2.0, 1.5, 1.0]


# --- quality and shift -----------------------------------------------------------------------------------------------


def test_quality_figure_splits_by_difficulty() -> None:
    gap = torch.tensor([0.1, -0.9, 0.5, 0.2, 1.0, 0.6])
    difference = torch.tensor([-1.0, 2.0, 1.0, 1.0, 3.0, -1.0])
    assert [part.tolist() for part in thirds(gap)] == [[0, 3], [2, 5], [1, 4]]
    left, middle, right = quality_figure(difference, gap, fit_of(difference)).axes
    assert [bar.get_height() for bar in left.patches] == [0.5, 0.5, 1.0]
    assert sum(bar.get_height() for bar in middle.patches) == 6
    assert len(right.collections[0].get_offsets()) == len(fit_of(difference).bins)


def test_gaps_are_packed_pooled_and_drawn() -> None:
    text = by_gap(torch.tensor([0.05, 0.05, 0.3, 1.5]), torch.tensor([True, False, True, True]))
    assert text == "2/0.5000 0/- 1/1.0000 0/- 0/- 0/- 1/1.0000"
    assert pooled([text, text])[:3] == [(4, 0.5), (0, None), (2, 1.0)] and read_gaps(text)[1] == (0, None)
    rows = load("policy_shift").rows
    left, middle, right = shift_figure(rows).axes
    before = pooled([row["by_gap"] for row in rows if row["step"] == 0])
    total = sum(n for n, _ in before)
    assert [bar.get_height() for bar in left.patches[:7]] == pytest.approx([n / total for n, _ in before], abs=1e-12)
    assert [*middle.get_lines()[0].get_ydata()] == [share for _, share in before]
    ends = {key: load("policy_shift").column(key, step=12) for key in ("before", "after")}
    drawn = [[*line.get_ydata()] for line in right.get_lines()[:10]]
    assert drawn == [[a, b] for a, b in zip(ends["before"], ends["after"], strict=True)]


def test_valence_undoes_the_squashing() -> None:
    s = torch.tensor([-3.0, 0.0, 2.0, 7.5], dtype=torch.float64)
    assert torch.allclose(valence(s / (s.square() + 15).sqrt()), s, atol=1e-6)
    assert valence(torch.tensor([1.0])).isfinite().all()


def test_people_figure_has_a_dot_a_run() -> None:
    rows = load("human_preferences").rows
    lines = people_figure(rows).axes[0].get_lines()
    found = [[*line.get_ydata()] for line in lines[:4]]
    assert found == [load("human_preferences").column(key, pairs=n) for n in (1500, 6000) for key in
                     ("accuracy", "vader")]  # fmt: skip


@pytest.mark.parametrize(("kept", "verdict"), [(0.6, "held here"), (1.0, "did not hold here")])
def test_the_claim_at_equal_gaps_can_come_out_either_way(kept: float, verdict: str) -> None:
    """Planted: a judge that is as good as before at every gap, though pairs are closer, and one that is 40 % worse."""
    losses = []
    for seed in range(10):
        u = seeding.uniforms(seed, "planted", range(8000), 3)
        wide, close = 2 * u[:4000, 0], 2 * u[4000:, 0] ** 3
        right = [u[:4000, 1] < torch.sigmoid(wide / 0.3), u[4000:, 1] < torch.sigmoid(close / 0.3)]
        losses.append(matched(wide, right[0], close, right[1] & (u[4000:, 2] < kept)).matched_loss)
    assert measure(losses, least=0.3, most=0.5).verdict == verdict


# --- the fault -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_a_score_read_in_the_last_column_hangs_on_its_neighbours(family: str) -> None:
    model, tokenizer = judge(family)
    alone = score_texts(model, tokenizer, TEXTS, batch=1)
    with faults.planted("score_in_the_last_column"):
        assert torch.allclose(score_texts(model, tokenizer, TEXTS, batch=1), alone, atol=1e-6)
        beside = score_texts(model, tokenizer, TEXTS, batch=64)
    longest = max(range(len(TEXTS)), key=lambda i: len(TEXTS[i].split()))
    moved = (beside - alone).abs()
    assert moved[longest] < 1e-6 and moved.max() > 1e-3
    assert torch.allclose(score_texts(model, tokenizer, TEXTS, batch=64), alone, atol=1e-6)
