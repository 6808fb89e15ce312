"""Rewards: what they may return, what happens when they fail, normalising and summing."""

from __future__ import annotations

import time

import pytest
import torch

from ppo_lab.config import ConfigError
from ppo_lab.config.callables import load_callable
from ppo_lab.config.language import RewardConfig
from ppo_lab.rlhf.score import Normalizer, RewardError, Scorer, Source, call

PROMPTS, RESPONSES = ["a", "b", "c"], [" one", " two", " three"]


def ask(reward, timeout=5.0, steps=4):
    return call("mine", reward, PROMPTS, RESPONSES, {"answer": [1, 2, 3]}, steps, timeout)


def test_columns_and_texts_arrive_and_both_shapes_pass():
    def reward(prompts, responses, *, answer):
        assert (prompts, responses) == (PROMPTS, RESPONSES)
        return answer

    assert ask(reward).tolist() == [1.0, 2.0, 3.0]
    assert ask(lambda p, r, **_: torch.ones(3, 4)).shape == (3, 4)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (torch.zeros(3, 1), r"shape \(3, 1\) for 3 responses; return \(3,\) .* or \(3, 4\)"),
        (torch.zeros(2), r"shape \(2,\) for 3 responses"),
        (1.0, r"shape \(\) for 3 responses"),
        ([1.0, float("nan"), 2.0], "nan for response 1; every score must be finite"),
        ([1.0, 2.0, float("inf")], "inf for response 2"),
        ("good", "returned str, which is no tensor"),
        (None, "returned NoneType"),
    ],
)
def test_wrong_returns_are_named(value, message):
    with pytest.raises(RewardError, match=message):
        ask(lambda p, r, **_: value)


def test_a_reward_that_raises_or_blocks_is_named():
    def broken(prompts, responses, **columns):
        raise KeyError("price")

    with pytest.raises(RewardError, match="reward mine raised KeyError: 'price' for 3 responses") as caught:
        ask(broken)
    assert isinstance(caught.value.__cause__, KeyError)
    start = time.perf_counter()
    with pytest.raises(RewardError, match=r"within reward.timeout = 0.2 s"):
        ask(lambda p, r, **_: time.sleep(30), timeout=0.2)
    assert time.perf_counter() - start < 10


def test_normalizer_in_parts_equals_the_whole():
    x = torch.randn(100, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 3 + 7
    parts = Normalizer()
    for piece in x.split(13):
        parts.update(piece)
    assert torch.allclose(parts(x), (x - x.mean()) / x.std(correction=0), atol=1e-12)
    assert Normalizer()(x) is x, "nothing seen, nothing changed"
    same = Normalizer()
    same.update(torch.full((5,), 2.0))
    assert same(torch.tensor([3.0])).tolist() == [1.0], "a constant reward is shifted, not blown up"


def scorer(cfg, *sources):
    return Scorer([Source(f"s{i}", reward, weight) for i, (reward, weight) in enumerate(sources)], cfg)


def test_weights_normalising_clip_and_missing_eos_in_order():
    cfg = RewardConfig(normalize="none", clip=2.0, missing_eos="subtract", penalty=0.5)
    mine = scorer(cfg, (lambda p, r, **_: [1.0, 2.0, 3.0], 2.0), (lambda p, r, **_: [1.0, 0.0, -9.0], 1.0))
    got = mine.scores(mine.opinions(PROMPTS, RESPONSES, {}, 4), torch.tensor([True, False, False]))
    assert got.raw.tolist() == [3.0, 4.0, -3.0]
    assert got.final.tolist() == [2.0, 1.5, -2.5]


def test_reference_normalising_gives_each_source_mean_0_deviation_1_before_its_weight():
    mine = scorer(RewardConfig(), (lambda p, r, **_: [10.0, 20.0, 30.0], 1.0), (lambda p, r, **_: [0.1, 0.2, 0.3], 3.0))
    raw = mine.opinions(PROMPTS, RESPONSES, {}, 4)
    mine.fit(raw)
    got = mine.scores(raw, torch.ones(3, dtype=torch.bool)).final
    assert torch.allclose(got, torch.tensor([-1.0, 0.0, 1.0]) * 1.5**0.5 * 4, atol=1e-5)  # float32 scores


def test_a_process_reward_is_kept_apart_from_score_rules():
    cfg = RewardConfig(normalize="none", clip=0.1)
    mine = scorer(cfg, (lambda p, r, **_: torch.full((3, 4), 5.0), 0.5), (lambda p, r, **_: [1.0, 1.0, 1.0], 1.0))
    got = mine.scores(mine.opinions(PROMPTS, RESPONSES, {}, 4), torch.ones(3, dtype=torch.bool))
    assert torch.equal(got.token, torch.full((3, 4), 2.5)) and torch.allclose(got.final, torch.full((3,), 0.1))


def test_statistics_survive_and_another_number_of_sources_is_refused():
    first = scorer(RewardConfig(), (lambda p, r, **_: [1.0, 2.0, 6.0], 1.0))
    first.fit(first.opinions(PROMPTS, RESPONSES, {}, 4))
    second = scorer(RewardConfig(), (lambda p, r, **_: [1.0, 2.0, 6.0], 1.0))
    second.load(first.state())
    assert second.sources[0].normalizer == first.sources[0].normalizer != Normalizer()
    with pytest.raises(ConfigError, match="reward.sources must be the 2 of the checkpoint, got 1"):
        second.load(first.state() * 2)


def test_callables_by_name(tmp_path):
    (tmp_path / "mine.py").write_text("def reward(p, r, **c):\n    return [0.0] * len(r)\nx = 1\n")
    found = load_callable(f"{tmp_path}/mine.py:reward", "reward.sources.0.path")
    assert found(PROMPTS, RESPONSES) == [0.0] * 3
    for path, message in [
        (f"{tmp_path}/mine.py:x", "has no callable x; it has reward"),
        (f"{tmp_path}/none.py:reward", "does not exist"),
        ("no_such_module:f", "importing no_such_module raised ModuleNotFoundError"),
        ("plain", "must read module:function"),
        (None, "must read module:function"),
    ]:
        with pytest.raises(ConfigError, match=message):
            load_callable(path, "reward.sources.0.path")
