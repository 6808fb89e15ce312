"""The policy's moving average: its closed form, that nothing else looks at it, that it resumes and is exported."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from small_runs import config, log_of, same_tensors

from ppo_lab import checkpoint
from ppo_lab.config import ConfigError, RLHFConfig, build
from ppo_lab.learners.plain import PlainLearner
from ppo_lab.rlhf import Run
from ppo_lab.rlhf.evaluate import evaluate
from ppo_lab.rlhf.export import export
from ppo_lab.rlhf.models.build import load_policy

DECAY = 0.6


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Every step's weights, and the run."""
    run = Run(config(policy__ema=DECAY, checkpoint__every=1, checkpoint__keep=4),
              folder=tmp_path_factory.mktemp("ema") / "run")  # fmt: skip
    weights = [snapshot(run)]
    for _ in run:
        weights.append(snapshot(run))
    return run, weights


def snapshot(run: Run) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in run.learner.groups["actor"]}


def test_it_is_the_closed_form_of_the_weights_after_each_step(whole):
    run, weights = whole
    for n in range(1, 5):
        kept, _ = checkpoint.load(run.folder / "checkpoints" / f"{n:06d}")
        for name in weights[0]:
            steps = sum(DECAY ** (n - i) * weights[i][name].double() for i in range(1, n + 1))
            wanted = DECAY**n * weights[0][name].double() + (1 - DECAY) * steps
            torch.testing.assert_close(kept[f"ema.{name}"].double(), wanted, rtol=0, atol=1e-6)
            assert torch.equal(kept[f"model.{name}"], weights[n][name])
    assert {name for name in kept if name.startswith("ema.")} == {f"ema.{name}" for name in weights[0]}
    assert any(not torch.equal(kept[f"ema.{n}"], kept[f"model.{n}"]) for n in weights[0])


def test_the_rest_of_a_run_does_not_look_at_it(whole, tmp_path):
    run, _ = whole
    without = Run(config(checkpoint__every=1, checkpoint__keep=4), folder=tmp_path / "run")
    list(without)
    ours = [{k: v for k, v in row.items() if not k.startswith("eval_ema_")} for row in log_of(run.folder)]
    assert ours == log_of(tmp_path / "run")
    assert (run.folder / "best.json").read_bytes() == (tmp_path / "run" / "best.json").read_bytes()


def test_an_evaluation_is_of_the_average_and_leaves_the_weights_as_they_were(whole):
    run, weights = whole
    last = {k: v for k, v in log_of(run.folder)[-1].items() if k.startswith("eval_")}
    assert last["eval_ema_objective"] == pytest.approx(
        last["eval_ema_score"] - run.config.kl.beta * last["eval_ema_ref_kl_sum"]
    )
    with run.learner.averaged():
        again, _ = evaluate(run.learner, run.parts.held_out, run.config)
    for name in ("score", "ref_kl_sum", "objective", "gold"):
        assert last[f"eval_ema_{name}"] == getattr(again, f"eval_{name}"), name
    assert last["eval_ema_ref_kl_sum"] != last["eval_ref_kl_sum"]
    kept, _ = checkpoint.load(checkpoint.latest(run.folder))
    with pytest.raises(RuntimeError, match="in the middle"), run.learner.averaged():
        for name, x in snapshot(run).items():
            assert torch.equal(x, kept[f"ema.{name}"])
        raise RuntimeError("in the middle")
    assert all(torch.equal(x, weights[-1][name]) for name, x in snapshot(run).items())
    now = run.learner.state()
    assert all(torch.equal(x, kept[name]) for name, x in now.items())


@pytest.mark.parametrize("changes", [{}, {"critic__trunk": "shared"}, {"policy__lora": {"rank": 2}}])
def test_it_resumes_to_the_bit(tmp_path, changes):
    changes = {"policy__ema": DECAY, **changes}
    list(Run(config(**changes), folder=tmp_path / "whole"))
    first = Run(config(**changes), folder=tmp_path / "parts")
    for step in first:
        if step.step == 3:
            first.stop()
    list(Run(config(**changes), folder=tmp_path / "parts", resume=True))
    assert log_of(tmp_path / "parts") == log_of(tmp_path / "whole")
    mine, theirs = (checkpoint.load(checkpoint.latest(tmp_path / f)) for f in ("parts", "whole"))
    assert same_tensors(mine[0], theirs[0]) and mine[1] == theirs[1]


def test_it_is_exported_on_request(whole, tmp_path):
    run, _ = whole
    export(run.folder, tmp_path / "policy")
    export(run.folder, tmp_path / "average", average=True)
    tokens = torch.arange(12)[None]
    with torch.no_grad():
        policy, average = (load_policy(str(tmp_path / name)).eval()(tokens).logits for name in ("policy", "average"))
        assert torch.equal(run.learner.module.policy.eval()(tokens).logits, policy)
        with run.learner.averaged():
            assert torch.equal(run.learner.module.policy.eval()(tokens).logits, average)
    assert not torch.equal(policy, average)


def test_what_is_not_there_is_named(tmp_path: Path):
    run = Run(config(steps=1), folder=tmp_path / "run")
    list(run)
    with pytest.raises(ConfigError, match="policy.ema must be set in the run to export its average, got None"):
        export(tmp_path / "run", tmp_path / "model", average=True)
    with pytest.raises(ValueError, match="averaged.. needs an average of the weights"), run.learner.averaged():
        pass
    with pytest.raises(ConfigError, match="policy.ema"):
        build(RLHFConfig, {"policy": {"ema": 1.0}})


def test_half_precision_weights_have_a_full_average():
    class One(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.tensor([1.0], dtype=torch.bfloat16))

        def parameter_groups(self):
            return {"actor": [("w", self.w)], "critic": []}

    learner = PlainLearner(One(), actor_rate=1.0, critic_rate=1.0, device="cpu")
    learner.keep_average()
    learner.masters["w"].data.fill_(1.0 + 2**-12)
    learner.average(0.5)
    assert learner.state()["ema.w"].item() == 1.0 + 2**-13
    with learner.averaged():
        assert learner.module.w.item() == 1.0 and learner.masters["w"].item() == 1.0 + 2**-13
