"""The recipe: reproducible, resumable to the bit, its first ratios 1; five algorithms as settings."""

from __future__ import annotations

import json
import math
from dataclasses import fields

import pytest
import torch
from control.small_control import log_of, run

from ppo_lab import checkpoint, control
from ppo_lab.config import ConfigError, load_config
from ppo_lab.metrics import REGISTRY
from ppo_lab.records import ControlMetrics

ALGORITHMS = {
    "reinforce": ("ppo.objective=reinforce", "advantage=return", "ppo.epochs=1", "ppo.minibatches=1"),
    "a2c": ("ppo.objective=surrogate", "ppo.epochs=1", "ppo.minibatches=1"),
    "clip": (),
    "kl": ("ppo.objective=kl_penalty",),
    "trpo": ("algorithm=trpo",),
}
PENDULUM = ("env.id=Pendulum-v1", "normalize.observation=true", "normalize.reward=true", "net.trunk=shared")


def same(a, b) -> bool:
    first, second = checkpoint.load(checkpoint.latest(a)), checkpoint.load(checkpoint.latest(b))
    state = all(first[1][key] == second[1][key] for key in ("step", "knobs", "normalizers", "best"))
    return state and all(torch.equal(x, second[0][name]) for name, x in first[0].items())


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_runs_and_its_first_ratios_are_one(tmp_path, name):
    rows = list(run(tmp_path / name, *ALGORITHMS[name]))
    assert len(rows) == 6 and rows[-1].env_steps == 384 and rows[-1].evaluation is not None
    for row in rows:
        assert row.update.first_ratio_error < 1e-5  # acting and learning are float32 forwards of other batch sizes
        assert all(math.isfinite(v) for k, v in row.row().items() if isinstance(v, float) and k != "explained_variance")
    assert (rows[0].penalty_beta is None) == (name != "kl") and (rows[0].delta is None) == (name != "trpo")
    if name == "trpo":
        assert all(row.policy_kl_exact <= 0.01 for row in rows) and any(row.backtracks is not None for row in rows)


def test_the_log_holds_registered_metrics_and_a_baseline(tmp_path):
    made = run(tmp_path / "run", *PENDULUM)
    list(made)
    rows = log_of(made.folder)
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5, 6]
    assert all(row.keys() <= REGISTRY.keys() for row in rows)
    assert "action_std" in rows[0] and "reward_scale" in rows[0] and "eval_return" in rows[1]
    assert {f.name for f in fields(ControlMetrics)} - {"update", "evaluation"} <= REGISTRY.keys()
    assert "eval_return" in json.loads((made.folder / "baseline.json").read_text())


DISABLED = ("env.vector=gymnasium", "env.autoreset=disabled")


@pytest.mark.parametrize("changes", [(), PENDULUM, ALGORITHMS["kl"], DISABLED], ids=["native", "pendulum", "kl", "off"])
def test_the_same_seed_is_the_same_run_and_another_is_not(tmp_path, changes):
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        list(run(tmp_path / name, *changes, f"seed={seed}"))
    assert log_of(tmp_path / "a") == log_of(tmp_path / "b") and same(tmp_path / "a", tmp_path / "b")
    assert log_of(tmp_path / "a") != log_of(tmp_path / "c")


@pytest.mark.parametrize("changes", [(), PENDULUM, ALGORITHMS["kl"], ALGORITHMS["trpo"]],
                         ids=["native", "pendulum", "kl", "trpo"])  # fmt: skip
@pytest.mark.parametrize("killed_after", [1, 3, 4])
def test_a_killed_run_goes_on_as_if_it_had_not_been(tmp_path, changes, killed_after):
    list(run(tmp_path / "whole", *changes))
    steps = iter(run(tmp_path / "cut", *changes))
    for _ in range(killed_after):
        next(steps)  # and nothing is saved on the way out
    again = run(tmp_path / "cut", *changes, resume=True)
    assert again.step == killed_after // 2 * 2
    list(again)
    assert log_of(tmp_path / "cut") == log_of(tmp_path / "whole") and same(tmp_path / "cut", tmp_path / "whole")


def test_a_stopped_run_goes_on_to_its_next_checkpoint(tmp_path):
    list(run(tmp_path / "whole"))
    made = run(tmp_path / "stopped")
    for row in made:
        if row.step == 3:
            made.stop()
    assert made.step == 4 and checkpoint.steps(made.folder) == [2, 4]
    list(run(tmp_path / "stopped", resume=True))
    assert log_of(tmp_path / "stopped") == log_of(tmp_path / "whole") and same(tmp_path / "stopped", tmp_path / "whole")


def test_a_resumed_run_keeps_its_config(tmp_path):
    list(run(tmp_path / "run"))
    with pytest.raises(ConfigError, match="ppo.clip must be 0.2 as in .*, got 0.3"):
        run(tmp_path / "run", "ppo.clip=0.3", resume=True)


def test_an_evaluation_changes_nothing_in_the_run(tmp_path):
    list(run(tmp_path / "a"))
    made = run(tmp_path / "b")
    for _ in made:
        assert len(made.evaluate(episodes=5)) == 5 and torch.equal(made.evaluate(), made.evaluate())
    assert log_of(tmp_path / "a") == log_of(tmp_path / "b")


def test_a_warming_critic_leaves_the_policy_alone(tmp_path):
    made = run(tmp_path / "run", "critic_warmup=2")
    start = {n: p.detach().clone() for n, p in made.learner.module.parameter_groups()["actor"]}
    value = made.learner.module.value.weight.detach().clone()
    for row in made:
        moved = any(not torch.equal(p, start[n]) for n, p in made.learner.module.parameter_groups()["actor"])
        assert moved == (row.step > 2) and (row.policy_kl_exact > 0) == (row.step > 2)
    assert not torch.equal(made.learner.module.value.weight, value)


def test_a_lagging_critic_follows_by_its_decay_and_resumes(tmp_path):
    made = run(tmp_path / "run", "net.target_decay=0.75")
    critic = [p for _, p in made.learner.module.parameter_groups()["critic"]]
    lagging = torch.nn.utils.parameters_to_vector(critic).detach().clone()
    for _ in made:
        lagging = 0.75 * lagging + 0.25 * torch.nn.utils.parameters_to_vector(critic).detach()
        torch.testing.assert_close(made.learner.module.lagging, lagging, rtol=0, atol=1e-6)  # float32 weights near 1
    steps = iter(run(tmp_path / "cut", "net.target_decay=0.75"))
    for _ in range(3):
        next(steps)
    list(run(tmp_path / "cut", "net.target_decay=0.75", resume=True))
    assert log_of(tmp_path / "cut") == log_of(made.folder) and same(tmp_path / "cut", made.folder)


def test_a_critic_that_lags_by_nothing_is_the_critic(tmp_path):
    for name, changes in (("none", ()), ("zero", ("net.target_decay=0",))):
        list(run(tmp_path / name, *changes))
    none, zero = log_of(tmp_path / "none"), log_of(tmp_path / "zero")
    for a, b in zip(none, zero, strict=True):
        # six updates of float32 sums in another order: rounding, multiplied by learning
        assert a["value_mean"] == pytest.approx(b["value_mean"], abs=1e-5)
        assert a["policy_loss"] == pytest.approx(b["policy_loss"], abs=1e-5)


@pytest.mark.parametrize("vector", ["native", "loop", "gymnasium"])
def test_reset_rows_teach_nothing(tmp_path, vector):
    made = run(tmp_path / vector, f"env.vector={vector}", "env.autoreset=next_step", "rollout=64", "total_steps=256")
    (row,) = made
    mask = made.last.rollout.mask
    assert row.episodes > 0 and len(made.last_batch) == int(mask.sum()) and bool(made.last_batch.mask.all())
    assert bool((made.last.rollout.reward[~mask] == 0).all())
    assert bool(mask.all()) == (vector == "loop")


@pytest.mark.parametrize("name", ["cartpole", "acrobot", "pendulum", "bandit"])
def test_shipped_configs_run(tmp_path, name):
    cfg = load_config(f"control/{name}")
    small = load_config(f"control/{name}", [f"total_steps={2 * cfg.rows}", "evaluation.episodes=2", "ppo.epochs=1"])
    assert len(list(control.Run(small, folder=tmp_path / name))) == 2
