"""Several rewards in one run: the worst distance, or one that comes first."""

from __future__ import annotations

import pytest
import torch
from small_runs import config

from ppo_lab.config import ConfigError
from ppo_lab.config.language import RewardConfig
from ppo_lab.rlhf import Run
from ppo_lab.rlhf.score import Scorer, Source

OPINIONS = [torch.tensor([2.0, 0.5, -1.0, 0.0]), torch.tensor([-1.0, 0.5, 2.0, 0.4])]
STOPPED = torch.ones(4, dtype=torch.bool)
TWO = [{"kind": "vader"}, {"kind": "callable", "path": "rewards_of_tests:short"}]


def scorer(rule: str, *, least: tuple[float | None, float | None] = (None, None), **more) -> Scorer:
    kinds = [{"kind": "vader", "least": x} for x in least]
    cfg = RewardConfig(combine=rule, normalize="none", sources=kinds, **more)
    sources = [Source(f"r{i}", lambda p, r: None, w, x) for i, (w, x) in enumerate(zip((1.0, 2.0), least, strict=True))]
    return Scorer(sources, cfg)


def test_the_worst_weighted_distance_counts():
    scores = scorer("chebyshev", least=(None, 0.25)).scores(OPINIONS, STOPPED)
    distance = torch.stack([OPINIONS[0], 2 * (OPINIONS[1] - 0.25)])
    torch.testing.assert_close(scores.final, distance.amin(0) + 1e-3 * distance.sum(0), rtol=0, atol=1e-6)
    assert scores.final.argmax() == 1  # the only answer that is good in both
    torch.testing.assert_close(scores.raw, OPINIONS[0] + 2 * OPINIONS[1], rtol=0, atol=1e-6)
    assert scores.spread is None


def test_the_constraint_comes_first():
    scores = scorer("constraint", least=(None, 0.4), floor=-5.0).scores(OPINIONS, STOPPED)
    torch.testing.assert_close(scores.final, torch.tensor([-5.0 - 1.4, 0.5, -1.0, 0.0]), rtol=0, atol=1e-6)
    alone = scorer("constraint", least=(None, 0.4), floor=-5.0).scores([x[:1] for x in OPINIONS], STOPPED[:1])
    assert alone.final[0] == scores.final[0]  # whatever else is in the batch: ranks see shares of it


@pytest.mark.parametrize(
    ("reward", "message"),
    [
        ({"combine": "chebyshev"}, "reward.combine chebyshev needs at least two sources of positive weight"),
        ({"combine": "chebyshev", "sources": [{"weight": 0.0}, {"kind": "vader"}]}, "leave out what is not to count"),
        ({"combine": "constraint", "sources": TWO}, "constraint needs exactly one of at least two sources with least"),
        ({"sources": [{"kind": "vader", "least": 0.1}]}, "least is for reward.combine chebyshev or constraint"),
    ],
)
def test_what_is_refused(reward, message):
    with pytest.raises(ConfigError, match=message):
        config(reward=reward)
    with pytest.raises(ConfigError, match="reward.combine must be mean, min or mean_minus_std .*got chebyshev"):
        config(reward={"combine": "chebyshev", "sources": [{}, {}]}, reward_model={"members": 3})


@pytest.mark.parametrize(("rule", "least"), [("chebyshev", None), ("constraint", 0.1)])
def test_a_run_is_paid_by_the_rule(tmp_path, monkeypatch, rule, least):
    mine = "def short(prompts, responses, **_):\n    return [-float(len(r.split())) for r in responses]\n"
    (tmp_path / "rewards_of_tests.py").write_text(mine)
    monkeypatch.syspath_prepend(str(tmp_path))
    sources = [TWO[0], TWO[1] | {"least": least}]
    run = Run(config(steps=1, reward={"combine": rule, "sources": sources}), folder=tmp_path / "run")
    list(run)
    rollout = run.last_rollout
    opinions = run.texts.opinions(run.scorer, rollout.responses)
    each = torch.stack([s.normalizer(x) for s, x in zip(run.scorer.sources, opinions, strict=True)])
    if rule == "chebyshev":
        expected = each.amin(0) + 1e-3 * each.sum(0)
    else:
        expected = torch.where(each[1] >= 0.1, each[0].clamp(min=-10), -10 - (0.1 - each[1]))
        assert 0 < (each[1] >= 0.1).sum() < len(rollout.score)
    torch.testing.assert_close(rollout.score, expected, rtol=0, atol=1e-6)
