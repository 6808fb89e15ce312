"""What sharded models ask of those who call them: equally many calls on every rank, whatever its rows."""

from __future__ import annotations

import pytest
import torch
from tiny import PAD, STOP, prompts_of, tiny
from torch import nn

from ppo_lab.config.language import RewardConfig
from ppo_lab.core.distributions import categorical_logp, entropy
from ppo_lab.records import take
from ppo_lab.rlhf.assess import inputs_of, made_up
from ppo_lab.rlhf.generate import filled_up, generate
from ppo_lab.rlhf.logprobs import Head, _in_one_call, hidden_logprobs, tempered
from ppo_lab.rlhf.models.actor_critic import ActorCritic, ValueHead, WideLinear
from ppo_lab.rlhf.reward_model import score_texts
from ppo_lab.rlhf.score import Scorer, Source, call

OPTIONS = dict(max_new_tokens=9, stop_ids=[STOP, 5, 6], pad_id=PAD)
ROWS = [[3, 4, 7], [8], [9, 10], [11, 12, 13, 14], [3]]


class Counting(nn.Module):
    """A model that counts its forwards."""

    def __init__(self, model):
        super().__init__()
        self.model, self.calls = model, 0

    def forward(self, input_ids=None, past_key_values=None, **inputs):
        self.calls += 1
        return self.model(input_ids=input_ids, past_key_values=past_key_values, **inputs)


@pytest.mark.parametrize("batch", [None, 2])
@pytest.mark.parametrize("greedy", [False, True])
def test_in_step_says_the_same_and_always_takes_t_forwards(batch, greedy):
    model, prompts = Counting(tiny()), prompts_of(ROWS)
    noise = None if greedy else torch.rand(5, 9, generator=torch.Generator().manual_seed(0))
    usual = generate(model, prompts, noise=noise, batch=batch, **OPTIONS)
    assert usual.mask.sum(-1).min() < usual.mask.sum(-1).max(), "answers end at different lengths"
    model.calls = 0
    in_step = generate(model, prompts, noise=noise, batch=batch, in_step=True, **OPTIONS)
    assert model.calls == 9 * (1 if batch is None else 3)
    for name in ("tokens", "attention", "response", "mask", "stopped", "index"):
        assert torch.equal(getattr(usual, name), getattr(in_step, name)), name
    assert torch.allclose(usual.logp, in_step.logp, atol=1e-6)


def test_rows_are_filled_up_for_the_rank_with_most():
    prompts, noise = prompts_of(ROWS[:2]), torch.rand(2, 9)
    more, filler = filled_up(prompts, noise, 4)
    assert len(more) == 4 and filler.shape == (4, 9) and torch.equal(more.tokens[2], prompts.tokens[0])
    none, filler = filled_up(take(prompts, slice(0, 0)), noise[:0], 2)
    assert len(none) == 2 and filler.shape == (2, 9) and bool(none.attention.all())
    assert filled_up(prompts, None, 2) == (prompts, None)
    answers = generate(tiny(), none, noise=filler, **OPTIONS)
    assert answers.response.shape == (2, 9)


def test_a_made_up_row_is_as_wide_as_the_others():
    answers = generate(tiny(), prompts_of(ROWS), noise=None, **OPTIONS)
    row = made_up(take(inputs_of(answers), slice(0, 0)))
    policy = tiny()
    seen = ActorCritic(policy, ValueHead(32, generator=torch.Generator().manual_seed(0)))(
        row.tokens, row.attention, row.response
    )
    assert seen["logp"].shape == (1, 9) and bool(seen["logp"].isfinite().all() and seen["value"].isfinite().all())


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("size", [1, 3, 7, 100])
def test_chunks_in_one_call_equal_the_whole_with_all_gradients(bias, size):
    generator = torch.Generator().manual_seed(1)
    hidden = torch.randn(7, 6, generator=generator, dtype=torch.float64, requires_grad=True)
    targets = torch.randint(0, 11, (7,), generator=generator)
    head = Head(nn.Linear(6, 11, bias=bias).double(), scale=0.5, cap=3.0)

    def judge(logits, wanted):
        logits = tempered(logits, temperature=0.7, suppress=torch.tensor([10]))
        return categorical_logp(logits, wanted), entropy(logits)

    targets = targets.clamp(max=9)
    parameters = [hidden, *head.output.parameters()]
    weigh = torch.randn(2, 7, generator=generator, dtype=torch.float64)
    want = hidden_logprobs(hidden, head, targets, temperature=0.7, suppress=torch.tensor([10]))
    got = _in_one_call(head, hidden, targets, judge, size)
    assert all(torch.allclose(a, b, rtol=0, atol=1e-12) for a, b in zip(got, want, strict=True))
    theirs = torch.autograd.grad((torch.stack(want) * weigh).sum(), parameters)
    mine = torch.autograd.grad((torch.stack(got) * weigh).sum(), parameters)
    assert all(torch.allclose(a, b, rtol=0, atol=1e-12) for a, b in zip(mine, theirs, strict=True))
    assert "forward" not in vars(head.output), "the layer is itself again"
    with torch.no_grad():
        assert not _in_one_call(head, hidden, targets, judge, size)[0].requires_grad


def test_chunks_in_one_call_leave_frozen_weights_alone():
    head, hidden = Head(nn.Linear(4, 5).requires_grad_(False)), torch.randn(3, 4, requires_grad=True)
    logp, _ = _in_one_call(head, hidden, torch.tensor([0, 1, 2]), lambda x, t: (categorical_logp(x, t), entropy(x)), 2)
    logp.sum().backward()
    assert hidden.grad is not None and head.output.weight.grad is None


def test_value_layers_compute_in_float32_from_half_weights():
    layer, x = WideLinear(5, 1), torch.randn(3, 5)
    full = layer(x)
    assert torch.equal(full, nn.functional.linear(x, layer.weight, layer.bias))
    half = layer.bfloat16()(x.bfloat16())
    exact = x.bfloat16().double() @ layer.weight.double().T + layer.bias.double()
    assert half.dtype == torch.float32 and torch.allclose(half.double(), exact, atol=1e-6)
    assert layer.double()(x.double()).dtype == torch.float64


def test_a_rank_without_rows_asks_a_reward_model_as_often_as_the_others_and_nobody_else(monkeypatch):
    calls = []

    def ask(tokens, attention):
        calls.append(tokens.shape)
        return torch.zeros(len(tokens))

    assert score_texts(ask, None, [], batch=4, calls=3).shape == (0,) and calls == [(1, 1)] * 3

    def never(prompts, responses, **columns):
        return torch.stack([torch.tensor(float(len(r))) for r in responses])  # fails on none

    scorer = Scorer([Source("mine", never)], RewardConfig())
    assert [x.shape for x in scorer.opinions([], [], {}, 4)] == [(0,)]
    with pytest.raises(Exception, match="raised"):
        call("mine", lambda prompts, responses: torch.stack([]), ["p"], ["r"], {}, 4, 5.0)


def test_a_process_reward_keeps_its_shape_on_a_rank_without_rows():
    scorer = Scorer([Source("steps", lambda p, r: torch.ones(len(r), 4))], RewardConfig())
    assert scorer.opinions(["p"], ["r"], {}, 4)[0].shape == (1, 4)
    assert scorer.opinions([], [], {}, 4)[0].shape == (0, 4)
