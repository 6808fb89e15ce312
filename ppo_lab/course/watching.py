"""`watch(run)`: iterate a run, and see it: progress, three curves, and the four lights, anew after every step.

    steps = [*course.watch(run)]

Shown live by one widget. When the run is over, its last picture and a line a light stay on the page.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from ppo_lab.config import ControlConfig
from ppo_lab.course.captions import Drawn
from ppo_lab.course.html import EDGES, INK, Card, show, table
from ppo_lab.course.lights import Light

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIZE = (8.6, 2.5)  # inches, at 100 dots each
REST = 0.25  # seconds between two live pictures: a drawing costs 0.1, a step of CartPole as much


@dataclass(frozen=True, slots=True)
class View:
    """What is shown of a run of one kind."""

    build: Callable[[Figure], dict[str, Any]]
    draw: Callable[..., None]
    lights: Callable[[Any, Any], tuple[Light, ...]]
    numbers: tuple[tuple[str, str], ...]  # metric and its name, in the line above the picture
    says: str


def view_of(run: Any) -> View:
    """The view of a language run, or of a control run."""
    config = run.config
    if isinstance(config, ControlConfig):
        from ppo_lab.course.control_lights import control_lights
        from ppo_lab.course.figures import live_control

        choices = None if run.actions.gaussian else run.actions.outputs
        return View(
            lambda figure: live_control.build(figure, steps=config.steps, rows=config.rows, choices=choices),
            live_control.draw, control_lights, (("episode_return", "return"), ("policy_kl_exact", "KL")),
            "return, policy KL and entropy" if choices else "return, policy KL and spread",
        )  # fmt: skip
    from ppo_lab.course.figures import live
    from ppo_lab.course.lights import lights

    return View(
        lambda figure: live.build(figure, steps=config.steps, vocabulary=len(run.parts.tokenizer)),
        live.draw, lights, (("score_mean", "score"), ("ref_kl_sum", "KL")), "score, KL and entropy",
    )  # fmt: skip


class Watch:
    """A run being watched; iterating it takes the steps. ``lit`` holds the lights of each step taken so far."""

    def __init__(self, run: Any) -> None:
        import ipywidgets
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        self.run, self.lit, self.rows = run, list[tuple[Light, ...]](), list[dict[str, Any]]()
        self.view = view_of(run)
        self.figure = Figure(figsize=SIZE, dpi=100)
        FigureCanvasAgg(self.figure)
        self._artists = self.view.build(self.figure)
        self._page = ipywidgets.HTML(self._html())

    def __iter__(self) -> Iterator[Any]:
        show(self)
        drawn = 0.0
        for step in self.run:
            self.rows.append(step.row())
            self.lit.append(self.view.lights(self.run, step))
            if time.monotonic() - drawn > REST:
                self._page.value = self._html()
                drawn = time.monotonic()
            yield step
        self._page.close()
        if self.lit:
            self.view.draw(self._artists, self.rows)
            said = f"{len(self.rows)} steps of {self.run.config.name}: {self.view.says}"
            show(Drawn(self.figure, said))
            show(lights_card(self.lit))

    def _html(self) -> str:
        """Bar, picture and lights of this moment."""
        from ppo_lab.course.panels.picture import image, png

        self.view.draw(self._artists, self.rows)
        done, steps = len(self.rows), self.run.config.steps
        last = self.rows[-1] if self.rows else {}
        numbers = "".join(f", {label} {last[key]:.2f}" for key, label in self.view.numbers if key in last)
        said = f"step {done} of {steps}{numbers}"
        bar = f'<progress max="{steps}" value="{done}" aria-label="steps done"></progress> {said}'
        marks = " &nbsp; ".join(_mark(light) for light in (self.lit[-1] if self.lit else ()))
        picture = image(png(self.figure), f"{said.capitalize()}.", width=860)
        return f'<div class="ppo-watch" style="color:{INK}"><div>{bar}</div><div>{marks}</div>{picture}</div>'

    def __repr__(self) -> str:
        return f"Watching {self.run.config.name}, {self.run.config.steps} steps (run this cell to see it live)"

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        """The live widget; on a static page one line."""
        live = self._page._repr_mimebundle_()
        view = {key: value for key, value in live.items() if key.startswith("application/")}
        return {"text/plain": repr(self), **view}


def _mark(light: Light) -> str:
    color, mark, word = (EDGES["good"], "●", "holds") if light.green else (EDGES["bad"], "✗", "BROKEN")
    return f'<span style="white-space:nowrap"><b style="color:{color}">{mark}</b> {escape(light.name)}: {word}</span>'


def lights_card(lit: list[tuple[Light, ...]]) -> Card:
    """A line a light over all steps; a red one says what it means."""
    rows = []
    for one in zip(*lit, strict=True):
        held = sum(light.green for light in one)
        verdict = f"held in {held} of {len(one)} steps"
        rows.append((one[0].name, verdict if held == len(one) else f"{verdict}: {one[0].means}"))
    good = all(light.green for step in lit for light in step)
    text = "\n".join(["Lights", *(f"{name}: {verdict}" for name, verdict in rows)])
    return Card(text, table(rows, head=("light", "")), edge="good" if good else "bad")


def watch(run: Any) -> Watch:
    """Iterate ``run``, of language or control, with its curves and its lights in sight."""
    return Watch(run)
