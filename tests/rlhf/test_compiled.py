"""Compiled trunks: the same numbers to rounding, sampling as it was, and a refusal where nothing can be compiled."""

import shutil

import pytest
import torch
from small_runs import config, log_of

from ppo_lab.config import ConfigError
from ppo_lab.rlhf import Run

SMALL = dict(steps=3, policy__layers=1, policy__dropout=0.0, evaluation__every=100, checkpoint__every=100,
             critic={"trunk": "shared"}, ppo={"epochs": 1, "minibatches": 1})  # fmt: skip


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """A run as it is, and compiled: logs, answers of the first step, the runs."""
    if not any(map(shutil.which, ("g++", "c++", "clang++"))):
        pytest.skip("no C++ compiler")
    folder, found = tmp_path_factory.mktemp("compiled"), []
    for on in (False, True):
        run = Run(config(compile=on, **SMALL), folder=folder / str(on))
        steps = iter(run)
        next(steps)
        first = run.last_rollout.responses
        list(steps)
        run.close()
        found.append((log_of(folder / str(on)), first, run))
    return found


def test_compiled_trunks_give_the_same_numbers_to_rounding(both):
    (plain, first, _), (graph, same, run) = both
    assert run.learner.module.policy.base_model._compiled_call_impl is not None
    assert torch.equal(first.tokens, same.tokens)
    assert len(plain) == len(graph) == 3
    for a, b in zip(plain, graph, strict=True):
        for name in ("policy_loss", "value_loss", "entropy", "ref_kl_sum", "gradient_norm"):
            assert b[name] == pytest.approx(a[name], rel=1e-6, abs=1e-6), name


def test_sampling_runs_as_it_was_written(both):
    _, (_, _, run) = both
    seen = []
    trunk = run.learner.module.policy.base_model
    hook = trunk.register_forward_pre_hook(lambda *_: seen.append(torch.compiler.is_compiling()))
    run.generate(run.sample_prompts)  # a hook that is compiled with the trunk would say True
    hook.remove()
    assert len(seen) > 1 and not any(seen)


def test_no_compiler_is_said_before_any_work(monkeypatch, tmp_path):
    def missing(*_, **__):
        raise RuntimeError("no g++ here")

    monkeypatch.setattr(torch, "compile", missing)
    with pytest.raises(ConfigError, match=r"compile needs a C\+\+ compiler.*no g\+\+ here.*compile: false"):
        Run(config(compile=True, **SMALL), folder=tmp_path / "run")
    assert not (tmp_path / "run" / "models").exists()


@pytest.mark.parametrize("changes, field", [
    ({"learner": {"kind": "zero"}}, "learner.kind zero"),
    ({"critic": {"trunk": "partial", "shared_layers": 1}}, "critic.trunk partial"),
    ({"learner": {"recompute_every": 1}}, "learner.recompute_every 1"),
])  # fmt: skip
def test_what_looks_into_a_trunk_is_refused(changes, field):
    with pytest.raises(ConfigError, match=f"compile needs trunks that nobody looks into, got {field}"):
        config(compile=True, **changes)
