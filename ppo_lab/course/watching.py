"""`watch(run)`: iterate a run, and see it: progress, three curves, and the four lights, anew after every step.

    steps = [*course.watch(run)]

Shown live by one widget. When the run is over, its last picture and a line a light stay on the page.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING, Any

from ppo_lab.course.captions import Drawn
from ppo_lab.course.html import EDGES, INK, Card, show, table
from ppo_lab.course.lights import Light, lights

if TYPE_CHECKING:
    from ppo_lab.records import StepMetrics
    from ppo_lab.rlhf.train import Run

SIZE = (8.6, 2.5)  # inches, at 100 dots each


class Watch:
    """A run being watched; iterating it takes the steps. ``lit`` holds the lights of each step taken so far."""

    def __init__(self, run: Run) -> None:
        import ipywidgets
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        from ppo_lab.course.figures.live import build

        self.run, self.lit, self.rows = run, list[tuple[Light, ...]](), list[dict[str, Any]]()
        self.figure = Figure(figsize=SIZE, dpi=100)
        FigureCanvasAgg(self.figure)
        self._artists = build(self.figure, steps=run.config.steps, vocabulary=len(run.parts.tokenizer))
        self._page = ipywidgets.HTML(self._html())

    def __iter__(self) -> Iterator[StepMetrics]:
        show(self)
        for step in self.run:
            self.rows.append(step.row())
            self.lit.append(lights(self.run, step))
            self._page.value = self._html()
            yield step
        self._page.close()
        if self.lit:
            self._draw()
            show(Drawn(self.figure, f"{len(self.rows)} steps of {self.run.config.name}: score, KL and entropy"))
            show(lights_card(self.lit))

    def _draw(self) -> None:
        from ppo_lab.course.figures.live import draw

        draw(self._artists, self.rows)

    def _html(self) -> str:
        """Bar, picture and lights of this moment."""
        from ppo_lab.course.panels.picture import image, png

        self._draw()
        done, steps = len(self.rows), self.run.config.steps
        last = self.rows[-1] if self.rows else {}
        numbers = "".join(f", {label} {last[key]:.2f}" for key, label in (("score_mean", "score"), ("ref_kl_sum", "KL"))
                          if key in last)  # fmt: skip
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


def watch(run: Run) -> Watch:
    """Iterate ``run`` with its curves and its lights in sight: ``steps = [*course.watch(run)]``."""
    return Watch(run)
