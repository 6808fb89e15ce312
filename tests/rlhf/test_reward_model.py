"""Reward models: asked the same way by text and by ids, trained on pairs, measured, refused when weak."""

from __future__ import annotations

import math

import pytest
import torch
from tiny_encoder import save_encoder

from ppo_lab import seeding
from ppo_lab.config import ConfigError, RLHFConfig
from ppo_lab.config.base import build
from ppo_lab.config.language import PolicyConfig
from ppo_lab.rlhf.corpus import Corpus
from ppo_lab.rlhf.gold import grammatical_share, vader
from ppo_lab.rlhf.models.build import build_policy, build_reward_model, load_reward_model
from ppo_lab.rlhf.models.folders import save_folder
from ppo_lab.rlhf.reward_model import (
    Pair,
    Pairs,
    ScoreReader,
    answers_of,
    measure,
    preference_pairs,
    read_quality,
    require_quality,
    score_texts,
    score_tokens,
    train,
    train_reward_model,
)
from ppo_lab.rlhf.tokens import encode_texts, join, pad_id, pad_rows, word_tokenizer

WORDS = "the film is not very lovely great dull bad long and cast ."
TEXTS = [
    "the film is lovely .",
    "the cast is not very dull and the film is great .",
    "bad .",
    "not long and not dull .",
]


def judge(family: str = "llama", *, pad: str | None = "<pad>", dropout: float = 0.0, seed: int = 0):
    tokenizer = word_tokenizer([WORDS], pad=pad)
    cfg = PolicyConfig(family=family, layers=2, width=16, heads=2, context=48, dropout=dropout)
    return build_reward_model(build_policy(cfg, tokenizer, seed), seed=seed), tokenizer


def config(**reward_model) -> RLHFConfig:
    data = {
        "corpus": {"max_prompt_tokens": 8, "held_out": 4},
        "evaluation": {"prompts": 4},
        "reward_model": reward_model,
    }
    return build(RLHFConfig, data)


def corpus(n: int = 60) -> Corpus:
    words, rng = WORDS.split(), torch.Generator().manual_seed(0)
    texts = [" ".join(words[i] for i in torch.randint(len(words), (6,), generator=rng)) for _ in range(n)]
    half = n // 2
    return Corpus(train_texts=texts[:half], train_prompts=["the film is", "the cast is", "the"] * 4,
                  held_out_prompts=["film", "cast is"] * 2, held_out_texts=texts[half:])  # fmt: skip


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
    from ppo_lab.rlhf.generate import positions

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
    import json

    rows = [{"id": f"m{i}", "source": "movie", "rating": i % 9 - 4.0, "text": f"film number {i} is rather long"}
            for i in range(400)]  # fmt: skip
    (tmp_path / "reviews.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    rated = {"labels": "ratings", "pairs": 200, "held_out_pairs": 50, "min_gap": 2.0}
    data = {"corpus": {"kind": "human-reviews", "path": str(tmp_path)}, "reward_model": rated}
    pairs = preference_pairs(build(RLHFConfig, data), corpus(), seed=0)
    assert len(pairs.train) == 200 and all(pair.gap >= 2 and pair.prompt == "" for pair in pairs.train)
    texts = [{text for pair in side for text in pair.texts} for side in (pairs.train, pairs.held_out)]
    assert not texts[0] & texts[1]


def learnable(n: int, seed: int) -> list[Pair]:
    """Praise is chosen over blame, whatever surrounds it."""
    rng, made = torch.Generator().manual_seed(seed), []
    for i in range(n):
        a, b, c, d = (int(k) for k in torch.randint(2, (4,), generator=rng))
        praise, blame = ["lovely", "great"][a], ["dull", "bad"][b]
        made.append(Pair(prompt=["the film", "the cast"][c], chosen=f"is {['very ', ''][d]}{praise} .",
                         rejected=f"is {blame} and long .", gap=1.0, group=i))  # fmt: skip
    return made


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


def test_uneven_lengths_change_how_texts_are_read_not_what_they_score():
    model, tokenizer = judge()
    texts = [" ".join(["film"] * n) for n in (1, 2, 9, 30, 3, 9)]
    rows = encode_texts(tokenizer, texts, close=True)
    won, lost = train._scores(ScoreReader(model), rows, pad_id(tokenizer))
    wanted = score_texts(model, tokenizer, texts)
    assert torch.allclose(torch.cat([won, lost]), wanted, rtol=0, atol=1e-6)
    assert [len(b) for b in train._buckets([(0,) * n for n in (4, 6, 7, 10, 30, 31)])] == [2, 2, 2]


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
    from ppo_lab.rlhf.reward_model import Quality

    weak = Quality(labels=fit, clean=fit, train_accuracy=0.9, pairs=600, held_out_pairs=4, loss=(0.7,), seconds=1.0)
    require_quality(weak, config(threshold=0.75).reward_model)
    with pytest.raises(
        ConfigError, match="threshold asks for held-out pair accuracy 0.80 .* got 0.750 on 4 pairs; raise"
    ):
        require_quality(weak, config(threshold=0.8).reward_model)
    require_quality(weak, config(threshold=0.8, allow_weak_reward_model=True).reward_model)


def test_gold_reads_prompt_and_response_together():
    scores = vader(["the film", "the film is not"], ["is lovely .", "lovely ."], rating=[1, 2])
    assert scores.shape == (2,) and scores[0] > 0.5 and scores[1] < -0.4
    assert vader(["a lovely film"], [""]).item() == vader([""], ["a lovely film"]).item()
    assert math.isnan(grammatical_share([]))
    assert grammatical_share(["the cast of this film is lovely and it is long ."] * 3 + ["long"]) == 0.75
