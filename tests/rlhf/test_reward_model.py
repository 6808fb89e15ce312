"""Training a reward model: it learns, is keyed, measured and refused when weak."""

from __future__ import annotations

import math

import pytest
import torch
from tiny_reward import WORDS, config, judge, learnable, save_encoder

from ppo_lab import seeding
from ppo_lab.config import ConfigError
from ppo_lab.rlhf.models.build import load_reward_model
from ppo_lab.rlhf.models.folders import save_folder
from ppo_lab.rlhf.reward_model import (
    Pair,
    Pairs,
    Quality,
    measure,
    read_quality,
    require_quality,
    score_texts,
    train_reward_model,
)
from ppo_lab.rlhf.tokens import word_tokenizer


def test_training_learns_is_keyed_and_touches_no_global_state(tmp_path):
    cfg = config(epochs=4, batch=16, rate=1e-2).reward_model
    pairs = Pairs(train=learnable(120, 0), held_out=learnable(40, 1))
    results, before = [], torch.get_rng_state()
    for seed in (0, 0, 1):
        model, tokenizer = judge("gpt2", dropout=0.1)
        results.append((train_reward_model(model, tokenizer, pairs, cfg, seed=seed), model))
        assert torch.equal(torch.get_rng_state(), before) and not model.training
        torch.rand(2)
        torch.set_rng_state(before)
    (first, model), (again, twin), (other, _) = results
    assert first.loss == again.loss != other.loss and len(first.loss) == 32
    assert all(map(torch.equal, model.parameters(), twin.parameters()))
    assert first.accuracy == first.clean.accuracy == 1.0 and first.labels.margin > 1 and first.train_accuracy == 1.0
    assert first.loss[-1] < 0.3 < first.loss[0]
    tmp_path = tmp_path / "judge"
    save_folder(tmp_path, model, tokenizer, first.figures())
    assert read_quality(tmp_path) == first and read_quality(tmp_path / "none") is None
    texts = [text for pair in pairs.held_out for text in pair.texts]
    assert torch.equal(
        score_texts(load_reward_model(str(tmp_path), seed=5), tokenizer, texts), score_texts(model, tokenizer, texts)
    )
    (tmp_path / "quality.json").write_text('{"accuracy": 1}', encoding="utf-8")
    with pytest.raises(ConfigError, match="quality.json must be as a run writes it"):
        read_quality(tmp_path)


def test_only_the_last_blocks_and_the_score_move_where_asked(tmp_path):
    tokenizer = word_tokenizer([WORDS])
    pairs = Pairs(train=learnable(20, 0), held_out=learnable(4, 1))
    for model in (judge()[0], load_reward_model(save_encoder(tmp_path, tokenizer), seed=0)):
        before = {name: p.clone() for name, p in model.named_parameters()}
        cfg = config(epochs=1, batch=8, trainable_layers=1).reward_model
        train_reward_model(model, tokenizer, pairs, cfg, seed=0)
        moved = {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}
        assert {name.split(".")[0] for name in moved} >= {"score" if hasattr(model, "score") else "classifier"}
        assert not any(".0." in name or "embed" in name for name in moved) and any(".1." in name for name in moved)
    with pytest.raises(ConfigError, match="reward_model.trainable_layers must be at most the 2 blocks"):
        train_reward_model(model, tokenizer, pairs, config(trainable_layers=3).reward_model, seed=0)


def test_wrong_labels_are_told_from_wrong_scores():
    flipped = [
        Pair(prompt=p.prompt, chosen=p.rejected, rejected=p.chosen, gap=-1.0, group=p.group) for p in learnable(10, 2)
    ]
    model, tokenizer = judge()
    cfg = config(epochs=6, batch=16, rate=1e-2).reward_model
    quality = train_reward_model(
        model, tokenizer, Pairs(train=learnable(120, 0), held_out=learnable(30, 1) + flipped), cfg, seed=0
    )
    assert quality.accuracy == 0.75 and quality.clean.accuracy == 1.0


def test_centering_pins_the_zero_point():
    means = []
    for center in (0.0, 1.0):
        model, tokenizer = judge(seed=4)
        with torch.no_grad():
            model.base_model.norm.weight.add_(1.0)
        cfg = config(epochs=3, batch=16, rate=1e-2, center=center).reward_model
        train_reward_model(model, tokenizer, Pairs(train=learnable(120, 0), held_out=learnable(8, 1)), cfg, seed=0)
        texts = [text for pair in learnable(40, 3) for text in pair.texts]
        means.append(abs(score_texts(model, tokenizer, texts).mean().item()))
    assert means[1] < means[0] / 3


def test_calibration_bins():
    sure = torch.full((100,), math.log(4.0))  # confidence 0.8
    fit = measure(torch.cat([sure[:80], -sure[:20]]))
    assert fit.accuracy == 0.8 and fit.ece == pytest.approx(0.0, abs=1e-7) and len(fit.bins) == 1
    assert fit.bins[0].confidence == pytest.approx(0.8, abs=1e-7) and fit.bins[0].count == 100
    assert measure(torch.cat([sure[:30], -sure[:70]])).ece == pytest.approx(0.5, abs=1e-7)
    assert measure(torch.zeros(5)).accuracy == 0, "a tie is wrong"
    mixed = measure(torch.randn(1000, generator=seeding.generator(0)) * 3)
    assert sum(b.count for b in mixed.bins) == 1000 and mixed.log_loss > 0


def test_a_weak_model_stops_ppo_unless_allowed():
    fit = measure(torch.tensor([1.0, -1.0, 1.0, 1.0]))
    weak = Quality(labels=fit, clean=fit, train_accuracy=0.9, pairs=600, held_out_pairs=4, loss=(0.7,), seconds=1.0)
    require_quality(weak, config(threshold=0.75).reward_model)
    with pytest.raises(
        ConfigError, match="threshold asks for held-out pair accuracy 0.80 .* got 0.750 on 4 pairs; raise"
    ):
        require_quality(weak, config(threshold=0.8).reward_model)
    require_quality(weak, config(threshold=0.8, allow_weak_reward_model=True).reward_model)
