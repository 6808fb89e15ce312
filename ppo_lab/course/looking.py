"""To look at: answers before and after training, the source of a function, the stations of the loop."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING, Any

from ppo_lab.course.captions import Drawn
from ppo_lab.course.html import Card, code, show, table
from ppo_lab.course.session import here

if TYPE_CHECKING:
    from ppo_lab.rlhf.compare import BeforeAfter

# Words that a trained policy says differ from machine to machine in rare places. Comments keep the mark of `here` off
# the page; a bracket inside would end it early.
OPEN, CLOSE = "<!--[this machine: -->", "<!--]-->"


def samples(pair: BeforeAfter, count: int = 4) -> None:
    """The same prompts and the same noise, answered before and after training, with the reward model's score."""
    rows = [
        (str(pair.before["prompt"][i]), *_cells(pair.before, i), *_cells(pair.after, i))
        for i in range(min(count, len(pair.before["prompt"])))
    ]
    head = ("prompt", "before", "score", "after", "score")
    inside = table(rows, head=head, align="right").replace("[", "&#91;").replace("]", "&#93;")
    lines = "\n".join(" | ".join(row) for row in rows).replace("]", ")")
    text = f"{len(rows)} prompts, before and after\n{here(lines)}"
    show(Card(text, f"<b>{len(rows)} prompts, before and after</b>{OPEN}{inside}{CLOSE}"))


def _cells(side: Any, i: int) -> tuple[str, str]:
    return str(side["response"][i]), f"{float(side['score'][i]):+.2f}"


def source(function: Callable[..., Any]) -> None:
    """Print a function of the package as it runs, without the text of its docstring."""
    text = textwrap.dedent(inspect.getsource(function))
    document = inspect.getdoc(function)
    name = function.__qualname__
    show(Card(f"Source of {name}\n{text}", f"<b>{escape(name)}</b>: {escape(document or '')}{code(text)}"))


def flow(station: int, **given: Any) -> None:
    """The stations of the loop with those up to ``station`` lit, and the shapes of what was just made.

    Args:
        station: 1 to 8; 0 lights nothing.
        given: tensors (shown by their shape) or numbers, by name.
    """
    from ppo_lab.course.figures.flow import STATIONS, flow_figure

    made = [f"{name} {_shape(value)}" for name, value in given.items()]
    figure = flow_figure(station, made)
    what = STATIONS[station - 1].title.replace("\n", " ") if station else "the loop"
    show(Drawn(figure, f"{what}, station {station} of {len(STATIONS)}" + "".join(f"; {text}" for text in made)))


def _shape(value: Any) -> str:
    if hasattr(value, "shape"):
        return "(" + ", ".join(map(str, value.shape)) + ("," if len(value.shape) == 1 else "") + ")"
    return f"{value:.3g}" if isinstance(value, float) else str(value)
