"""What a reader may move: a slider, one of a few listed values, a choice by name, a switch.

A control is data: a keyword of the panel's ``facts``, a label, where it starts and the values it can take. `widget`
makes the built-in ipywidgets control for it; keyboard and touch are the browser's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ipywidgets

WIDE = {"layout": {"width": "98%"}, "style": {"description_width": "10.5em"}}


@dataclass(frozen=True, slots=True)
class Slider:
    """A number between two ends. ``name`` is the keyword of ``facts``; ``digits`` are the decimals shown."""

    name: str
    label: str
    start: float
    low: float
    high: float
    step: float
    digits: int = 2

    def values(self) -> list[float]:
        """Every value it can take, in order.

        >>> Slider("clip", "clip range", 0.2, 0.1, 0.3, 0.1).values()
        [0.1, 0.2, 0.3]
        """
        count = round((self.high - self.low) / self.step)
        return [round(self.low + i * self.step, 10) for i in range(count + 1)]

    def widget(self) -> ipywidgets.Widget:
        """The ipywidgets slider."""
        return ipywidgets.FloatSlider(
            self.start, min=self.low, max=self.high, step=self.step, description=self.label,
            readout_format=f".{self.digits}f", continuous_update=False, **WIDE,
        )  # fmt: skip

    def text(self, value: Any) -> str:
        """The value as a reader sees it."""
        return f"{value:.{self.digits}f}"


@dataclass(frozen=True, slots=True)
class Steps:
    """A slider over listed numbers, such as learning rates a factor of ten apart. ``form`` formats one of them."""

    name: str
    label: str
    start: float
    options: Sequence[float]
    form: str = "{:g}"

    def values(self) -> list[float]:
        """Every value it can take, in order."""
        return [*self.options]

    def widget(self) -> ipywidgets.Widget:
        """The ipywidgets slider."""
        labelled = [(self.text(value), value) for value in self.options]
        return ipywidgets.SelectionSlider(
            options=labelled, value=self.start, description=self.label, continuous_update=False, **WIDE
        )

    def text(self, value: Any) -> str:
        """The value as a reader sees it."""
        return self.form.format(value)


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few named things."""

    name: str
    label: str
    start: str
    options: Sequence[str]

    def values(self) -> list[str]:
        """Every value it can take, in order."""
        return [*self.options]

    def widget(self) -> ipywidgets.Widget:
        """A drop-down list."""
        return ipywidgets.Dropdown(options=self.values(), value=self.start, description=self.label, **WIDE)

    def text(self, value: Any) -> str:
        """The value as a reader sees it."""
        return str(value)


@dataclass(frozen=True, slots=True)
class Switch:
    """On or off."""

    name: str
    label: str
    start: bool = False

    def values(self) -> list[bool]:
        """Off, then on."""
        return [False, True]

    def widget(self) -> ipywidgets.Widget:
        """A check box."""
        return ipywidgets.Checkbox(self.start, description=self.label, **WIDE)

    def text(self, value: Any) -> str:
        """The value as a reader sees it."""
        return "on" if value else "off"


Control = Slider | Steps | Choice | Switch


def check_controls(controls: Sequence[Control]) -> None:
    """`ValueError` where two controls share a name, or one starts at a value it cannot take."""
    names = [control.name for control in controls]
    for control in controls:
        if names.count(control.name) > 1:
            raise ValueError(f"controls must have different names, got {control.name!r} twice; rename one")
        check_value(control, control.start)


def check_value(control: Control, value: Any) -> Any:
    """The value of ``control`` that equals ``value``; `ValueError` where it can take no such value."""
    values = control.values()
    for candidate in values:
        same = candidate == value and isinstance(candidate, bool) == isinstance(value, bool)
        if not same and type(candidate) in (int, float) and type(value) in (int, float):
            same = abs(candidate - value) < 1e-9  # a browser's slider says 3.9999999999999996 for 4
        if same:
            return candidate
    listed = f"{values[0]} to {values[-1]}" if len(values) > 6 else ", ".join(map(str, values))
    step = f" in steps of {control.step:g}" if isinstance(control, Slider) else ""
    raise ValueError(f"{control.name} must be one of {listed}{step}, got {value!r}; choose one of these")
