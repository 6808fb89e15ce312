"""Length: rewards by sentence, prices by length, scores in parts, figures by thirds of the cap."""

from __future__ import annotations

import random

import pytest
import torch
from small_runs import config

from ppo_lab.config import ConfigError, build
from ppo_lab.config.language import CorpusConfig, KLConfig, RLHFConfig
from ppo_lab.core.masking import length_mask, masked_sum
from ppo_lab.records import Responses, TextRollout
from ppo_lab.rlhf import Run
from ppo_lab.rlhf.corpus import grammar, load_corpus
from ppo_lab.rlhf.gold import grammatical_share
from ppo_lab.rlhf.lengths import bucket_mean, buckets_of, of_lengths
from ppo_lab.rlhf.moods import blame, mean_mood, moods, praise, sentences_of
from ppo_lab.rlhf.placing import by_sentence, sentence_ends
from ppo_lab.rlhf.rewards import kl_price, token_rewards
from ppo_lab.rlhf.steps import rewards_of

TEXT = "the cast is lovely . the plot is dull . it is short . the score is perfect"


def test_three_rewards_of_the_same_moods() -> None:
    m = moods("the cast", TEXT.removeprefix("the cast "))
    assert len(m) == len(sentences_of(TEXT)) == 4 and m[0] > 0 > m[1] and m[2] == 0
    both = ["the cast"], [TEXT.removeprefix("the cast ")]
    assert float(mean_mood(*both)) == pytest.approx(sum(m) / 4, abs=1e-6)  # float32
    assert float(praise(*both)) == pytest.approx(m[0] + m[3], abs=1e-6)
    assert float(blame(*both)) == pytest.approx(m[1], abs=1e-6)
    assert float(praise(*both) + blame(*both)) == pytest.approx(sum(m), abs=1e-6)
    assert [float(f([""], [""])) for f in (mean_mood, praise, blame)] == [0, 0, 0]


def test_what_another_sentence_is_worth() -> None:
    rng = random.Random(0)
    for _ in range(20):
        text, more = (grammar.write(rng, sentences=n) for n in (2, 1))
        one, longer, twice = [text], [f"{text} {more}"], [f"{text} {text}"]
        assert float(praise([""], longer)) >= float(praise([""], one)) >= 0 >= float(blame([""], one))
        assert float(blame([""], longer)) <= float(blame([""], one))
        assert float(mean_mood([""], twice)) == pytest.approx(float(mean_mood([""], one)), abs=1e-6)


def test_a_nat_is_priced_by_the_length_of_its_answer() -> None:
    mask = length_mask(torch.tensor([2, 6]), steps=6)
    draw = torch.Generator().manual_seed(0)
    logp, ref = (torch.randn(2, 6, generator=draw, dtype=torch.float64) for _ in range(2))
    score = torch.tensor([1.0, -2.0], dtype=torch.float64)
    prices = kl_price(0.1, mask.sum(-1), reference_length=4.0)
    assert prices.tolist() == pytest.approx([0.2, 0.4 / 6], abs=1e-7)
    total = token_rewards(score, logp, ref, mask, beta=prices).sum(-1)
    kl = masked_sum(logp - ref, mask, dim=-1)
    torch.testing.assert_close(total, score - 0.1 * 4 / mask.sum(-1) * kl, rtol=0, atol=1e-6)
    with pytest.raises(ValueError, match="reference_length"):
        kl_price(0.1, mask.sum(-1), reference_length=-1.0)
    with pytest.raises(ValueError, match="kl.reference_length needs kl.placement reward .* got loss with 4"):
        KLConfig(placement="loss", estimator="k2", reference_length=4.0)


def answers(lengths: list[int], steps: int) -> Responses:
    """Two prompt tokens, then 1, 2, 3, …; all were stopped."""
    mask, rows = length_mask(torch.tensor(lengths), steps=steps), torch.arange(len(lengths))
    response = torch.arange(1, steps + 1).expand(len(lengths), -1) * mask
    prompt = torch.full((len(lengths), 2), 9)
    return Responses(
        tokens=torch.cat([prompt, response], -1), attention=torch.cat([prompt == 9, mask], -1), response=response,
        mask=mask, stopped=rows > 0, logp=torch.zeros(mask.shape), index=rows, policy_version=rows,
    )  # fmt: skip


def test_each_sentence_earns_what_it_changed() -> None:
    given = answers([5, 7, 1], 7)
    ends = torch.zeros(3, 7, dtype=torch.bool)
    ends[0, 1] = ends[0, 4] = ends[1, 2] = ends[1, 3] = ends[1, 6] = ends[2, 0] = True
    asked: list[Responses] = []

    def score(some: Responses) -> torch.Tensor:  # the square of the number of tokens
        asked.append(some)
        return some.mask.sum(-1).double() ** 2

    whole = given.mask.sum(-1).double() ** 2
    parts = by_sentence(given, ends, whole, score)
    assert parts[0].tolist() == [0, 4, 0, 0, 21, 0, 0]
    assert parts[1].tolist() == [0, 0, 9, 7, 0, 0, 33] and parts[2].tolist() == [1, 0, 0, 0, 0, 0, 0]
    assert torch.equal(parts.sum(-1), whole) and len(asked) == 2, "the last sentence is the whole, which is known"
    first = asked[0]
    assert first.stopped.tolist() == [True, True, True] and torch.equal(first.attention[:, 2:], first.mask)
    assert asked[1].stopped.tolist() == [False, True, True], "a whole answer that was cut stays cut"


def test_thirds_of_the_cap() -> None:
    assert buckets_of(torch.tensor([0, 1, 2, 3, 4, 5]), cap=5).tolist() == [0, 0, 1, 1, 2, 2]
    x = torch.tensor([[1.0, 2.0, float("nan")], [5.0, 6.0, 7.0]])
    mask = length_mask(torch.tensor([2, 3]), steps=3)
    assert bucket_mean(x, mask, torch.tensor([0, 2])) == [1.5, None, 6.0]
    assert bucket_mean(x, mask, torch.tensor([1, 1])) == [None, 21 / 5, None]


def test_figures_by_length_ignore_padding_and_centre_where_the_update_does() -> None:
    given = answers([2, 6], 6)
    zero = torch.zeros(2, 6, dtype=torch.float64)
    logp = torch.where(given.mask, 0.5, float("nan")).double()
    rollout = TextRollout(responses=given, old_logp=logp, forward_logp=logp, ref_logp=zero, value=zero, entropy=zero,
                          raw_score=zero[:, 0], score=zero[:, 0])  # fmt: skip
    advantage = torch.tensor([[1.0, 1.0, 9, 9, 9, 9], [2.0, 2.0, 2.0, -1.0, -1.0, 3.0]], dtype=torch.float64)
    reward = torch.where(given.mask, 0.25, float("nan")).double()
    plain, centred = (of_lengths(rollout, reward, advantage, cap=6, centred=c) for c in (False, True))
    assert (plain.answers_short, plain.answers_middle, plain.answers_long) == (0.5, 0.0, 0.5)
    assert plain.pushed_down_short == 0 and centred.pushed_down_short == 1, "below the mean of 9/8"
    assert plain.pushed_down_long == centred.pushed_down_long == pytest.approx(1 / 3)
    assert plain.pushed_down_middle is None and plain.reward_token_long == plain.reward_token_short == 0.25
    assert plain.ref_kl_token_short == pytest.approx(0.5, abs=1e-12)


LONG = {"corpus__sentences": (1, 3), "policy__context": 64, "sampling__max_new_tokens": 24}
NEUTRAL = {"sources": [{"kind": "callable", "path": "ppo_lab.rlhf.moods:praise"}], "normalize": "none"}


@pytest.mark.parametrize("placement", ["last", "spread", "sentences"])
def test_a_run_places_the_score_and_keeps_its_sum(tmp_path, placement) -> None:
    run = Run(config(steps=1, reward={**NEUTRAL, "placement": placement}, **LONG), folder=tmp_path / "run")
    step = next(iter(run))
    rollout, mask = run.last_rollout, run.last_rollout.responses.mask
    placed = rewards_of(rollout, beta=0.0, cfg=run.config.kl, placement=placement)
    torch.testing.assert_close(placed.sum(-1), rollout.score.to(placed.dtype), rtol=0, atol=1e-5)
    assert (rollout.parts is not None) == (placement == "sentences") and bool((placed[~mask] == 0).all())
    if placement == "sentences":
        ends = sentence_ends(run.parts.tokenizer, rollout.responses.response, mask)
        assert bool((placed[~ends] == 0).all()) and bool(ends.any(-1).all())
    elif placement == "spread":
        assert float((placed.amax(-1) - placed.amin(-1))[mask.all(-1)].abs().max() if mask.all(-1).any() else 0) < 1e-6
    else:
        assert int((placed != 0).sum(-1).max()) <= 1
    assert step.lengths.answers_short + step.lengths.answers_middle + step.lengths.answers_long == pytest.approx(1)


def test_parts_are_asked_for_by_name(tmp_path) -> None:
    run = Run(config(steps=1, reward=NEUTRAL, **LONG), folder=tmp_path / "run")
    next(iter(run))
    with pytest.raises(ValueError, match="placement sentences needs a score in parts, got none"):
        rewards_of(run.last_rollout, beta=0.0, cfg=run.config.kl, placement="sentences")


def test_score_over_length_and_the_priced_kl_in_a_run(tmp_path) -> None:
    plain = Run(config(steps=1, reward=NEUTRAL, **LONG), folder=tmp_path / "a")
    other = Run(config(steps=1, reward={**NEUTRAL, "divide_by": "length"}, kl={"reference_length": 12.0}, **LONG),
                folder=tmp_path / "b")  # fmt: skip
    next(iter(plain)), next(iter(other))
    length = plain.last_rollout.responses.mask.sum(-1)
    assert torch.equal(plain.last_rollout.responses.response, other.last_rollout.responses.response)
    torch.testing.assert_close(other.last_rollout.score * length, plain.last_rollout.score, rtol=0, atol=1e-6)
    assert torch.equal(other.last_rollout.raw_score, plain.last_rollout.raw_score)


def test_texts_of_a_range_of_sentences() -> None:
    cfg = CorpusConfig(sentences=(1, 4), size=60, held_out=8)
    counts = {text.count(".") for text in load_corpus(cfg, seed=0).train_texts}
    assert counts == {1, 2, 3, 4}
    with pytest.raises(ConfigError, match=r"corpus.sentences must be \[fewest, most\], got \[4, 1\]; use \[1, 4\]"):
        load_corpus(cfg.model_copy(update={"sentences": (4, 1)}), seed=0)
    with pytest.raises(ConfigError, match="corpus.sentences"):
        build(RLHFConfig, {"corpus": {"sentences": 0}})


def test_what_a_cut_text_finished_is_judged() -> None:
    right = "the cast of this film is lovely and it is long ."
    assert grammatical_share([f"{right} the songs of"], sentences=(1, 4)) == 1.0
    assert grammatical_share([f"{right} the songs of ."], sentences=(1, 4)) == 0.0
    assert grammatical_share(["the songs of", right], sentences=(1, 4)) == 0.5
