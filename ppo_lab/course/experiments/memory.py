"""Notebook 16: the planner's numbers counted on live models, and what recomputing costs in operations and in time.

    python -m ppo_lab.course.experiments.memory      # records the times, some minutes on one core
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ppo_lab import rlhf, seeding
from ppo_lab.config.ppo import PPOConfig
from ppo_lab.records import StepBatch
from ppo_lab.rlhf.assess import arguments, inputs_of
from ppo_lab.rlhf.models.recompute import KINDS, recompute_blocks
from ppo_lab.scale.alarm import alarm
from ppo_lab.scale.leak import process_bytes
from ppo_lab.scale.memory import Setup, activation_bytes, plan, shape_of
from ppo_lab.scale.memory.measure import flops, learner_bytes, saved_bytes
from ppo_lab.update import Assess, ppo_update

FAMILIES = ("Llama", "Llama, grouped queries", "GPT-2")
EVERY = (None, 4, 2, 1)
LAYERS, WIDTH, INNER, HEADS, WORDS = 12, 48, 136, 4, 97
ROWS, LENGTH = 4, 48
TIMED = {"layers": 8, "width": 256, "inner": 688, "rows": 8, "length": 128}
SEEDS = tuple(range(10))


class Counted(NamedTuple):
    """Bytes of one model and setting: planned and kept by autograd."""

    family: str
    every: int | None
    planned: float
    kept: int


def model(
    family: str, *, layers: int = LAYERS, width: int = WIDTH, inner: int = INNER, attention: str = "sdpa", seed: int = 0
) -> nn.Module:
    """A small causal model of one of `FAMILIES`, in evaluation mode; weights hang on the seed."""
    from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig

    from ppo_lab.rlhf.models.build import random_state

    ends = {"bos_token_id": 0, "eos_token_id": 0}
    if family == "GPT-2":
        config: Any = GPT2Config(vocab_size=WORDS, n_embd=width, n_inner=inner, n_layer=layers, n_head=HEADS,
                                 n_positions=512, **ends)  # fmt: skip
    else:
        grouped = {"num_key_value_heads": HEADS // 2} if "grouped" in family else {}
        config = LlamaConfig(vocab_size=WORDS, hidden_size=width, intermediate_size=inner, num_hidden_layers=layers,
                             num_attention_heads=HEADS, max_position_embeddings=512, **grouped, **ends)  # fmt: skip
    with random_state("memory", seed):
        return AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation=attention).eval()


def tokens(rows: int = ROWS, length: int = LENGTH, seed: int = 0) -> dict[str, Tensor]:
    """A batch with left padding in its first row."""
    ids = torch.randint(0, WORDS, (rows, length), generator=seeding.generator("memory tokens", seed))
    attention = torch.ones(rows, length, dtype=torch.long)
    attention[0, :3] = 0
    return {"input_ids": ids, "attention_mask": attention}


def kept_by(trunk: nn.Module, batch: dict[str, Tensor]) -> int:
    """Bytes that autograd keeps of one forward through the trunk."""
    with saved_bytes(trunk) as saved:
        trunk(**batch, use_cache=False)
    return saved.bytes


def activations() -> list[Counted]:
    """Three models, from nothing recomputed to every block, planned and counted."""
    found = []
    for family in FAMILIES:
        for every in EVERY:
            net = model(family)
            if every is not None:
                recompute_blocks(net, every=every)
            planned = activation_bytes(shape_of(net), rows=ROWS, length=LENGTH, precision="fp32",
                                       recompute_every=every, peak=False)  # fmt: skip
            found.append(Counted(family, every, planned, kept_by(net.base_model, tokens())))  # type: ignore[arg-type]
    return found


def worst_error(counted: Sequence[Counted]) -> float:
    """Largest relative error of the plan."""
    return max(abs(c.planned / c.kept - 1) for c in counted)


def saved_shares(counted: Sequence[Counted], every: int) -> list[float]:
    """Share of the activations that recomputing every k-th block saves, one number a model."""
    kept = {(c.family, c.every): c.kept for c in counted}
    return [1 - kept[family, every] / kept[family, None] for family in FAMILIES]


def attention_bytes(lengths: Sequence[int] = (32, 64, 128, 256)) -> dict[str, list[float]]:
    """Bytes a token that two layers keep, with the matrix of scores ("eager") and without it ("fused")."""
    kinds = {"eager": "eager", "fused": "sdpa"}
    return {
        name: [kept_by(model("Llama", layers=2, attention=kind).base_model, tokens(2, n)) / (2 * n) for n in lengths]  # type: ignore[arg-type]
        for name, kind in kinds.items()
    }


class Recomputed(NamedTuple):
    """One way to recompute under one kind of attention: bytes a token, planned and kept, and more operations."""

    attention: str
    what: str
    planned: float
    kept: float
    extra: float


def selective(length: int = 256, layers: int = 4) -> list[Recomputed]:
    """Every block of a Llama recomputed not at all, selectively, and whole, with the matrix of scores and without."""
    found, batch = [], tokens(1, length)
    for attention, name in (("eager", "scores kept"), ("sdpa", "fused")):
        plain = 0
        for what in ("nothing", *KINDS[::-1]):
            net: Any = model("Llama", layers=layers, attention=attention)
            if what != "nothing":
                recompute_blocks(net, kind=what)
            every = None if what == "nothing" else 1
            planned = activation_bytes(shape_of(net), rows=1, length=length, precision="fp32", recompute_every=every,
                                       recompute=what if every else "block", peak=False)  # fmt: skip
            operations = flops(train_once, net, batch)
            plain = plain or operations
            kept = kept_by(net.base_model, batch) / length
            found.append(Recomputed(name, what, planned / length, kept, operations / plain - 1))
    return found


def extra_operations(every: int = 1) -> float:
    """How many more operations (of matrix products) a forward and backward takes when blocks are recomputed."""
    plain, again = model("Llama"), model("Llama")
    recompute_blocks(again, every=every)
    counts = [flops(train_once, net, tokens()) for net in (plain, again)]
    return counts[1] / counts[0] - 1


def train_once(net: nn.Module, batch: dict[str, Tensor]) -> None:
    """Forward and backward of the trunk."""
    states = net.base_model(**batch, use_cache=False).last_hidden_state  # type: ignore[operator]
    states.square().mean().backward()


def four_models(run: rlhf.Run, rows: int = 8) -> dict[str, dict[str, float]]:
    """Bytes of a run's four models by part, ``planned`` and ``held``, at the end of a forward and backward.

    The plan is for one float32 process (stage 0) with the shapes of the run's policy and reward model.
    """
    assert run.last_rollout is not None, "take a step first"
    learner: Any = run.learner
    seen = learner.forward(**arguments(inputs_of(run.last_rollout.responses)))
    learner.accumulate(sum(x.float().mean() for x in seen.values()))
    held = learner_bytes(learner)
    learner.optimizer.zero_grad()
    policy, judge = learner.module.policy, next(m for name, m in learner.frozen.items() if name != "reference")
    scorer = next(m for m in (judge, *judge.modules()) if hasattr(m, "config"))
    setup = Setup(policy=shape_of(policy), other=shape_of(scorer), devices=1, stage=0, precision="fp32", rows=rows)
    return {"planned": plan(setup).lasting, "held": {name: float(x) for name, x in held.items()}}


def ring(
    learner: Any, batch: StepBatch, assess: Assess, cfg: PPOConfig, *, row: int, by: float, **more: Any
) -> list[str]:
    """One update on a batch in which one answer's advantage is ``by`` times what it was; what the alarm says."""
    advantage = batch.advantage.clone()
    advantage[row] *= by
    spoiled = replace(batch, advantage=advantage)
    update = ppo_update(learner, spoiled, assess, cfg, seed=0)
    return alarm(update, learner, spoiled, assess, cfg, **more)


def leaky(learner: Any, batch: StepBatch, assess: Assess, cfg: PPOConfig, *, steps: int, leak: bool) -> list[int]:
    """Bytes of the process after each of so many updates. The leak is one line: a loss is kept with its graph."""
    kept, readings = [], []
    for step in range(steps):
        ppo_update(learner, batch, assess, cfg, seed=step)
        if leak:
            kept.append(assess(learner, batch.inputs).logp.mean())  # float(...) would have kept a number
        readings.append(process_bytes())
    return readings


def timed(seed: int, every: int | None) -> float:
    """CPU-seconds of a forward and backward, the best of three."""
    torch.set_num_threads(1)
    net = model("Llama", layers=TIMED["layers"], width=TIMED["width"], inner=TIMED["inner"], seed=seed)
    if every is not None:
        recompute_blocks(net, every=every)
    batch, best = tokens(TIMED["rows"], TIMED["length"], seed), float("inf")
    train_once(net, batch)
    for _ in range(3):
        start = time.process_time()
        train_once(net, batch)
        best = min(best, time.process_time() - start)
    return best


def study(seeds: Sequence[int] = SEEDS) -> list[dict[str, Any]]:
    """Time of every setting over that without recomputing, paired by seed."""
    rows = []
    for seed in seeds:
        plain = timed(seed, None)
        rows += [{"seed": seed, "every": k, "ratio": timed(seed, k) / plain} for k in (1, 2, 4)]
    return rows


if __name__ == "__main__":
    from ppo_lab.course.recordings import record

    record("recompute", "python -m ppo_lab.course.experiments.memory", study())
