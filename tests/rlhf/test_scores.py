"""Asking a reward model: the same score by text and by ids, whatever the padding, the batch, the tokenizer."""

from __future__ import annotations

import math

import pytest
import torch
from tiny_reward import TEXTS, WORDS, config, judge, save_encoder

from ppo_lab.config.language import PolicyConfig
from ppo_lab.rlhf.generate import positions
from ppo_lab.rlhf.gold import grammatical_share, vader
from ppo_lab.rlhf.models.build import build_policy, load_reward_model
from ppo_lab.rlhf.reward_model import (
    Pair,
    Pairs,
    ScoreReader,
    score_texts,
    score_tokens,
    train,
    train_reward_model,
)
from ppo_lab.rlhf.tokens import encode_texts, join, pad_id, pad_rows, word_tokenizer


def by_hand(model, tokenizer, text: str) -> float:
    """One unpadded row through the trunk and the head."""
    ids = torch.tensor(
        [[tokenizer.bos_token_id, *tokenizer(text, add_special_tokens=False).input_ids, tokenizer.eos_token_id]]
    )
    return model.score(model.base_model(input_ids=ids).last_hidden_state[0, -1]).item()


@pytest.mark.parametrize("family", ["llama", "gpt2"])
@pytest.mark.parametrize("pads", [0, 1, 2, 7])
def test_b01_left_padding_moves_no_score_and_no_logit(family, pads):
    model, tokenizer = judge(family)
    model, fill = model.double(), pad_id(tokenizer)
    policy = build_policy(PolicyConfig(family=family, layers=2, width=16, heads=2, context=48), tokenizer, 3).double()
    row = encode_texts(tokenizer, [TEXTS[1]], close=True)[0]
    tokens = torch.tensor([[fill] * pads + row])
    attention = torch.tensor([[False] * pads + [True] * len(row)])
    plain = torch.tensor([row])
    score = ScoreReader(model)(tokens, attention)
    assert score.item() == pytest.approx(ScoreReader(model)(plain, torch.ones_like(plain).bool()).item(), abs=1e-6)
    assert score.item() == pytest.approx(by_hand(model, tokenizer, TEXTS[1]), abs=1e-6)
    logits = policy(input_ids=tokens, attention_mask=attention.long(), position_ids=positions(attention)).logits
    assert torch.allclose(logits[:, pads:], policy(input_ids=plain).logits, rtol=0, atol=1e-9)


@pytest.mark.parametrize("family", ["llama", "gpt2"])
@pytest.mark.parametrize("pad", ["<pad>", None])
def test_scores_depend_on_the_text_alone(family, pad):
    model, tokenizer = judge(family, pad=pad, dropout=0.3)
    model.train()
    one = [by_hand(model.eval(), tokenizer, text) for text in TEXTS]
    model.train()
    for batch in (1, 3, 64):
        assert score_texts(model, tokenizer, TEXTS, batch=batch).tolist() == pytest.approx(one, abs=1e-6)
    assert model.training, "the caller's mode is given back"
    rows = encode_texts(tokenizer, TEXTS, close=True)
    for side in ("left", "right"):
        tokens, attention = pad_rows(rows, pad_id(tokenizer), side=side)
        assert score_tokens(model, tokens, attention, eos=tokenizer.eos_token_id).tolist() == pytest.approx(
            one, abs=1e-6
        )


def test_b03_the_score_is_read_at_the_eos_even_where_it_pads():
    (apart, a), (same, b) = judge(pad="<pad>"), judge(pad=None)
    for model, tokenizer in ((apart, a), (same, b)):
        tokens, attention = pad_rows(encode_texts(tokenizer, TEXTS, close=True), pad_id(tokenizer), side="right")
        hidden = model.base_model(input_ids=tokens, attention_mask=attention.long()).last_hidden_state
        ends = attention.sum(-1) - 1
        assert (tokens[torch.arange(4), ends] == tokenizer.eos_token_id).all()
        right = model.score(hidden)[torch.arange(4), ends, 0]
        assert torch.allclose(ScoreReader(model)(tokens, attention), right, rtol=0, atol=1e-6)
    heads = same(input_ids=tokens, attention_mask=attention.long()).logits[:, 0]
    assert not torch.allclose(heads, right, rtol=0, atol=1e-3), "transformers' own forward reads another token here"


@pytest.mark.parametrize("pad", ["<pad>", None])
def test_sampled_rows_score_like_their_text_also_when_cut_at_the_cap(pad):
    model, tokenizer = judge(pad=pad)
    eos, fill = tokenizer.eos_token_id, pad_id(tokenizer)
    ids = tokenizer("the film is great .").input_ids
    stopped, cut = [fill, fill, *ids, eos, fill], [fill, fill, *ids, fill, fill]
    attention = torch.tensor([[0, 0] + [1] * 7 + [0], [0, 0] + [1] * 6 + [0, 0]]).bool()
    scores = score_tokens(model, torch.tensor([stopped, cut]), attention, eos=eos)
    full = score_tokens(model, torch.tensor([cut])[:, :8], attention[1:, :8], eos=eos)  # no column left for the EOS
    wanted = score_texts(model, tokenizer, ["the film is great ."]).item()
    assert [*scores.tolist(), *full.tolist()] == pytest.approx([wanted] * 3, abs=1e-6)


def test_encoders_are_read_by_their_own_forward(tmp_path):
    tokenizer = word_tokenizer(["a b c d e f"])
    model = load_reward_model(save_encoder(tmp_path, tokenizer), seed=0)
    texts = ["a b", "c d e f a b", "f"]
    rows = encode_texts(tokenizer, texts, close=True)
    one = [model(input_ids=torch.tensor([row])).logits.item() for row in rows]
    assert score_texts(model, tokenizer, texts, batch=2).tolist() == pytest.approx(one, abs=1e-6)


def test_b28_a_model_with_other_ids_scores_the_text():
    model, tokenizer = judge()
    permuted = word_tokenizer(WORDS.split() + ["aardvark"], pad=None)
    ids = [permuted(text).input_ids for text in TEXTS]
    decoded = [permuted.decode(row, skip_special_tokens=True) for row in ids]
    direct = score_texts(model, tokenizer, TEXTS)
    assert torch.equal(score_texts(model, tokenizer, decoded), direct)
    wrong = score_tokens(model, *pad_rows(ids, 0, side="right"), eos=permuted.eos_token_id)
    assert not torch.allclose(wrong, direct, rtol=0, atol=1e-2), "the policy's ids would mean other words"


def test_b30_training_and_scoring_read_the_same_ids(monkeypatch):
    import ppo_lab.rlhf.reward_model.score as score

    model, tokenizer = judge()
    seen: dict[str, set] = {"train": set(), "score": set()}

    def spy(where):
        return lambda rows, *args, **options: seen[where].update(map(tuple, rows)) or pad_rows(rows, *args, **options)

    pairs = [Pair(prompt="the film", chosen=f"is {w} .", rejected="is bad .", gap=1.0, group=i)
             for i, w in enumerate("lovely great long dull".split() * 5)]  # fmt: skip
    monkeypatch.setattr(train, "pad_rows", spy("train"))
    monkeypatch.setattr(score, "pad_rows", spy("score"))
    train_reward_model(
        model, tokenizer, Pairs(train=pairs, held_out=pairs[:4]), config(epochs=1, batch=8).reward_model, seed=0
    )
    score_texts(model, tokenizer, [join("the film", " is lovely .")])
    assert seen["train"] == seen["score"] and len(seen["train"]) == 5
    assert all(row.count(tokenizer.bos_token_id) == row.count(tokenizer.eos_token_id) == 1 for row in seen["train"])


def test_texts_that_cannot_be_read_are_named():
    model, tokenizer = judge()
    tokenizer.model_max_length = 7
    with pytest.raises(ValueError, match="text 1 must have at most the 7 tokens of the reward model, got 14"):
        score_texts(model, tokenizer, TEXTS)
    assert score_texts(model, tokenizer, []).shape == (0,)


def test_uneven_lengths_change_how_texts_are_read_not_what_they_score():
    model, tokenizer = judge()
    texts = [" ".join(["film"] * n) for n in (1, 2, 9, 30, 3, 9)]
    rows = encode_texts(tokenizer, texts, close=True)
    won, lost = train._scores(ScoreReader(model), rows, pad_id(tokenizer))
    wanted = score_texts(model, tokenizer, texts)
    assert torch.allclose(torch.cat([won, lost]), wanted, rtol=0, atol=1e-6)
    assert [len(b) for b in train._buckets([(0,) * n for n in (4, 6, 7, 10, 30, 31)])] == [2, 2, 2]


def test_gold_reads_prompt_and_response_together():
    scores = vader(["the film", "the film is not"], ["is lovely .", "lovely ."], rating=[1, 2])
    assert scores.shape == (2,) and scores[0] > 0.5 and scores[1] < -0.4
    assert vader(["a lovely film"], [""]).item() == vader([""], ["a lovely film"]).item()
    assert math.isnan(grammatical_share([]))
    assert grammatical_share(["the cast of this film is lovely and it is long ."] * 3 + ["long"]) == 0.75
