"""A control file names an environment; refusals name field, rule, value and fix; two configs can be compared."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest
from control.small_control import BASE, config
from typer.testing import CliRunner

from ppo_lab.cli import app
from ppo_lab.cli.loop import metric_line
from ppo_lab.config import (
    ConfigError,
    ControlConfig,
    RLHFConfig,
    build,
    diff_view,
    difference,
    dump,
    load_config,
    parse_yaml,
)
from ppo_lab.config.base import override
from ppo_lab.config.control import USUAL
from ppo_lab.course.docs import settings as docs
from ppo_lab.paths import config_names
from ppo_lab.records import ControlMetrics


def test_the_world_of_a_file_is_seen_by_its_environment(tmp_path):
    assert isinstance(load_config("control/cartpole"), ControlConfig)
    assert isinstance(load_config("rlhf/demo"), RLHFConfig)
    (tmp_path / "mine.yaml").write_text("steps: 3\n")
    assert isinstance(load_config(tmp_path / "mine.yaml"), RLHFConfig)
    assert load_config("control/cartpole", world=ControlConfig).env.id == "CartPole-v1"
    with pytest.raises(ConfigError, match="cartpole.yaml must be a RLHFConfig, got a control run .env in it."):
        load_config("control/cartpole", world=RLHFConfig)
    with pytest.raises(ConfigError, match="demo.yaml must be a ControlConfig, got a language run .no env in it."):
        load_config("rlhf/demo", world=ControlConfig)


@pytest.mark.parametrize("name", [name for name in config_names() if name.startswith("control/")])
def test_shipped_configs_are_control_configs(name):
    cfg = load_config(name, world=ControlConfig)
    assert cfg.name == name.removeprefix("control/") and cfg.steps >= 10
    assert build(ControlConfig, parse_yaml(dump(cfg))) == cfg


def test_control_has_its_own_defaults_and_a_file_changes_only_what_it_says():
    plain = build(ControlConfig, {"env": {"id": "CartPole-v1"}})
    assert (plain.ppo.gamma, plain.ppo.value_coef, plain.ppo.value_clip) == (0.99, 0.5, None)
    assert (plain.optimizer.eps, plain.optimizer.max_norm, plain.ppo.standardize) == (1e-5, 0.5, "minibatch")
    changed = build(ControlConfig, {"env": {"id": "CartPole-v1"}, "ppo": {"clip": 0.1}, "optimizer": None})
    assert difference(plain, changed) == [("ppo.clip", 0.2, 0.1)]
    assert RLHFConfig().ppo.gamma == 1.0  # language keeps its own


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("env.id=", "env.id"),
        ("env.cuont=3", "env.cuont is not a field of EnvConfig; did you mean env.count?"),
        ("total_steps=63", r"must hold at least one rollout of 64 steps \(env.count 4 x rollout 16\), got 63"),
        ("ppo.minibatches=65", "ppo.minibatches must not exceed the 64 steps of a rollout, got 65; lower it"),
        ("ppo.reduction=sequence_mean", "ppo.reduction must be token_mean in control"),
        ("ppo.gamma=1.5", "ppo.gamma"),
        ("algorithm=sac", "algorithm"),
        ("env.vector=fast", "env.vector"),
        ("rollout=true", "rollout must not be true or false, got true; the default is 128"),
        ("schedule={clip: 0.1, clip_kl: 0.01}", "schedule.clip and schedule.clip_kl must not both be set"),
        ("schedule={lam: 0.9, lam_spread: 2}", "schedule.lam and schedule.lam_spread must not both be set"),
        ("penalty.rule=halve", "penalty.rule"),
        ("trust_region.delta=0", "trust_region.delta"),
        ("evaluation.episodes=0", "evaluation.episodes"),
        ("net.hidden=[]", "net.hidden"),
        ("sampling.prompts=3", "sampling is not a field of ControlConfig"),
    ],
)
def test_refusals_name_field_rule_value_and_fix(change, message):
    with pytest.raises(ConfigError, match=message):
        config(change)


@pytest.mark.parametrize("mover", ["clip=0.1", "clip_kl=0.01"])
def test_a_band_of_two_sides_is_not_moved(mover):
    with pytest.raises(ConfigError, match=f"ppo.clip must be one number where schedule.{mover[:4]}.* moves it, got"):
        config("ppo.clip=[0.1, 0.3]", f"schedule.{mover}")


def test_an_environment_must_be_named():
    with pytest.raises(ConfigError, match="env.id"):
        build(ControlConfig, {"env": {}})


def test_every_field_says_what_it_does():
    assert [name for name, field in ControlConfig.leaves() if len(field.description or "") < 10] == []


def test_every_number_setting_of_control_says_what_happens_as_it_changes():
    own = {n: f for n, f in ControlConfig.leaves() if n.partition(".")[0] not in USUAL}
    numbers = {n for n, f in own.items() if "integer" in docs.kind_of(f) or "number" in docs.kind_of(f)}
    assert {n for n in numbers if docs.meaning(n, own[n].description or "")[1] == "–"} == set() and len(numbers) > 20


def test_a_preset_shows_what_it_changes():
    lines = diff_view(load_config("control/cartpole"), load_config("control/cartpole_37")).splitlines()
    assert lines[0].split() == ["setting", "cartpole", "cartpole_37"]
    assert {line.split()[0]: line.split()[1:] for line in lines}["ppo.value_clip"] == ["None", "0.2"]


def test_configs_of_two_worlds_are_not_compared():
    with pytest.raises(ConfigError, match="configs of one kind, got ControlConfig and RLHFConfig"):
        difference(config(), RLHFConfig())


# --- the command line ------------------------------------------------------------------------------------------------


@pytest.fixture
def call(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(dump(build(ControlConfig, override({}, [*BASE, "name=mine"]))))
    return lambda *words: CliRunner().invoke(app, list(words))


def test_train_resume_and_dashboard(call, tmp_path):
    done = call("train", "mine.yaml")
    assert done.exit_code == 0, done.output
    lines = [line for line in done.stdout.splitlines() if line.startswith("step ")]
    assert len(lines) == 6 and "env steps      64  return" in lines[0] and "| evaluation: " in lines[1]
    assert "ppo-lab dashboard runs/mine" in done.stdout
    again = call("train", "mine.yaml", "--resume")
    assert again.exit_code == 0 and "Done: 6 steps" in again.stdout
    assert call("dashboard", "runs/mine").exit_code == 0
    page = (tmp_path / "runs" / "mine" / "report.html").read_text()
    assert "6 of 6 steps" in page and "Environment steps a second" in page and "Fresh environments" in page
    assert "Response tokens" not in page


def test_what_a_control_run_cannot_do_is_said(call):
    assert call("train", "mine.yaml").exit_code == 0
    asked = call("sample", "runs/mine", "hello")
    assert asked.exit_code == 2 and "config.yaml must be a RLHFConfig, got a control run" in asked.stderr
    bad = call("train", "mine.yaml", "env.id=CartPol-v1", "--folder", "other")
    assert bad.exit_code == 2 and "did you mean CartPole-v1?" in bad.stderr and "Traceback" not in bad.output


def test_an_episode_that_did_not_end_has_no_return():
    blank = {name: 0 for name in ControlMetrics.__dataclass_fields__}
    row = ControlMetrics(**blank | {"episode_return": None, "evaluation": None})
    update = type("Update", (), {"entropy": 0.5})()
    assert "return       –" in metric_line(replace(row, update=update), 6, 0.1)


def test_gymnasium_is_loaded_by_control_alone():
    code = "import sys, ppo_lab, ppo_lab.config, ppo_lab.rlhf, ppo_lab.cli; print('gymnasium' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
