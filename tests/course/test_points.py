"""The sixteen points: complete, with signals that exist, and each turned by a switch of the real trainer."""

from __future__ import annotations

import pytest

from ppo_lab import faults
from ppo_lab.course import points
from ppo_lab.course.catalogue import notebook
from ppo_lab.course.experiments.what_matters import CARTPOLE, PENDULUM, TEXT, config, find, text_config
from ppo_lab.metrics import REGISTRY


def test_sixteen_points_with_signals_of_the_registry() -> None:
    assert [p.id for p in points.POINTS] == [f"C{i}" for i in range(1, 17)]
    assert {name for p in points.POINTS for name in p.signals} <= {*REGISTRY}
    for p in points.POINTS:
        assert p.id in notebook(p.notebook).rows and all(text.endswith(".") for text in (p.check, p.fails, p.ends))
    assert [p.id for p in points.POINTS if p.elsewhere] == ["C15", "C16"]


def test_every_point_of_the_notebook_is_turned() -> None:
    turned = {switch.point for switch in (*CARTPOLE, *PENDULUM, *TEXT)}
    assert {p.id for p in points.POINTS if not p.elsewhere} <= turned


def test_the_table_says_what_is_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    points.check_list()
    said = capsys.readouterr().out
    assert said.startswith("The 16-point check\nC1 ") and said.count("(notebook ") == 2
    points.check_list("C4", "C9")
    assert "The 2-point check\nC4 " in capsys.readouterr().out
    with pytest.raises(ValueError, match="C1 to C16, got C99"):
        points.check_list("C99")


@pytest.mark.parametrize("switches", [CARTPOLE, PENDULUM, TEXT])
def test_a_switch_turns_one_thing(switches) -> None:
    names = [switch.name for switch in switches]
    assert len({*names}) == len(names)
    for switch in switches:
        base = find(switch.against, switches)
        more = [change for change in switch.changes if change not in base.changes]
        planted = [fault for fault in (switch.fault,) if fault != base.fault]
        assert len(more) + len(planted) == (switch.name != "as usual"), switch.name
        assert switch.fault is None or switch.fault in faults.FAULTS


def test_every_switch_is_a_config() -> None:
    for env, switches in (("CartPole-v1", CARTPOLE), ("Pendulum-v1", PENDULUM)):
        configs = [config(env, switch, seed=3) for switch in switches]
        assert {cfg.seed for cfg in configs} == {3}
        changed = [s.name for s, cfg in zip(switches, configs, strict=True) if cfg != configs[0]]
        assert changed == [s.name for s in switches if s.changes]
    assert len({text_config(switch, seed=1) for switch in TEXT if switch.fault is None}) == 2
