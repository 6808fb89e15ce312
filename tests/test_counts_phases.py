"""What each station of an iteration costs, in counts and bytes; and that the guard sees what it is there for.

Counts are exact and derived from the config. Bytes at a peak and numbers of operations are ceilings: what was counted
when they were written, and a twentieth more. Each bad habit is planted, and must fail the guard.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from control.small_control import run as control_run
from counting import Live, count, watch
from torch import Tensor

from ppo_lab.records import Responses
from ppo_lab.rlhf import Run, train
from ppo_lab.rlhf.models import actor_critic
from ppo_lab.rlhf.tokens import encode_texts, join

SLACK = 1.05
PEAKS = {"rollout": 216_584, "scoring": 612_592, "update": 713_866}  # bytes above what was there before
CALLS = {"rollout": 2_430, "scoring": 1_024, "update": 10_307}  # operations that torch dispatched


def same(counts: Counter, name: str, wanted: int) -> None:
    """A count and what the config asks for."""
    assert counts[name] == wanted, f"{name}: counted {counts[name]}, the config asks for {wanted}"


def guard(counts: Counter, answers: Responses, run: Run) -> None:
    """Every count of the second iteration of `counting.with_reward_model`, with where it comes from."""
    cfg, (rows, width) = run.config.ppo, answers.tokens.shape
    steps, prompt = answers.response.shape[-1], run.parts.prompts.tokens.shape[-1]
    valid = int(answers.mask.sum())
    assert width == prompt + steps and rows == run.config.sampling.prompts * run.config.sampling.samples

    updates = cfg.epochs * cfg.minibatches  # optimizer steps, and each looks at rows / minibatches
    micro = -(-rows // cfg.minibatches // cfg.micro_batch)  # forwards a minibatch
    same(counts, "optimizer steps", updates)
    same(counts, "reward forwards", 1)  # all rows fit into reward.batch
    same(counts, "reference forwards", 1)  # once an answer batch, not once an epoch
    same(counts, "critic forwards", 1 + updates * micro)  # scoring, then the update
    decoded = int(answers.mask.any(0).sum())  # the prompt gives the first token, each token but the last the next
    same(counts, "policy forwards", decoded + 1 + updates * micro)

    looked = rows * (width - 1)  # padding included; the last token predicts nothing
    same(counts, "reference tokens", looked)
    same(counts, "critic tokens", (1 + cfg.epochs) * looked)
    same(counts, "policy tokens", rows * prompt + valid - rows + (1 + cfg.epochs) * looked)
    texts = [join(*both) for both in zip(run.texts.prompts_of(answers), run.texts.responses_of(answers), strict=True)]
    lengths = [len(row) for row in encode_texts(run.texts.tokenizer, texts, close=True)]
    same(counts, "reward valid tokens", sum(lengths))
    same(counts, "reward tokens", rows * max(lengths))

    same(counts, "reference head tokens", rows * steps)  # output-layer rows: no logits on the prompt
    same(counts, "policy head tokens", valid + (1 + cfg.epochs) * rows * steps)
    for phase, most in PEAKS.items():
        assert 0 < counts[f"{phase} peak"] <= SLACK * most, (phase, counts[f"{phase} peak"])
    for phase, most in CALLS.items():
        assert 0 < counts[f"{phase} calls"] <= SLACK * most, (phase, counts[f"{phase} calls"])


def test_an_iteration_costs_what_the_config_says(tmp_path):
    guard(*count(tmp_path / "run"))


def twice(run: Run, patch: pytest.MonkeyPatch) -> None:
    """A second policy pass in every forward."""
    forward = run.learner.forward
    patch.setattr(run.learner, "forward", lambda **inputs: (forward(**inputs), forward(**inputs))[1])


def an_epoch(run: Run, patch: pytest.MonkeyPatch) -> None:
    """The reference looks again in each epoch."""
    update = train.ppo_update

    def slow(learner: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
        for _ in range(run.config.ppo.epochs):
            learner.score("reference", tokens=batch.inputs.tokens, attention=batch.inputs.attention,
                          response=batch.inputs.response)  # fmt: skip
        return update(learner, batch, *args, **kwargs)

    patch.setattr(train, "ppo_update", slow)


def kept_logits(run: Run, patch: pytest.MonkeyPatch) -> None:
    """Logits of the whole vocabulary, in float32, are kept from the rollout's scoring to the end of the step."""
    found, usual = [], actor_critic.hidden_logprobs

    def hoarding(hidden: Tensor, head: Any, tokens: Tensor, **options: Any) -> Any:
        with torch.no_grad():
            found.append(torch.log_softmax(head(hidden).float(), -1))
        return usual(hidden, head, tokens, **options)

    patch.setattr(actor_critic, "hidden_logprobs", hoarding)


def prompt_logits(run: Run, patch: pytest.MonkeyPatch) -> None:
    """The output layer reads the prompt, too, and what it says of it is thrown away."""
    usual = actor_critic.response_states

    def whole(trunk: Any, tokens: Tensor, attention: Tensor, steps: int, **options: Any) -> Tensor:
        if trunk is run.learner.frozen["reference"].policy.base_model:  # type: ignore[attr-defined]
            run.learner.frozen["reference"].policy.get_output_embeddings()(  # type: ignore[attr-defined]
                torch.zeros(*tokens.shape, trunk.config.hidden_size))  # fmt: skip
        return usual(trunk, tokens, attention, steps, **options)

    patch.setattr(actor_critic, "response_states", whole)


BAD: dict[Callable[[Run, pytest.MonkeyPatch], None], str] = {
    twice: "critic forwards", an_epoch: "reference forwards", kept_logits: "head tokens", prompt_logits: "head tokens",
}  # fmt: skip


@pytest.mark.parametrize("plant", BAD, ids=lambda plant: plant.__name__)
def test_bad_habits_are_seen(plant, tmp_path):
    with pytest.raises(AssertionError, match=BAD[plant]):
        guard(*count(tmp_path / "run", plant))


def test_logits_that_are_kept_are_seen_by_their_bytes_alone(tmp_path):
    counts, answers, run = count(tmp_path / "run", kept_logits)
    vocabulary = run.learner.module.policy.config.vocab_size
    one = 4 * answers.response.numel() * vocabulary  # bytes of the logits of all answers
    assert counts["update peak"] > SLACK * PEAKS["update"]
    assert counts["update peak"] > PEAKS["update"] + run.config.ppo.epochs * one - one


def test_live_bytes_go_when_nobody_holds_them():
    with Live() as live:
        x = torch.zeros(1000, requires_grad=True)
        y = (x * 2).exp()  # exp keeps its result for the backward pass, the product is let go
        assert live.now == 2 * 4000 and live.peak == 3 * 4000
        view = y.view(10, 100)
        del y
        assert live.now == 2 * 4000, "a view holds its storage"
        del view
        assert live.now == 4000 and live.reset() == 4000 == live.peak


CONTROL = {"calls": 1_893, "peak": 17_575}


def control_counts(folder: Path, *, plant: bool = False) -> tuple[Counter, Any]:
    """The second iteration of a control run in counts."""
    run, counts = control_run(folder, "evaluation.every=100", "checkpoint.every=100"), Counter()
    steps = iter(run)
    next(steps)
    module: Any = run.learner.module
    for name in ("policy", "value"):
        watch(counts, name, getattr(module, name), "input")
    if plant:
        forward = run.learner.forward
        run.learner.forward = lambda **inputs: (forward(**inputs), forward(**inputs))[1]  # type: ignore[method-assign]
    before, live = run.learner.optimizer_steps, Live()
    gc.collect()
    with live:
        next(steps)
    counts |= Counter({"optimizer steps": run.learner.optimizer_steps - before, "calls": live.calls, "peak": live.peak})
    run.close()
    return counts, run


def control_guard(counts: Counter, run: Any) -> None:
    """T steps in N environments, then epochs over T·N rows in minibatches, then one look at how far the policy is."""
    cfg, rows = run.config, run.config.rows
    updates = cfg.ppo.epochs * cfg.ppo.minibatches
    valid = int(run.last.rollout.mask.sum())
    assert len(run.last_batch) == valid < rows  # steps that only reset an environment are not learnt from
    same(counts, "optimizer steps", updates)
    same(counts, "policy forwards", cfg.rollout + updates + 1)
    same(counts, "policy tokens", rows + cfg.ppo.epochs * valid + valid)
    same(counts, "value forwards", 1 + updates)  # all columns and one more at once, then the update
    same(counts, "value tokens", rows + cfg.env.count + cfg.ppo.epochs * valid)
    for name, most in CONTROL.items():
        assert 0 < counts[name] <= SLACK * most, (name, counts[name])


def test_a_control_iteration_costs_what_the_config_says(tmp_path):
    control_guard(*control_counts(tmp_path / "run"))


def test_a_second_pass_of_control_is_seen(tmp_path):
    with pytest.raises(AssertionError, match="policy forwards"):
        control_guard(*control_counts(tmp_path / "run", plant=True))
