"""Each planted fault of the text recipe shows the symptom that its entry in `ppo_lab.faults` promises."""

from __future__ import annotations

import contextlib
import math
from dataclasses import replace

import pytest
import torch
from small_runs import config

from ppo_lab import faults
from ppo_lab.records import Responses
from ppo_lab.rlhf import Run
from ppo_lab.rlhf.assess import opinions
from ppo_lab.rlhf.steps import advantages, rewards_of

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


# --- heads -----------------------------------------------------------------------------------------------------------


def run_of(folder, *planted: str, **changes) -> Run:
    """A run under these faults, driven to its end inside the block."""
    with contextlib.ExitStack() as stack:
        if planted:
            stack.enter_context(faults.planted(*planted))
        run = Run(config(**{**ONE, **changes}), folder=folder)
        run.steps = list(run)
    return run


def values_of(run: Run, answers: Responses, *planted: str) -> torch.Tensor:
    with contextlib.ExitStack() as stack:
        if planted:
            stack.enter_context(faults.planted(*planted))
        return opinions(run.learner, answers, run.parts.lens)["value"]


@pytest.mark.parametrize("trunk", ["separate", "shared"])
@pytest.mark.parametrize("fault", ["value_pooled_mean", "value_pooled_attention"])
def test_a_pooled_value_is_one_an_answer_and_has_read_its_end(tmp_path, fault, trunk):
    run = run_of(tmp_path / "run", critic__trunk=trunk, critic__init="auto")
    answers = run.last_rollout.responses
    long = answers.mask.sum(-1) >= 4
    assert long.any()
    spot = answers.mask.sum(-1) - 2  # the last token but one of each answer
    tokens, rows = answers.tokens.clone(), torch.arange(len(answers))
    place = tokens.shape[-1] - answers.mask.shape[-1] + spot
    tokens[rows, place] = (tokens[rows, place] + 5) % run.parts.tokenizer.vocab_size
    other = replace(answers, tokens=tokens)
    first = answers.mask & (torch.arange(answers.mask.shape[-1]) < spot[:, None])  # states that have not read it
    assert torch.allclose(values_of(run, answers)[first], values_of(run, other)[first], atol=1e-6)
    pooled, moved = values_of(run, answers, fault), values_of(run, other, fault)
    for row in long.nonzero()[:, 0].tolist():
        mine = pooled[row][answers.mask[row]]
        assert torch.allclose(mine, mine[:1].expand_as(mine), atol=1e-6)
        assert float((values_of(run, answers)[row][answers.mask[row]]).std()) > 1e-6, "or the critic says nothing"
        assert float((pooled[row] - moved[row]).abs().max()) > 1e-6


def test_a_pooled_value_tells_no_token_from_another(tmp_path):
    """γ 1, no KL: all advantages of an answer are one surprise times powers of λ."""
    run = run_of(tmp_path / "run", "value_pooled_mean", kl__beta=0.0)
    rollout = run.last_rollout
    reward = rewards_of(rollout, beta=0.0, cfg=run.config.kl)
    advantage, _ = advantages(rollout, reward, run.config.ppo)
    for row, n in enumerate(rollout.responses.mask.sum(-1).tolist()):
        powers = 0.95 ** torch.arange(n - 1, -1, -1.0)
        assert torch.allclose(advantage[row, :n], advantage[row, n - 1] * powers, atol=1e-5)


def test_a_learned_temperature_drifts_away_from_the_samplers(tmp_path):
    many = dict(steps=3, optimizer__actor_rate=3e-3, optimizer__schedule="constant")
    right, broken = run_of(tmp_path / "a", **many), run_of(tmp_path / "b", "temperature_learned", **many)
    gaps = [step.sampler_mismatch for step in broken.steps]
    assert max(step.sampler_mismatch for step in right.steps) < 1e-4
    assert gaps[0] < 1e-4 and min(gaps[1:]) > 1e-3
    assert max(step.update.first_ratio_error for step in broken.steps) < 1e-5
    assert float(broken.learner.module.log_temperature) != 0


def test_a_redrawn_output_layer_has_forgotten_everything(tmp_path):
    changes = dict(sft__steps=60, reward__sources=[{"kind": "vader"}])
    right, broken = run_of(tmp_path / "a", **changes), run_of(tmp_path / "b", "policy_head_redrawn", **changes)
    most = math.log(right.parts.tokenizer.vocab_size)
    (good,), (bad,) = right.steps, broken.steps
    assert abs(good.ref_kl_sum) < 1e-4 < 10 < bad.ref_kl_sum
    assert good.update.entropy < 0.8 * most and bad.update.entropy > 0.97 * most
    assert bad.stop_rate < good.stop_rate and bad.update.first_ratio_error < 1e-5
