"""Each planted fault of the text recipe shows the symptom that its entry in `ppo_lab.faults` promises."""

from __future__ import annotations

import pytest
from small_runs import config

from ppo_lab import faults
from ppo_lab.rlhf import Run

ONE = dict(steps=1, evaluation__every=5)


def first_step(folder, *planted: str, **changes):
    if not planted:
        return next(iter(Run(config(**{**ONE, **changes}), folder=folder)))
    with faults.planted(*planted):
        return next(iter(Run(config(**{**ONE, **changes}), folder=folder)))


@pytest.fixture(scope="module")
def healthy(tmp_path_factory):
    return first_step(tmp_path_factory.mktemp("healthy") / "run")


def test_padding_that_is_read_shows_between_sampler_and_forward_and_nowhere_else(tmp_path, healthy):
    broken = first_step(tmp_path / "run", "padding_attended")
    assert healthy.sampler_mismatch < 1e-4 < 0.05 < broken.sampler_mismatch
    assert broken.update.first_ratio_error < 1e-5 and broken.ref_kl_sum == pytest.approx(0, abs=1e-5)
    assert broken.score_mean == pytest.approx(healthy.score_mean, abs=1e-6), "the texts are the same"


def test_padding_that_is_counted_breaks_the_first_ratio(tmp_path, healthy):
    broken = first_step(tmp_path / "run", "padding_counted")
    assert healthy.update.first_ratio_error < 1e-5 and broken.update.first_ratio_error > 0.5
    assert broken.sampler_mismatch == healthy.sampler_mismatch and broken.tokens == healthy.tokens
    rows = config(**ONE).rows
    assert sum(healthy.update.log_ratio_histogram) == 2 * healthy.tokens  # two epochs
    assert sum(broken.update.log_ratio_histogram) > 2 * healthy.tokens and rows == 12


def test_a_shifted_reference_is_far_away_before_anything_has_moved(tmp_path, healthy):
    broken = first_step(tmp_path / "run", "reference_shifted")
    assert abs(healthy.ref_kl_sum) < 1e-5 and abs(broken.ref_kl_sum) > 0.1
    assert broken.non_score_reward == pytest.approx(-broken.beta * broken.ref_kl_sum, abs=1e-5)
    assert broken.update.first_ratio_error < 1e-5, "the ratio does not know the reference"


def test_a_lost_temperature_shows_only_where_there_is_one(tmp_path, healthy):
    assert first_step(tmp_path / "one", "reference_temperature_lost").ref_kl_sum == healthy.ref_kl_sum
    cold = dict(sampling__temperature=0.7)
    right, broken = first_step(tmp_path / "a", **cold), first_step(tmp_path / "b", "reference_temperature_lost", **cold)
    assert abs(right.ref_kl_sum) < 1e-5 and abs(broken.ref_kl_sum) > 0.01
