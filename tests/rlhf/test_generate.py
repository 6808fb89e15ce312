"""Sampling: the inverse CDF, independence of batching, stop tokens, and agreement with the full forward."""

from __future__ import annotations

import pytest
import torch
from tiny import PAD, STOP, VOCABULARY, prompts_of, tiny

from ppo_lab import seeding
from ppo_lab.records import take
from ppo_lab.rlhf.generate import generate, inverse_cdf, positions, trim
from ppo_lab.rlhf.logprobs import hidden_logprobs, token_logprobs
from ppo_lab.rlhf.models.actor_critic import Reference

PROMPTS = [[5, 6, 7], [8], [9, 10, 11, 12, 13], [5, 5]]


def sample(model, prompts, *, steps=12, seed=0, step=3, **options):
    noise = seeding.uniforms(seed, step, range(len(prompts)), steps)
    options = dict(max_new_tokens=steps, stop_ids={STOP}, pad_id=PAD, noise=noise) | options
    return generate(model, prompts, **options)


def test_inverse_cdf_has_the_right_frequencies_and_never_draws_probability_zero():
    logits = torch.tensor([[0.0, -torch.inf, 1.0, 0.5, -torch.inf]]).expand(40_000, -1)
    uniform = (torch.arange(40_000, dtype=torch.float64) + 0.5) / 40_000  # a grid: frequencies are exact to 1/40,000
    counts = torch.bincount(inverse_cdf(logits, uniform), minlength=5) / 40_000
    assert torch.allclose(counts, logits[0].softmax(-1), atol=1e-4)  # the grid's own resolution
    edges = torch.tensor([0.0, 1 - 2**-53], dtype=torch.float64)
    assert inverse_cdf(torch.tensor([[-torch.inf, 0.0, 0.0, -torch.inf]] * 2), edges).tolist() == [1, 2]


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_text_does_not_depend_on_batching(family):
    model, prompts = tiny(family), prompts_of(PROMPTS)
    whole = sample(model, prompts)
    assert torch.equal(sample(model, prompts, batch=3).response, whole.response)
    one = [sample(model, take(prompts, slice(i, i + 1)), noise=seeding.uniforms(0, 3, [i], 12)) for i in range(4)]
    assert torch.equal(torch.cat([r.response for r in one]), whole.response)
    assert not torch.equal(sample(model, prompts, step=4).response, whole.response)


@pytest.mark.parametrize("family", ["llama", "gpt2"])
@pytest.mark.parametrize("temperature", [0.7, 1.0, 1.3])
def test_sampler_agrees_with_the_full_forward(family, temperature):
    model = tiny(family, dropout=0.1).train()
    responses = trim(sample(model, prompts_of(PROMPTS), temperature=temperature))
    assert model.training, "the caller's mode is given back"
    logp = Reference(model.eval())(responses.tokens, responses.attention, responses.response, temperature=temperature)
    assert torch.allclose(logp[responses.mask], responses.logp[responses.mask], rtol=0, atol=2e-5)  # float32 KV cache


def test_stop_token_ends_an_answer_and_counts():
    model, prompts = tiny("llama"), prompts_of(PROMPTS * 16)
    got = sample(model, prompts, steps=30, stop_ids={STOP, 7})
    for row, mask, stopped in zip(got.response.tolist(), got.mask.tolist(), got.stopped.tolist(), strict=True):
        length = sum(mask)
        ends = [i for i, token in enumerate(row[:length]) if token in (STOP, 7)]
        assert mask == [True] * length + [False] * (30 - length)
        assert ends == ([length - 1] if stopped else []) and (stopped or length == 30)
        assert row[length:] == [PAD] * (30 - length)
    assert got.stopped.any() and not got.stopped.all()


def test_pad_that_is_the_stop_token_changes_nothing():
    model, prompts = tiny("llama"), prompts_of(PROMPTS * 4)
    apart, same = sample(model, prompts), sample(model, prompts, pad_id=STOP)
    assert torch.equal(apart.mask, same.mask) and torch.equal(apart.logp, same.logp)
    assert torch.equal(apart.response[apart.mask], same.response[same.mask])


def test_greedy_takes_the_likeliest_and_suppressed_tokens_never_come():
    model, prompts = tiny("llama"), prompts_of(PROMPTS * 16)
    greedy = sample(model, prompts, noise=None, steps=4)
    assert torch.equal(greedy.response[:4], greedy.response[4:8])
    banned = torch.tensor([int(greedy.response[0, 0]), STOP])
    got = sample(model, prompts, suppress=banned)
    assert not torch.isin(got.response[got.mask], banned).any() and not got.stopped.any()


def test_bad_noise_and_empty_prompt_are_named():
    model, prompts = tiny("llama"), prompts_of(PROMPTS)
    with pytest.raises(ValueError, match=r"noise must be \(rows, max_new_tokens\) = \(4, 12\)"):
        sample(model, prompts, noise=torch.zeros(4, 3))
    hollow = prompts_of(PROMPTS, blank=2)
    with pytest.raises(ValueError, match="row 2"):
        sample(model, hollow)


def test_no_rows_give_an_empty_record():
    got = sample(tiny("llama"), take(prompts_of(PROMPTS), slice(0, 0)))
    assert got.response.shape == (0, 12) and len(got) == 0


def test_trim_keeps_every_valid_token():
    got = sample(tiny("llama"), prompts_of(PROMPTS, width=9), steps=30, stop_ids={STOP, 7, 8, 9})
    cut = trim(got)
    assert cut.response.shape[-1] == int(got.mask.sum(-1).max()) and cut.tokens.shape[-1] < got.tokens.shape[-1]
    assert torch.equal(cut.tokens[cut.attention], got.tokens[got.attention])
    assert torch.equal(cut.logp[cut.mask], got.logp[got.mask])


def test_positions_ignore_left_padding():
    attention = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]]).bool()
    assert positions(attention).tolist() == [[0, 0, 0, 1, 2], [0, 1, 2, 3, 4]]


def test_b05_one_temperature_for_sampler_policy_and_reference():
    logits, token = torch.tensor([[2.0, 1.0, 0.0]], dtype=torch.float64), torch.tensor([0])
    assert token_logprobs(logits, token, temperature=0.5).item() == pytest.approx(-0.142931628, abs=1e-8)
    assert token_logprobs(logits, token, temperature=1.0).item() == pytest.approx(-0.407605964, abs=1e-8)


@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test_chunked_logprobs_equal_the_plain_ones_with_gradients(chunk, monkeypatch):
    monkeypatch.setattr("ppo_lab.rlhf.logprobs.CHUNK_LOGITS", chunk * VOCABULARY)
    draw = seeding.generator("chunks")
    hidden = torch.randn(3, 5, 8, dtype=torch.float64, generator=draw, requires_grad=True)
    head = torch.nn.Linear(8, VOCABULARY, dtype=torch.float64)
    tokens = torch.randint(VOCABULARY, (3, 5), generator=draw)
    banned = torch.tensor([2])
    tokens[tokens == 2] = 3
    logp, nats = hidden_logprobs(hidden, head, tokens, temperature=0.7, suppress=banned)
    logits = (head(hidden) / 0.7).index_fill(-1, banned, -torch.inf)
    want = logits.log_softmax(-1)
    probs = want.exp()
    want_nats = -(probs * torch.where(probs > 0, want, 0.0)).sum(-1)
    picked = want.gather(-1, tokens[..., None])[..., 0]
    assert torch.allclose(logp, picked, atol=1e-12) and torch.allclose(nats, want_nats, atol=1e-12)
    weight = torch.randn(3, 5, dtype=torch.float64, generator=draw)
    got = torch.autograd.grad((logp * weight + nats).sum(), [hidden, head.weight])
    expected = torch.autograd.grad((picked * weight + want_nats).sum(), [hidden, head.weight])
    for a, b in zip(got, expected, strict=True):
        assert torch.isfinite(a).all() and torch.allclose(a, b, atol=1e-12)
