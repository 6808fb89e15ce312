"""Imitation: exact token weights, the EOS learned even where it pads, keyed order, and a loss that falls to entropy."""

from __future__ import annotations

import pytest
import torch

from ppo_lab.config import ConfigError
from ppo_lab.config.language import PolicyConfig, SFTConfig
from ppo_lab.rlhf.models.build import build_policy
from ppo_lab.rlhf.sft import Imitation, token_loss, train_sft
from ppo_lab.rlhf.tokens import encode_texts, pad_id, pad_rows, word_tokenizer

TEXTS = ["a b c", "a b d e f a", "c", "f e d c b a f e"]


def parts(family: str = "llama", *, pad: str | None = "<pad>", dropout: float = 0.0):
    tokenizer = word_tokenizer(["a b c d e f"], pad=pad)
    cfg = PolicyConfig(family=family, layers=2, width=16, heads=2, context=32, dropout=dropout)
    return build_policy(cfg, tokenizer, 0), tokenizer


def batch(tokenizer, texts=TEXTS):
    return pad_rows(encode_texts(tokenizer, texts, close=True), pad_id(tokenizer), side="right")


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_loss_is_the_mean_over_tokens_not_over_texts(family):
    model, tokenizer = parts(family)
    model = model.double()
    by_hand, count = 0.0, 0
    for text in TEXTS:
        ids = torch.tensor([encode_texts(tokenizer, [text], close=True)[0]])
        logp = model(input_ids=ids).logits.log_softmax(-1)
        by_hand -= logp[0, :-1].gather(-1, ids[0, 1:, None]).sum().item()
        count += ids.shape[-1] - 1
    assert token_loss(model, *batch(tokenizer)).item() == pytest.approx(by_hand / count, abs=1e-9)


def test_b03_the_true_eos_is_learned_and_padding_is_not():
    with_pad, without = parts(pad="<pad>"), parts(pad=None)
    tokens, attention = batch(without[1])
    ends = attention.sum(-1) - 1
    assert (tokens[torch.arange(4), ends] == without[1].eos_token_id).all()
    assert attention.sum().item() == sum(len(row) for row in encode_texts(without[1], TEXTS, close=True))
    losses = []
    for model, tokenizer in (with_pad, without):
        model = model.double()
        tokens, attention = batch(tokenizer)
        noisy = torch.where(attention, tokens, torch.randint_like(tokens, 3, len(tokenizer)))
        loss = token_loss(model, tokens, attention)
        assert loss.item() == token_loss(model, noisy, attention).item(), "what stands in the padding is never seen"
        cut = attention.clone()
        cut[torch.arange(4), ends] = False
        assert token_loss(model, tokens, cut).item() != loss.item(), "the EOS counts"
        losses.append(loss)
    assert all(loss.isfinite() for loss in losses)


@pytest.mark.parametrize("pad", ["<pad>", None])
def test_b03_a_model_learns_to_stop(pad):
    model, tokenizer = parts(pad=pad)
    figures = train_sft(model, tokenizer, ["a b c"] * 4, SFTConfig(steps=40, batch=4, rate=2e-2), seed=0)
    ids = torch.tensor([encode_texts(tokenizer, ["a b c"])[0]])
    assert model(input_ids=ids).logits[0, -1].argmax().item() == tokenizer.eos_token_id
    assert figures["loss_last"] < 0.05 < figures["loss_first"]


def test_training_is_keyed_and_leaves_the_global_state():
    runs, before = [], torch.get_rng_state()
    for seed in (0, 0, 1):
        model, tokenizer = parts("gpt2", dropout=0.2)
        figures = train_sft(model, tokenizer, TEXTS, SFTConfig(steps=6, batch=2), seed=seed)
        assert not model.training
        runs.append((figures["loss"], [p.clone() for p in model.parameters()]))
        torch.rand(1)
        torch.set_rng_state(before)
    assert runs[0][0] == runs[1][0] and all(map(torch.equal, runs[0][1], runs[1][1]))
    assert runs[0][0] != runs[2][0] and len(runs[0][0]) == 6


def test_dropout_is_on_while_training():
    losses = []
    for dropout in (0.0, 0.5):
        model, tokenizer = parts("gpt2", dropout=dropout)
        losses.append(train_sft(model, tokenizer, TEXTS, SFTConfig(steps=1, batch=4), seed=0)["loss"])
    assert losses[0] != losses[1]


def test_every_text_is_seen_once_an_epoch(monkeypatch):
    model, tokenizer = parts()
    seen = []
    monkeypatch.setattr(
        "ppo_lab.rlhf.sft.pad_rows", lambda rows, *a, **k: seen.extend(map(tuple, rows)) or pad_rows(rows, *a, **k)
    )
    train_sft(model, tokenizer, TEXTS, SFTConfig(steps=8, batch=2), seed=0)
    wanted = sorted(map(tuple, encode_texts(tokenizer, TEXTS, close=True)))
    assert [sorted(seen[at : at + 4]) for at in range(0, 16, 4)] == [wanted] * 4


def test_frozen_layers_stay():
    from ppo_lab.rlhf.models.build import train_last_layers

    model, tokenizer = parts()
    train_last_layers(model, 1)
    before = {name: p.clone() for name, p in model.named_parameters()}
    train_sft(model, tokenizer, TEXTS, SFTConfig(steps=3, batch=2), seed=0)
    moved = {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}
    assert moved == {name for name, p in model.named_parameters() if p.requires_grad} != set()


def test_no_steps_leave_the_model_and_bad_corpora_are_named():
    model, tokenizer = parts()
    before = [p.clone() for p in model.parameters()]
    assert train_sft(model, tokenizer, [], SFTConfig(steps=0), seed=0)["loss"] == []
    assert all(map(torch.equal, before, model.parameters()))
    with pytest.raises(ConfigError, match="sft.steps above 0 needs texts to imitate, got none"):
        train_sft(model, tokenizer, [], SFTConfig(steps=1), seed=0)
    with pytest.raises(
        ConfigError, match="policy.context must hold every text with its EOS, 42 tokens in text 1, got 32"
    ):
        train_sft(model, tokenizer, ["a", "a " * 40], SFTConfig(steps=1), seed=0)


def test_one_step_at_a_time_is_the_same_training():
    """`train_sft` with its schedule written out; at rate 0 nothing moves."""
    cfg = SFTConfig(steps=3, batch=2, rate=1e-2)
    whole, tokenizer = parts()
    figures = train_sft(whole, tokenizer, TEXTS, cfg, seed=0)
    model, _ = parts()
    model.train()
    step = Imitation(model, tokenizer, TEXTS, cfg, seed=0)
    losses = [float(step(1e-2 * share)) for share in (1.0, 0.75, 0.25)]  # half a cosine from 1 at 4 to 0
    assert losses == pytest.approx(figures["loss"], abs=1e-6) and step.tokens == figures["tokens"]
    assert all(map(torch.equal, model.parameters(), whole.parameters()))
    still, before = Imitation(model, tokenizer, TEXTS, cfg, seed=0), [p.clone() for p in model.parameters()]
    still(0.0)
    assert all(map(torch.equal, model.parameters(), before))
