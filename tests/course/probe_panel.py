"""A small panel for the tests: one line whose height and tilt can be moved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from ppo_lab.course import Choice, Panel, Slider, Steps, Switch

CONTROLS = (
    Slider("height", "height h", 0.5, 0.0, 1.0, 0.1, digits=1),
    Slider("tilt", "tilt", 0.0, -1.0, 1.0, 0.1, digits=1),
    Steps("rate", "rate", 0.01, (0.001, 0.01, 0.1)),
    Choice("side", "side", "left", ("left", "right")),
    Switch("dashed", "dashed"),
)
TABLE = {"end": "{end:.2f} m", "rate": "{rate:g}"}
ALT = "a line from {height:.1f} to {end:.2f}"


def facts(height: float, tilt: float, rate: float, side: str, dashed: bool) -> dict[str, float]:
    return {"end": height + tilt if side == "right" else height - tilt}


def build(figure: Figure) -> Any:
    axes = figure.subplots()
    axes.set(xlim=(0, 1), ylim=(-1, 2))
    return axes.plot([], [])[0]


def draw(line: Any, found: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    line.set_data([0, 1], [settings["height"], found["end"]])
    line.set_linestyle("--" if settings["dashed"] else "-")


MISSIONS = (
    ("lift the end above 1.4", lambda f, s: f["end"] > 1.4 and s["dashed"]),
    ("bring it below −0.6 with a high rate", lambda f, s: f["end"] < -0.6 and s["rate"] == 0.1),
)


def panel(title: str = "Line", **changes: Any) -> Panel:
    """The panel, or one with parts of it replaced."""
    parts = dict(controls=CONTROLS, facts=facts, build=build, draw=draw, table=TABLE, alt=ALT, missions=MISSIONS)
    return Panel(title, size=(3.0, 2.0), **{**parts, **changes})
