"""Instruments that count what a run does, and need no clock: calls, forwards, tokens, live bytes by phase."""

from __future__ import annotations

import gc
import weakref
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from small_runs import config
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from ppo_lab.records import Responses
from ppo_lab.rlhf import Run, train

PHASES = {"generate": "rollout", "judge": "scoring", "ppo_update": "update"}  # stations of `rlhf.train`
Plant = Callable[[Run, pytest.MonkeyPatch], None]


class Live(TorchDispatchMode):
    """Bytes of the tensors that were made while it is open and are still there; their peak since `reset`.

    A storage counts once, from the operation that made it until nothing holds it, autograd's saved tensors included.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = self.calls = 0
        self._sizes: dict[int, Any] = {}

    def reset(self) -> int:
        """The peak is the present level, which is returned."""
        self.peak = self.now
        return self.now

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.calls += 1
        for x in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(x, torch.Tensor):
                self._note(x.untyped_storage())
        return out

    def _note(self, storage: Any) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key in self._sizes or not size:
            return

        def gone(_: Any) -> None:
            del self._sizes[key]
            self.now -= size

        self._sizes[key] = weakref.ref(storage, gone)
        self.now += size
        self.peak = max(self.peak, self.now)


def watch(counts: Counter, name: str, module: nn.Module, argument: str, *, padding: str = "") -> None:
    """Count forwards and the tokens (or rows) that go in; with ``padding``, an argument, the valid ones too."""

    def note(_: nn.Module, args: Any, kwargs: Any) -> None:
        x = kwargs[argument] if argument in kwargs else args[0]
        counts[f"{name} forwards"] += 1
        counts[f"{name} tokens"] += x.numel() if argument in ("input_ids", "tokens") else x.shape[:-1].numel()
        if padding and kwargs.get(padding) is not None:
            counts[f"{name} valid tokens"] += int(kwargs[padding].sum())

    module.register_forward_pre_hook(note, with_kwargs=True)


def with_reward_model(**changes: Any) -> Any:
    """A small run of four models: the reward is a model, too. A minibatch of 6 rows is two micro-batches."""
    return config(
        steps=3, evaluation__every=100, checkpoint__every=100, policy__dropout=0.0,
        reward={"references": 16, "normalize": "none"},
        reward_model={"pairs": 60, "held_out_pairs": 40, "epochs": 1, "allow_weak_reward_model": True},
        ppo__micro_batch=4, **changes,
    )  # fmt: skip


def count(folder: Path, plant: Plant | None = None) -> tuple[Counter, Responses, Run]:
    """The second iteration of a small run in counts; ``plant`` may break the run before it."""
    run = Run(with_reward_model(), folder=folder)
    steps, counts = iter(run), Counter()
    next(steps)
    trained: Any = run.learner.module
    frozen: dict[str, Any] = run.learner.frozen  # type: ignore[attr-defined]
    with pytest.MonkeyPatch.context() as patch:
        if plant is not None:
            plant(run, patch)
        watch(counts, "policy", trained.policy.base_model, "input_ids")
        watch(counts, "critic", trained.critic, "input_ids")
        watch(counts, "reference", frozen["reference"].policy.base_model, "input_ids")
        watch(counts, "reward", frozen["reward_0"], "tokens", padding="attention")
        watch(counts, "policy head", trained.policy.get_output_embeddings(), "input")
        watch(counts, "reference head", frozen["reference"].policy.get_output_embeddings(), "input")
        live, before = Live(), run.learner.optimizer_steps
        for name, phase in PHASES.items():
            patch.setattr(train, name, measured(getattr(train, name), phase, live, counts))
        gc.collect()
        gc.disable()
        try:
            with live:
                next(steps)
        finally:
            gc.enable()
        counts["optimizer steps"] = run.learner.optimizer_steps - before
        counts["calls"] = live.calls
    return counts, run.last_rollout.responses, run  # type: ignore[union-attr]


def measured(station: Callable[..., Any], phase: str, live: Live, counts: Counter) -> Callable[..., Any]:
    """A station of the recipe whose peak, above what was there before, and calls are noted."""

    def watched(*args: Any, **kwargs: Any) -> Any:
        begin, calls = live.reset(), live.calls
        try:
            return station(*args, **kwargs)
        finally:
            counts[f"{phase} peak"] += live.peak - begin
            counts[f"{phase} calls"] += live.calls - calls

    return watched
