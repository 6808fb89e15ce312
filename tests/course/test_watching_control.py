"""A watched control run: what is drawn, and its four lights, green as it is and red where something was planted."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from ppo_lab import control, course, faults
from ppo_lab.config import load_config
from ppo_lab.course.control_lights import control_lights, ends_error
from ppo_lab.course.watching import Watch

SMALL = {
    "control/start": ("total_steps=2048", "env.count=8", "ppo.epochs=2", "evaluation.every=2", "rollout=128",
                      "env.time_limit=20"),
    "control/pendulum": ("total_steps=1600", "env.count=4", "ppo.epochs=2", "evaluation.every=2"),
}  # fmt: skip


def watched(name: str, folder: Any, *planted: str) -> tuple[Watch, list[Any]]:
    run = control.Run(load_config(name, SMALL[name]), folder=folder)
    watch = course.watch(run)
    if not planted:
        return watch, [*watch]
    with faults.planted(*planted):
        return watch, [*watch]


@pytest.mark.parametrize("name", SMALL)
def test_a_healthy_run_is_green_and_drawn(name: str, tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    watch, steps = watched(name, tmp_path)
    assert len(steps) == len(watch.lit) == 2 and all(light.green for lit in watch.lit for light in lit)
    left, middle, right = watch.figure.axes
    drawn = {line.get_label(): line for line in left.get_lines()}
    assert [*drawn["training"].get_ydata()] == [s.episode_return for s in steps if s.episode_return is not None]
    assert [*drawn["greedy"].get_ydata()] == [steps[-1].evaluation.eval_return]
    assert [*drawn["greedy"].get_xdata()] == [steps[-1].env_steps / 1000]
    assert [*middle.get_lines()[0].get_ydata()] == [step.policy_kl_exact for step in steps]
    third = [step.action_std if name.endswith("pendulum") else step.update.entropy for step in steps]
    assert [*right.get_lines()[0].get_ydata()] == third
    assert f"2 steps of {watch.run.config.name}: return, policy KL and" in capsys.readouterr().out


def test_a_limit_taken_for_an_end_turns_one_light_red(tmp_path: Any) -> None:
    watch, _ = watched("control/start", tmp_path, "limit_is_end")
    assert [light.green for light in watch.lit[-1]] == [True, False, True, True]


def test_a_clipped_action_turns_its_light_red(tmp_path: Any) -> None:
    watch, _ = watched("control/pendulum", tmp_path, "clipped_action_stored")
    assert [light.green for light in watch.lit[-1]] == [False, True, False, True]


def test_ratio_entropy_and_leaks_can_turn_red(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    watch, steps = watched("control/start", tmp_path)
    run, step = watch.run, steps[-1]
    off = replace(step, update=replace(step.update, first_ratio_error=0.03))
    assert [light.green for light in control_lights(run, off)] == [False, True, True, True]
    wide = run.last._replace(head=run.last.head * math.nan)
    monkeypatch.setattr(run, "last", wide)
    assert [light.green for light in control_lights(run, step)] == [True, True, False, False]
    monkeypatch.undo()
    monkeypatch.setattr("ppo_lab.course.control_lights.credit",
                        lambda r, *_: (r.reward + torch.where(r.terminated, r.next_value, 0.0),) * 2)  # fmt: skip
    assert math.isinf(ends_error(run, run.last))
