"""Prompts that are weighed: chances, records, resuming, and an evaluation that knows nothing of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from small_runs import config, log_of

from ppo_lab.config import ConfigError
from ppo_lab.config.language import SamplingConfig
from ppo_lab.records import take
from ppo_lab.rlhf import Run
from ppo_lab.rlhf.prompt_sampling import PromptOrder

TEXTS = ["a", "b b", "a", "c c c", "d"]
LENGTHS = torch.tensor([1, 2, 1, 3, 1])


def order(kind: str, *, seed: int = 0, **more) -> PromptOrder:
    cfg = SamplingConfig(prompts=2, order=kind, **more)
    return PromptOrder(cfg, seed, TEXTS, LENGTHS)


@pytest.fixture(scope="module")
def rollout(tmp_path_factory):
    run = Run(config(steps=1), folder=tmp_path_factory.mktemp("order") / "run")
    list(run)
    return take(run.last_rollout, slice(0, 4))


def seen(rollout, rows: list[int], score: list[float], value: list[float]):
    """A step's answers, at these rows with these scores; V of each prompt as given."""
    judged = rollout.value.clone()
    judged[:, 0] = torch.tensor(value)
    return replace(rollout, responses=replace(rollout.responses, index=torch.tensor(rows)),
                   score=torch.tensor(score), value=judged)  # fmt: skip


def test_long_prompts_have_the_chance_that_the_formula_says():
    z = (LENGTHS.double() - 1.6) / LENGTHS.double().std(correction=0)
    tilt = (0.5 * z).exp()
    expected = 0.2 + 0.8 * tilt / tilt.mean()
    torch.testing.assert_close(order("length", order_strength=0.5).weights(), expected, rtol=0, atol=1e-6)
    short = order("length", order_strength=-0.5).weights()
    assert short.argmin() == 3 and short.mean() == pytest.approx(1.0, abs=1e-12)
    assert torch.equal(order("length", order_floor=1.0).weights(), torch.ones(5).double())


def test_draws_follow_the_chances_and_never_repeat_in_a_step():
    mine, count = order("length", order_strength=1.0), torch.zeros(5)
    first = torch.zeros(5)
    for step in range(4000):
        rows = mine.rows(step)
        assert len(rows.unique()) == 2
        count[rows] += 1
        first[rows[0]] += 1
    share = mine.weights().float() / 5
    assert (first / 4000 - share).abs().max() < 4 * (0.25 / 4000) ** 0.5  # the first of the top k is one weighted draw
    assert torch.equal(mine.rows(7), order("length", order_strength=1.0).rows(7))
    assert not all(torch.equal(mine.rows(s), order("length", seed=1).rows(s)) for s in range(8))


def test_prompts_of_one_text_share_a_record_that_fades(rollout):
    mine = order("difficulty")
    assert torch.equal(mine.weights(), torch.ones(5).double())  # nothing was seen
    mine.learn(seen(rollout, [0, 2, 1, 1], [1.0, 3.0, -1.0, -1.0], [0.0] * 4))
    assert mine.score.tolist() == [2.0, -1.0, 0.0, 0.0] and mine.seen.tolist() == [True, True, False, False]
    mine.learn(seen(rollout, [2, 2, 2, 2], [0.0] * 4, [0.0] * 4))
    assert mine.score[0] == 1.0
    w = mine.weights()
    assert w[0] == w[2] < w[3] == w[4] < w[1]  # easy, unknown, hard


def test_uncertainty_is_the_critics_surprise_or_the_ensembles_disagreement(rollout):
    mine = order("uncertainty")
    step = seen(rollout, [0, 1, 3, 4], [1.0, 1.0, 0.0, -2.0], [0.5, 1.0, 2.0, -1.0])
    mine.learn(step)
    assert mine.doubt.tolist() == [0.5, 0.0, 2.0, 1.0] and mine.weights().argmax() == 3
    mine.learn(replace(step, score_spread=torch.tensor([1.5, 0.0, 0.0, 0.0])))
    assert mine.doubt.tolist() == [1.0, 0.0, 1.0, 0.5]


def test_a_record_comes_back_from_its_state(rollout):
    mine, other = order("difficulty"), order("difficulty")
    mine.learn(seen(rollout, [0, 1, 3, 3], [1.0, 2.0, 0.1, 0.2], [0.0] * 4))
    other.learn(seen(rollout, [4, 4, 4, 4], [9.0] * 4, [0.0] * 4))
    other.load(mine.state())
    assert torch.equal(mine.weights(), other.weights()) and mine.state() == other.state()


def test_more_prompts_than_there_are_is_refused():
    with pytest.raises(ConfigError, match="sampling.prompts must not exceed the 5 prompts"):
        PromptOrder(SamplingConfig(prompts=6, order="length"), 0, TEXTS, LENGTHS)
    assert len(PromptOrder(SamplingConfig(prompts=6), 0, TEXTS, LENGTHS).rows(0)) == 6


@pytest.mark.parametrize("kind", ["difficulty", "uncertainty"])
def test_a_resumed_run_draws_as_if_never_stopped(tmp_path, kind):
    cfg = config(sampling={"prompts": 6, "samples": 2, "max_new_tokens": 10, "order": kind})
    list(Run(cfg, folder=tmp_path / "whole"))
    for step in (stopped := Run(cfg, folder=tmp_path / "stopped")):
        if step.step == 2:
            stopped.stop()
    resumed = Run(cfg, folder=tmp_path / "stopped", resume=True)
    assert resumed.step == 2 and bool(resumed.parts.order.seen.any())
    list(resumed)
    assert log_of(tmp_path / "whole") == log_of(tmp_path / "stopped")


def test_an_evaluation_asks_the_same_prompts_whatever_the_order(tmp_path):
    runs = {kind: Run(config(sampling={"prompts": 6, "samples": 2, "max_new_tokens": 10, "order": kind}),
                      folder=tmp_path / kind) for kind in ("epochs", "length")}  # fmt: skip
    a, b = (run.parts.held_out.prompts for run in runs.values())
    assert torch.equal(a.tokens, b.tokens)
    drawn = [run.parts.prompts_at(0) for run in runs.values()]
    assert not torch.equal(drawn[0].index, drawn[1].index)
    assert drawn[1].index.reshape(6, 2).unique(dim=1).shape == (6, 1)  # each prompt `samples` times in a row
