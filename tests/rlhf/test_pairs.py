"""Preference pairs: who is compared with whom, noisy labels, labellers of one's own, human ratings."""

from __future__ import annotations

import json
import math

import pytest
import torch
from tiny_reward import WORDS, config, corpus

from ppo_lab.config import ConfigError, RLHFConfig
from ppo_lab.config.base import build
from ppo_lab.config.language import PolicyConfig
from ppo_lab.rlhf.gold import vader
from ppo_lab.rlhf.models.build import build_policy
from ppo_lab.rlhf.reward_model import (
    Pair,
    answers_of,
    preference_pairs,
    train,
)
from ppo_lab.rlhf.tokens import word_tokenizer


def test_pairs_are_labelled_by_gap_and_noise():
    cfg = config(pairs=3000, held_out_pairs=200, noise=0.2)
    pairs = preference_pairs(cfg, corpus(), seed=0)
    assert (len(pairs.train), len(pairs.held_out)) == (3000, 200) and preference_pairs(cfg, corpus(), seed=0) == pairs
    assert preference_pairs(cfg, corpus(), seed=1) != pairs
    gaps = torch.tensor([pair.gap for pair in pairs.train], dtype=torch.float64)
    gold = vader([""] * 3000, [p.chosen for p in pairs.train]) - vader([""] * 3000, [p.rejected for p in pairs.train])
    assert torch.allclose(gaps, gold.double(), rtol=0, atol=1e-6) and bool((gaps != 0).all())
    wrong = torch.sigmoid(-gaps.abs() / 0.2)  # each label's own chance to be wrong
    error = float((gaps < 0).double().sum() - wrong.sum()) / math.sqrt(float((wrong * (1 - wrong)).sum()))
    assert abs(error) < 4, "standard errors from the expected number of wrong labels"
    clean = preference_pairs(config(pairs=300, held_out_pairs=20, noise=0.0, min_gap=0.3), corpus(), seed=0)
    assert min(pair.gap for pair in clean.train) >= 0.3
    held_out = {text for pair in pairs.held_out for text in pair.texts}
    assert not held_out & {text for pair in pairs.train for text in pair.texts}


def test_pairs_of_one_group_compare_answers_to_one_prompt():
    cfg, calls = config(pairs=30, held_out_pairs=6, noise=0.0, answers=3), []

    def answer(prompts, seed):
        calls.append(list(prompts))
        words = ["lovely", "bad", "not great"]
        return [f"is {words[i % 3]} ." for i in range(len(prompts))]

    pairs = preference_pairs(cfg, corpus(), seed=0, answer=answer)
    groups: dict[int, list[Pair]] = {}
    for pair in pairs.train:
        groups.setdefault(pair.group, []).append(pair)
    assert len(groups) == 10 and all(len({p.prompt for p in g}) == 1 and len(g) == 3 for g in groups.values())
    assert {(p.chosen, p.rejected) for p in groups[0]} == {
        ("is lovely .", "is bad ."), ("is lovely .", "is not great ."), ("is not great .", "is bad .")}  # fmt: skip
    assert set(calls[0]) <= set(corpus().train_prompts) and set(calls[1]) <= set(corpus().held_out_prompts)
    taken = list(train._steps(pairs.train, cfg.reward_model.model_copy(update={"batch": 7, "epochs": 2}), 0))
    assert [len(step) for step in taken] == [7, 7, 7, 7, 2] * 2
    assert (
        sorted(i for step in taken[:5] for i in step)
        == sorted(i for step in taken[5:] for i in step)
        == list(range(30))
    )


def test_the_policy_answers_as_in_ppo():
    tokenizer = word_tokenizer([WORDS])
    policy = build_policy(PolicyConfig(layers=2, width=16, heads=2), tokenizer, 0)
    cfg = config()
    answer = answers_of(cfg, policy, tokenizer)
    first = answer(["the film", "the cast is"], 3)
    assert first == answer(["the film", "the cast is"], 3) != answer(["the film", "the cast is"], 4)
    assert answer(["the film"], 3) == first[:1], "one row does not depend on the others"
    assert all(set(text.split()) <= set(WORDS.split()) | {"<unk>"} for text in first)


def test_a_labeller_of_ones_own_and_what_it_may_return(tmp_path):
    code = "def length(prompts, responses, **columns):\n    return [float(len(r)) for r in responses]\n"
    code += "def broken(prompts, responses, **columns):\n    return [float('nan')] * len(responses)\n"
    (tmp_path / "mine.py").write_text(code, encoding="utf-8")
    pairs = preference_pairs(
        config(labels=f"{tmp_path}/mine.py:length", noise=0.0, pairs=50, held_out_pairs=5), corpus(), seed=0
    )
    assert all(len(pair.chosen) > len(pair.rejected) for pair in pairs.train)
    with pytest.raises(Exception, match="reward_model.labels .*every score must be finite"):
        preference_pairs(config(labels=f"{tmp_path}/mine.py:broken", pairs=20), corpus(), seed=0)
    with pytest.raises(ConfigError, match="reward_model.labels must read module:function"):
        preference_pairs(config(labels="nonsense"), corpus(), seed=0)
    with pytest.raises(ConfigError, match="reward_model.min_gap must leave 100 train pairs, got 0"):
        preference_pairs(config(min_gap=2.5, pairs=100), corpus(), seed=0)


def test_pairs_of_human_ratings(tmp_path):
    rows = [{"id": f"m{i}", "source": "movie", "rating": i % 9 - 4.0, "text": f"film number {i} is rather long"}
            for i in range(400)]  # fmt: skip
    (tmp_path / "reviews.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    rated = {"labels": "ratings", "pairs": 200, "held_out_pairs": 50, "min_gap": 2.0}
    data = {"corpus": {"kind": "human-reviews", "path": str(tmp_path)}, "reward_model": rated}
    pairs = preference_pairs(build(RLHFConfig, data), corpus(), seed=0)
    assert len(pairs.train) == 200 and all(pair.gap >= 2 and pair.prompt == "" for pair in pairs.train)
    texts = [{text for pair in side for text in pair.texts} for side in (pairs.train, pairs.held_out)]
    assert not texts[0] & texts[1]
