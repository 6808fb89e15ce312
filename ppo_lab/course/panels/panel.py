"""A panel: the key figure of a notebook, with controls beside it, declared by data.

    Panel("Clipping", controls=[Slider("clip", "clip range ε", 0.2, 0.02, 0.6, 0.02), …],
          facts=facts,                       # facts(clip=…, moved=…) -> dict: every number the panel shows
          build=build,                       # build(figure) -> artists, once
          draw=draw,                         # draw(artists, facts, settings): move them
          table={"gradient off": "{off:.0%}"}, alt="{off:.0%} of the samples have no gradient",
          missions=[("switch half of them off", lambda facts, settings: facts["off"] > 0.5)])

One figure is drawn once and its artists moved after that. A burst of changes costs two drawings at most: the first
change is drawn at once, the last one when the burst is over.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

import ipywidgets
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ppo_lab.course.captions import fill
from ppo_lab.course.html import EDGES, INK, table
from ppo_lab.course.panels.controls import Control, check_controls, check_value
from ppo_lab.course.panels.missions import MOST_SETTINGS, Facts, MissionReport, Predicate, mission_report
from ppo_lab.course.panels.picture import encoded, image, png
from ppo_lab.course.session import SESSION

QUIET_SECONDS = 0.15  # a burst is over after this long without a change
WIDTH = 820  # pixels of the picture at most
LEFT = {"flex": "1 1 21em", "min_width": "19em"}
RIGHT = {"flex": "3 1 36em", "min_width": "min(36em, 100%)"}
OUTER = {"flex_flow": "row wrap", "align_items": "flex-start", "max_width": "1180px"}
_OPEN: weakref.WeakValueDictionary[str, Panel] = weakref.WeakValueDictionary()


class Panel:
    """Controls, facts, missions and one picture. See the module's head for how to declare one.

    Args:
        title: what it shows; running its cell again replaces the panel of that title.
        controls: `Slider`, `Steps`, `Choice`, `Switch`; their names are the keywords of ``facts``.
        facts: a pure function of the settings.
        build, draw: make the artists in an empty figure; move them.
        table: label to format string over facts and settings, with units.
        alt: format string of the picture's alternative text.
        missions: (text, ``predicate(facts, settings)``); one that was met stays ticked.
        size: of the figure, in inches at 100 dots each.
    """

    def __init__(
        self,
        title: str,
        *,
        controls: Sequence[Control],
        facts: Callable[..., Facts],
        build: Callable[[Figure], Any],
        draw: Callable[[Any, Facts, Mapping[str, Any]], None],
        table: Mapping[str, str],
        alt: str,
        missions: Sequence[tuple[str, Predicate]] = (),
        size: tuple[float, float] = (8.2, 3.6),
    ) -> None:
        check_controls(controls)
        self.title, self.controls, self.missions = title, tuple(controls), tuple(missions)
        self._compute, self._draw, self._table, self._alt = facts, draw, dict(table), alt
        self.figure = Figure(figsize=size, dpi=100)
        FigureCanvasAgg(self.figure)
        self._artists = build(self.figure)
        self.facts: Facts = {}
        self.done: set[int] = set()
        self.alt, self.png, self.renders = "", b"", 0
        self._quiet_until = 0.0
        self._timer: asyncio.TimerHandle | None = None
        if (former := _OPEN.get(title)) is not None:
            former.close()
        _OPEN[title] = self
        self._make_widgets()
        self.render()

    # --- what a reader does ------------------------------------------------------------------------------------------

    @property
    def settings(self) -> dict[str, Any]:
        """The value of every control."""
        return {c.name: check_value(c, self._widgets[c.name].value) for c in self.controls}

    def set(self, **settings: Any) -> Panel:
        """Move controls by name, as ``panel.set(clip=0.1)``; one drawing, whatever their number.

        Raises:
            ValueError: an unknown name, or a value that the control cannot take.
        """
        by_name = {control.name: control for control in self.controls}
        if unknown := settings.keys() - by_name:
            known = ", ".join(by_name)
            raise ValueError(f"the panel has no control {', '.join(sorted(unknown))}; it has {known}")
        wanted = {name: check_value(by_name[name], value) for name, value in settings.items()}
        self._muted = True
        try:
            for name, value in wanted.items():
                self._widgets[name].value = value
        finally:
            self._muted = False
        self.render()
        return self

    def reset(self) -> Panel:
        """Every control where it started; missions stay ticked."""
        return self.set(**{control.name: control.start for control in self.controls})

    # --- drawing -----------------------------------------------------------------------------------------------------

    def render(self) -> None:
        """Compute the facts of the present settings, move the artists, tick missions, show."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.renders += 1
        settings = self.settings
        self.facts = self._compute(**settings)
        known = {**settings, **self.facts}
        self.alt = fill(self._alt, known, what="alternative text")
        self._rows = [(label, fill(form, known, what="table")) for label, form in self._table.items()]
        self._draw(self._artists, self.facts, settings)
        self.png = png(self.figure)
        for i, (text, met) in enumerate(self.missions):
            if i not in self.done and met(self.facts, settings):
                self.done.add(i)
                if self.renders > 1:
                    SESSION.note("mission", f"{self.title}: {text}", "met")
        self._text.value = self._facts_html()
        self._picture.value = image(self.png, self.alt, width=WIDTH)

    def _changed(self, _: Any) -> None:
        """A control moved: draw at once after a rest, else when the burst is over."""
        if self._muted:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # plain Python: nobody would call back
            self._try_render()
            return
        if loop.time() >= self._quiet_until:
            self._try_render()
        else:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = loop.call_later(QUIET_SECONDS, self._try_render)
        self._quiet_until = loop.time() + QUIET_SECONDS

    def _try_render(self) -> None:
        """Draw; what goes wrong is said in the panel, since nobody sees an exception of a callback."""
        try:
            self.render()
        except Exception as error:
            words = escape(f"This setting cannot be drawn: {type(error).__name__}: {error}")
            self._text.value = f'<div class="ppo-facts" role="alert" style="color:{EDGES["bad"]}">{words}</div>'

    # --- the page ----------------------------------------------------------------------------------------------------

    def _make_widgets(self) -> None:
        self._muted = False
        self._widgets = {control.name: control.widget() for control in self.controls}
        for widget in self._widgets.values():
            widget.observe(self._changed, "value")
        button = ipywidgets.Button(description="Reset", tooltip=f"Reset {self.title}", layout={"width": "7em"})
        button.on_click(lambda _: self.reset())
        self._text, self._picture = ipywidgets.HTML(), ipywidgets.HTML()
        left = ipywidgets.VBox([*self._widgets.values(), button, self._text], layout=LEFT)
        right = ipywidgets.VBox([self._picture], layout=RIGHT)
        self.box = ipywidgets.HBox([left, right], layout=OUTER)
        self.box.add_class("ppo-panel")

    def _facts_html(self) -> str:
        """The table of facts and the missions, announced by screen readers when they change."""
        lines = []
        for i, (text, _) in enumerate(self.missions):
            mark, word, color = ("✓", "done", EDGES["good"]) if i in self.done else ("○", "mission", "inherit")
            head = f'<b><span style="color:{color}">{mark}</span> {word} {i + 1}</b>'
            lines.append(f'<div style="margin-top:.35em">{head}: {escape(text)}</div>')
        body = table(self._rows, align="right") + "".join(lines)
        return f'<div class="ppo-facts" aria-live="polite" style="color:{INK};line-height:1.4">{body}</div>'

    def __repr__(self) -> str:
        settings = self.settings
        moved = ", ".join(f"{c.label} {c.text(settings[c.name])}" for c in self.controls)
        facts = ", ".join(f"{label} {value}" for label, value in self._rows)
        return f"Panel {self.title}: {moved}\n{facts}\n(run this cell to move the controls)"

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        """The live widget, and for a static page its picture and its numbers as text."""
        if self._timer is not None:
            self.render()
        live = self.box._repr_mimebundle_()
        view = {key: value for key, value in live.items() if key.startswith("application/")}
        return {"text/plain": repr(self), "image/png": encoded(self.png), **view}

    def close(self) -> None:
        """Take the widgets off the page."""
        if self._timer is not None:
            self._timer.cancel()
        for widget in (*self._widgets.values(), self._text, self._picture, self.box):
            widget.close()

    # --- missions ----------------------------------------------------------------------------------------------------

    def mission_report(self, *, most: int = MOST_SETTINGS) -> list[MissionReport]:
        """Judge every mission over the grid of settings (at most ``most`` of them); nothing is drawn."""
        return mission_report(self.controls, self._compute, self.missions, most=most)

    def mission_faults(self, *, most: int = MOST_SETTINGS) -> list[str]:
        """Sentences on missions that are met at the start, out of reach, too easy, or met by one control at its end."""
        return [fault for report in self.mission_report(most=most) for fault in report.faults()]
