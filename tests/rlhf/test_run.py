"""The recipe on a tiny model: what it writes, that it resumes to the bit, and the identities of the first minibatch."""

from __future__ import annotations

import json
import math

import pytest
import torch
from small_runs import config, log_of, same_tensors

from ppo_lab import checkpoint, metrics
from ppo_lab.config import ConfigError, load_config
from ppo_lab.core.masking import masked_sum
from ppo_lab.rlhf import Run
from ppo_lab.rlhf.score import RewardError
from ppo_lab.rlhf.steps import rewards_of


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run from start to end, to compare with."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    run = Run(config(), folder=folder)
    return run, list(run)


def test_a_run_writes_what_it_yields(whole):
    run, steps = whole
    assert [s.step for s in steps] == [1, 2, 3, 4] and run.step == 4
    rows = metrics.read(run.folder / "metrics.jsonl")
    assert json.loads(json.dumps(rows[1])) == json.loads(json.dumps(metrics.decode(metrics.encode(steps[1].row()))))
    assert [("eval_score" in row) for row in rows] == [False, True, False, True]
    assert load_config(run.folder / "config.yaml") == run.config
    samples = metrics.read(run.folder / "samples.jsonl")
    assert [s["step"] for s in samples] == [0] * 3 + [2] * 3 + [4] * 3
    assert [s["prompt"] for s in samples[:3]] == [s["prompt"] for s in samples[3:6]]
    assert "eval_gold" in json.loads((run.folder / "baseline.json").read_text())
    best = json.loads((run.folder / "best.json").read_text())
    objective = {row["step"]: row["eval_objective"] for row in rows if "eval_objective" in row}
    assert best["eval_objective"] == max(objective.values()) == objective[best["step"]]
    assert {2, 4} >= set(checkpoint.steps(run.folder)) >= {4, best["step"]}


def test_rewards_of_a_row_sum_to_score_less_beta_kl(whole):
    run, _ = whole
    rollout, beta = run.last_rollout, run.config.kl.beta
    mask = rollout.responses.mask
    total = masked_sum(rewards_of(rollout, beta=beta, cfg=run.config.kl), mask, dim=-1)
    kl = masked_sum(rollout.old_logp - rollout.ref_logp, mask, dim=-1)
    assert torch.allclose(total, rollout.score - beta * kl, atol=1e-6)


def test_metrics_agree_with_the_rollout(whole):
    run, steps = whole
    row, rollout = steps[-1].row(), run.last_rollout
    mask = rollout.responses.mask
    assert row["tokens"] == int(mask.sum()) and row["response_length"] == pytest.approx(mask.sum() / 12)
    assert row["reward_mean"] == pytest.approx(row["score_mean"] + row["non_score_reward"], abs=1e-6)
    assert row["non_score_reward"] == pytest.approx(-row["beta"] * row["ref_kl_sum"], abs=1e-6)
    assert row["ref_kl_token"] * row["tokens"] == pytest.approx(row["ref_kl_sum"] * 12, abs=1e-5)
    assert sum(row["log_ratio_histogram"]) == row["tokens"] * run.config.ppo.epochs
    assert 0 <= row["entropy"] <= math.log(run.parts.tokenizer.vocab_size)
    assert row["optimizer_steps"] == row["policy_steps"] == 4


@pytest.mark.parametrize("family", ["llama", "gpt2"])
@pytest.mark.parametrize("temperature", [0.5, 0.7, 1.0, 1.3])
def test_b05_b06_first_ratio_is_one_under_temperature_dropout_and_left_padding(tmp_path, family, temperature):
    run = Run(config(steps=1, policy__family=family, sampling__temperature=temperature), folder=tmp_path / "run")
    run.learner.module.train()  # B06: the caller left dropout on
    first = next(iter(run))
    assert first.update.first_ratio_error < 1e-6 and first.sampler_mismatch < 1e-4
    assert first.ref_kl_sum == pytest.approx(0, abs=1e-5), "an untouched copy is at distance 0"
    assert run.learner.module.training, "the caller's mode is given back"
    attention = run.last_rollout.responses.attention
    assert not attention[:, 0].all(), "some prompts were padded on the left"


def test_first_ratio_is_one_where_pad_is_eos(tmp_path):
    from ppo_lab.rlhf.prepare import obtain_policy

    run = Run(config(steps=1), folder=tmp_path / "first")
    folder = tmp_path / "first" / "models" / "sft"
    tokenizer = run.parts.tokenizer
    tokenizer.pad_token = tokenizer.eos_token
    tokenizer.save_pretrained(folder)
    assert obtain_policy(run.config, run.parts.corpus, folder)[1].pad_token_id == tokenizer.eos_token_id
    again = Run(config(steps=1, policy__path=str(folder), sft__steps=0), folder=tmp_path / "second")
    assert again.parts.sampling["pad_id"] in again.parts.sampling["stop_ids"]
    got, want = next(iter(again)), next(iter(run))
    assert got.update.first_ratio_error < 1e-6
    assert torch.equal(again.last_rollout.responses.mask, run.last_rollout.responses.mask)
    for name in ("score_mean", "policy_loss", "value_loss", "entropy", "stop_rate"):
        assert got.row()[name] == want.row()[name], name


@pytest.mark.parametrize("stop_after", [1, 2, 3])
def test_a_stopped_and_resumed_run_is_the_run_b35(tmp_path, whole, stop_after):
    folder, changes = tmp_path / "run", {}
    first = Run(config(**changes), folder=folder)
    for step in first:
        if step.step == stop_after:
            first.stop()
    assert first.step == stop_after and checkpoint.steps(folder)[-1] == stop_after
    again = Run(config(**changes), folder=folder, resume=True)
    assert again.step == stop_after
    list(again)
    assert log_of(folder) == log_of(whole[0].folder)
    for name in ("samples.jsonl", "baseline.json", "best.json"):
        assert (folder / name).read_bytes() == (whole[0].folder / name).read_bytes()
    mine, theirs = (checkpoint.load(checkpoint.latest(f)) for f in (folder, whole[0].folder))
    assert same_tensors(mine[0], theirs[0]) and mine[1] == theirs[1]


def test_adaptive_beta_and_normalizer_survive_b35(tmp_path):
    changes = dict(kl__controller="proportional", kl__target=0.001, kl__horizon=40, reward__normalize="running")
    changes["reward__sources"] = [{"kind": "vader"}]
    run = Run(config(**changes), folder=tmp_path / "run")
    references = run.scorer.state()[0]["count"]
    for step in run:
        if step.step == 3:
            run.stop()
    again = Run(config(**changes), folder=tmp_path / "run", resume=True)
    assert again.beta == run.beta != run.config.kl.beta
    assert again.scorer.state() == run.scorer.state() and again.scorer.state()[0]["count"] == references + 3 * 12


def test_another_reference_is_refused_b35(tmp_path):
    run = Run(config(steps=2), folder=tmp_path / "run")
    list(run)
    weights = tmp_path / "run" / "models" / "sft" / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-3] ^= 1
    weights.write_bytes(bytes(data))
    with pytest.raises(ConfigError, match="reference must have sha256"):
        Run(config(steps=2), folder=tmp_path / "run", resume=True)


def test_a_reward_that_fails_midway_loses_nothing(tmp_path, whole):
    from ppo_lab.rlhf.gold import vader

    calls = []

    def sulky(prompts, responses, **columns):
        calls.append(len(responses))
        if len(calls) == fail_at:
            raise RuntimeError("service down")
        return vader(prompts, responses)

    fail_at = 1 + 2 + 2 + 2 + 1  # reference, baseline twice, steps 1 and 2, evaluation twice, then step 3
    run = Run(config(), folder=tmp_path / "run", reward=sulky)
    with pytest.raises(RewardError, match="reward sulky raised RuntimeError: service down") as caught:
        list(run)
    assert "resume" in caught.value.__notes__[0] and checkpoint.steps(tmp_path / "run")[-1] == 2
    again = Run(config(), folder=tmp_path / "run", reward=vader, resume=True)
    list(again)
    assert [r["score_mean"] for r in log_of(tmp_path / "run")] == [r["score_mean"] for r in log_of(whole[0].folder)]


def test_a_reward_that_fails_in_an_evaluation_costs_the_evaluation_only(tmp_path, whole):
    from ppo_lab.rlhf.gold import vader

    calls = []

    def sulky(prompts, responses, **columns):
        calls.append(len(responses))
        if len(calls) == 1 + 2 + 2 + 1:
            raise RuntimeError("service down")
        return vader(prompts, responses)

    with pytest.raises(RewardError):
        list(Run(config(), folder=tmp_path / "run", reward=sulky))
    assert checkpoint.steps(tmp_path / "run") == [2]
    list(Run(config(), folder=tmp_path / "run", reward=vader, resume=True))
    mine, theirs = log_of(tmp_path / "run"), log_of(whole[0].folder)
    assert [row["step"] for row in mine] == [1, 2, 3, 4] and "eval_score" not in mine[1]
    assert mine[2:] == theirs[2:] and mine[1] == {k: v for k, v in theirs[1].items() if not k.startswith("eval_")}


def test_a_reward_that_is_broken_from_the_start_stops_before_ppo(tmp_path):
    with pytest.raises(RewardError, match="nan for response 0"):
        Run(config(), folder=tmp_path / "run", reward=lambda p, r, **_: torch.full((len(r),), float("nan")))
    assert not (tmp_path / "run" / "metrics.jsonl").exists()
