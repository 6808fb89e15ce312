"""What an iteration costs, in counts that no clock and no busy machine can change: forwards, tokens, steps, tensors.

Ceilings on calls are what was counted when they were written, and a tenth more: a change that goes beyond them pays for
something, and says for what by raising them.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from counting import watch
from small_runs import config
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from ppo_lab.rlhf import Run, logprobs
from ppo_lab.rlhf.logprobs import Head, hidden_logprobs

MADE = 5559  # tensors of one iteration, of which 4 optimizer steps


class Calls(TorchDispatchMode):
    """Operations that made a tensor of their own, and the largest of these."""

    def __init__(self) -> None:
        super().__init__()
        self.made, self.largest = 0, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        given = {x.untyped_storage().data_ptr() for x in args if isinstance(x, torch.Tensor)}
        for x in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(x, torch.Tensor) and x.untyped_storage().data_ptr() not in given:
                self.made += 1
                self.largest = max(self.largest, x.numel())
        return out


@pytest.fixture(scope="module")
def iteration(tmp_path_factory: pytest.TempPathFactory) -> tuple[Counter, Any, Run, int]:
    """Counts of the second iteration of a small run, its rollout, the run, and its largest tensor."""
    folder = tmp_path_factory.mktemp("counts")
    run = Run(config(steps=3, evaluation__every=100, checkpoint__every=100), folder=folder / "run")
    steps, counts = iter(run), Counter()
    next(steps)
    module, reference = run.learner.module, run.learner.frozen["reference"]  # type: ignore[attr-defined]
    watch(counts, "policy", module.policy.base_model, "input_ids")
    watch(counts, "critic", module.critic, "input_ids")
    watch(counts, "reference", reference.policy.base_model, "input_ids")
    watch(counts, "policy head", module.policy.get_output_embeddings(), "input")
    watch(counts, "reference head", reference.policy.get_output_embeddings(), "input")
    before = run.learner.optimizer_steps
    with Calls() as calls:
        next(steps)
    counts["optimizer steps"] = run.learner.optimizer_steps - before
    counts["tensors made"] = calls.made
    return counts, run.last_rollout.responses, run, calls.largest  # type: ignore[union-attr]


def test_each_model_reads_each_answer_as_often_as_it_must(iteration):
    counts, answers, run, _ = iteration
    epochs, minibatches = run.config.ppo.epochs, run.config.ppo.minibatches
    updates, decoded = epochs * minibatches, int(answers.mask.any(0).sum())
    assert counts["optimizer steps"] == updates
    assert counts["policy forwards"] == decoded + 1 + updates
    assert counts["critic forwards"] == 1 + updates
    assert counts["reference forwards"] == 1


def test_no_padding_column_no_last_token_no_finished_row_is_read(iteration):
    counts, answers, run, _ = iteration
    rows, width = answers.tokens.shape
    assert bool(answers.mask.any(0).all()), "columns that nobody answered in are trimmed"
    seen = rows * (width - 1)
    assert counts["critic tokens"] == (1 + run.config.ppo.epochs) * seen
    assert counts["reference tokens"] == seen
    prompt = run.parts.prompts.tokens.shape[-1]
    sampled = rows * prompt + int(answers.mask.sum()) - rows  # the prompt, then every token that has a successor
    assert counts["policy tokens"] == (1 + run.config.ppo.epochs) * seen + sampled


def test_the_prompt_gets_no_logits(iteration):
    counts, answers, run, _ = iteration
    assert counts["reference head tokens"] == answers.response.numel()
    looked = (1 + run.config.ppo.epochs) * answers.response.numel()
    assert counts["policy head tokens"] == looked + int(answers.mask.sum())


def test_tensors_stay_few_and_small(iteration):
    counts, answers, run, largest = iteration
    rows, width = answers.tokens.shape
    policy = run.learner.module.policy.config
    widest = max(policy.intermediate_size, policy.vocab_size, policy.hidden_size)
    corpus = run.parts.prompts.tokens.numel()
    assert largest <= max(rows * width * widest, policy.vocab_size * policy.hidden_size, corpus)
    assert counts["tensors made"] <= 1.1 * MADE


@pytest.mark.parametrize("trained", [True, False])
def test_logits_of_a_large_vocabulary_are_never_all_there(monkeypatch, trained):
    rows, width, words = 64, 8, 5000
    monkeypatch.setattr(logprobs, "CHUNK_LOGITS", rows * 1024)
    layer = nn.Linear(width, words, bias=False).requires_grad_(trained)
    hidden = torch.randn(rows, width, requires_grad=True)
    with Calls() as calls:
        hidden_logprobs(hidden, Head(layer), torch.arange(rows))[0].sum().backward()
    assert calls.largest <= max(rows * 256, layer.weight.numel()) < rows * words
