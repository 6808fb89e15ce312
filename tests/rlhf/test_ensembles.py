"""Several reward models behind one score: equal members are the member, own seeds, senseless settings are named."""

from __future__ import annotations

import json

import pytest
import torch
from small_runs import config, log_of, same_tensors

from ppo_lab import checkpoint
from ppo_lab.config import ConfigError, RLHFConfig, build
from ppo_lab.config.language import RewardConfig
from ppo_lab.rlhf import Run
from ppo_lab.rlhf.score import Normalizer, RewardError, Scorer, Source

TRAINED = dict(
    reward__sources=[{"kind": "model"}],
    reward_model__pairs=60, reward_model__held_out_pairs=40, reward_model__epochs=1,
    reward_model__allow_weak_reward_model=True, steps=2,
)  # fmt: skip
BOTH = torch.tensor([True, True])


def scorer(rule: str, *scores: list[float], k: float = 1.0, normalize: str = "none") -> tuple[Scorer, list]:
    seen = [Normalizer(count=4.0, mean=float(i), square=16.0 * (i + 1)) for i in range(len(scores))]
    sources = [Source(f"r{i}", lambda p, r: None, normalizer=x) for i, x in enumerate(seen)]
    cfg = RewardConfig(combine=rule, pessimism=k, normalize=normalize, sources=[{"kind": "vader"}] * len(scores))
    return Scorer(sources, cfg), [torch.tensor(x) for x in scores]


@pytest.mark.parametrize("rule", ["mean", "min", "mean_minus_std"])
def test_equal_members_are_the_member(rule):
    found, opinions = scorer(rule, *([[0.3, -2.0]] * 3), k=5.0)
    scores = found.scores(opinions, BOTH)
    assert torch.allclose(scores.final, opinions[0], rtol=0, atol=1e-6) and torch.equal(scores.raw, scores.final)
    assert torch.allclose(scores.spread, torch.zeros(2), atol=1e-6)


def test_the_rules_act_on_normalised_scores_and_the_raw_score_stays_in_the_members_units():
    for rule, final in (("mean", [0.25, 0.75]), ("min", [-0.5, 0.0]), ("mean_minus_std", [-0.5, 0.0])):
        found, opinions = scorer(rule, [2.0, 0.0], [-0.41421356, 5.24264069], normalize="reference")
        scores = found.scores(opinions, BOTH)  # r0: mean 0, deviation 2; r1: mean 1, deviation √8
        z = torch.stack([opinions[0] / 2, (opinions[1] - 1) / 8**0.5])
        wanted = {"mean": z.mean(0), "min": z.amin(0), "mean_minus_std": z.mean(0) - z.std(0, correction=0)}[rule]
        assert torch.allclose(scores.final, wanted, atol=1e-6)
        assert torch.allclose(wanted, torch.tensor(final), atol=1e-6)
        assert torch.allclose(scores.spread, z.std(0, correction=0))
        raw = torch.stack(opinions)
        assert torch.allclose(
            scores.raw, {"mean": raw.mean(0), "min": raw.amin(0)}.get(rule, raw.mean(0) - raw.std(0, correction=0))
        )


def test_pessimism_falls_with_k_and_is_the_mean_at_0():
    values = [scorer("mean_minus_std", [1.0, 2.0], [3.0, 2.0], k=k) for k in (0.0, 1.0, 2.0)]
    scores = torch.stack([found.scores(opinions, BOTH).final for found, opinions in values])
    assert torch.allclose(scores, torch.tensor([[2.0, 2.0], [1.0, 2.0], [0.0, 2.0]]))


def test_a_sum_is_what_it_was_and_has_no_spread():
    cfg = RewardConfig(normalize="none", sources=[{"kind": "vader"}] * 2)
    pair = Scorer([Source("a", lambda p, r: None, 0.1), Source("b", lambda p, r: None, 3.0)], cfg)
    a, b = torch.tensor([0.7, -0.3]), torch.tensor([0.11, 0.13])
    scores = pair.scores([a, b], BOTH)
    assert torch.equal(scores.final, torch.zeros(2) + 0.1 * a + 3.0 * b) and scores.spread is None


def test_a_rank_without_rows_has_an_empty_score():
    found, _ = scorer("min", [1.0], [2.0])
    scores = found.scores([torch.zeros(0), torch.zeros(0)], torch.zeros(0, dtype=torch.bool))
    assert scores.final.shape == scores.spread.shape == (0,)


def test_a_process_reward_cannot_be_a_member():
    cfg = RewardConfig(combine="min", sources=[{"kind": "vader"}] * 2)
    each = Source("each", lambda p, r: torch.zeros(len(r), 4))
    pair = Scorer([Source("whole", lambda p, r: [0.0] * len(r)), each], cfg)
    with pytest.raises(RewardError, match="each must give one score an answer under reward.combine min.*use sum"):
        pair.opinions(["a"], ["b"], {}, 4)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"reward": {"combine": "min"}}, "reward.combine min needs at least two scores, got 1; raise reward_model.mem"),
        ({"reward": {"combine": "mean", "sources": [{"kind": "vader"}]}}, "needs at least two scores, got 1"),
        ({"reward_model": {"members": 3}}, r"reward.combine must be mean, min or mean_minus_std .*members 3.*got sum"),
        ({"reward_model": {"members": 3}, "reward": {"combine": "mean", "sources": [{"kind": "vader"}] * 2}},
         "reward_model.members must be 1 where no source is the trained reward model, got 3"),
        ({"reward": {"combine": "min", "sources": [{"kind": "vader"}, {"kind": "model", "weight": 2}]}},
         "reward.sources must all have weight 1 under reward.combine min .* got 2"),
        ({"reward": {"combine": "median"}}, "reward.combine"),
        ({"reward": {"pessimism": -1}}, "reward.pessimism"),
    ],
)  # fmt: skip
def test_senseless_combinations_are_named(data, message):
    with pytest.raises(ConfigError, match=message):
        build(RLHFConfig, data)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ensemble") / "run"
    run = Run(config(**TRAINED, reward__combine="mean_minus_std", reward_model__members=3), folder=folder)
    return run, list(run)


def test_members_have_folders_heads_and_orders_of_their_own_and_the_first_is_the_single_one(whole, tmp_path):
    run, steps = whole
    folders = [run.folder / "models" / name for name in ("reward_model", "reward_model_1", "reward_model_2")]
    weights = [(folder / "model.safetensors").read_bytes() for folder in folders]
    assert len(set(weights)) == 3 and set(run.learner.frozen) == {"reference", "reward_0", "reward_0_1", "reward_0_2"}
    held = [json.loads((folder / "quality.json").read_text())["held_out_pairs"] for folder in folders]
    assert held == [40, 40, 40]
    alone = Run(config(**TRAINED), folder=tmp_path / "run")
    assert (tmp_path / "run" / "models" / "reward_model" / "model.safetensors").read_bytes() == weights[0]
    assert "score_disagreement" not in next(iter(alone)).row()
    assert all(step.score_disagreement > 0 for step in steps)


def test_the_score_of_a_run_is_the_mean_less_the_spread(whole):
    run, steps = whole
    rollout = run.last_rollout
    opinions = run.texts.opinions(run.scorer, rollout.responses)
    z = torch.stack([source.normalizer(x) for source, x in zip(run.scorer.sources, opinions, strict=True)])
    assert torch.allclose(rollout.score, z.mean(0) - z.std(0, correction=0), atol=1e-5)
    assert steps[-1].score_disagreement == pytest.approx(float(z.std(0, correction=0).mean()), abs=1e-5)


def test_an_ensemble_resumes_to_the_bit(whole, tmp_path):
    changes = dict(TRAINED, reward__combine="mean_minus_std", reward_model__members=3)
    first = Run(config(**changes), folder=tmp_path / "run")
    for _ in first:
        first.stop()
    list(Run(config(**changes), folder=tmp_path / "run", resume=True))
    assert log_of(tmp_path / "run") == log_of(whole[0].folder)
    mine, theirs = (checkpoint.load(checkpoint.latest(f)) for f in (tmp_path / "run", whole[0].folder))
    assert same_tensors(mine[0], theirs[0]) and mine[1] == theirs[1]


def test_own_pairs_are_others_for_every_member_but_the_first(tmp_path, monkeypatch):
    from ppo_lab.rlhf import rewarding

    drawn: dict[str, list] = {"same": [], "own": []}
    real = rewarding.preference_pairs
    for how, found in drawn.items():
        monkeypatch.setattr(rewarding, "preference_pairs", lambda *a, f=found, **k: f.append(real(*a, **k)) or f[-1])
        Run(config(**TRAINED, reward__combine="min", reward_model__members=2, reward_model__member_pairs=how),
            folder=tmp_path / how)  # fmt: skip
    assert drawn["same"][0] == drawn["same"][1] == drawn["own"][0] != drawn["own"][1]
