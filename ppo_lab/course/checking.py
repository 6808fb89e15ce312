"""`check(fn)`: one card that says TODO, FAIL or PASS, and gives back something the notebook can go on with.

A function that passes comes back as it is. Otherwise a `StandIn` does: it computes with the package's function, so the
rest of the notebook runs, but it remembers the learner's, and checking *it* checks the learner's again. So no number of
clicks turns a wrong answer into a right one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from html import escape
from typing import Any

from ppo_lab.course.exercises import Exercise, Verdict, examine, exercise
from ppo_lab.course.html import EDGES, Card, code, details, show
from ppo_lab.course.session import SESSION

MARKS = {"TODO": ("○", "open"), "FAIL": ("✗", "bad"), "PASS": ("✓", "good")}
GOES_ON = "The rest of the notebook runs with the package's function until yours passes."
TRANSFER = "This one is not in the package, and nothing below needs it; your instructor has an answer."


class StandIn:
    """The package's function under the learner's name, until theirs passes; in a transfer exercise their own."""

    def __init__(self, entry: Exercise, mine: Callable[..., Any]) -> None:
        self.mine = mine
        self._entry, self._asked_for_mine = entry, False
        functools.update_wrapper(self, entry.reference or mine)
        self.__name__ = self.__qualname__ = entry.name

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """The package's function; while it is being checked, the learner's (which may call itself)."""
        if self._asked_for_mine or self._entry.reference is None:
            return self.mine(*arguments, **options)
        return self._entry.reference(*arguments, **options)

    def examine(self) -> Verdict:
        """Judge the learner's function."""
        self._asked_for_mine = True
        try:
            return examine(self._entry, self.mine)
        finally:
            self._asked_for_mine = False

    def __repr__(self) -> str:
        return f"<{self.__name__}: the package's, standing in until yours passes>"


def check(function: Callable[..., Any]) -> Callable[..., Any]:
    """Examine an exercise under the function's own name, show the card, and return the function or a stand-in.

    Raises:
        ValueError: no exercise of that name.
    """
    entry = exercise(getattr(function, "__name__", repr(function)))
    if isinstance(function, StandIn):
        verdict, mine = function.examine(), function.mine
    elif entry.reference is not None and function is entry.reference:
        verdict = Verdict("FAIL", entry.name, "your function", why="This is the package's own. Write yours.")
        mine = _blank
    else:
        verdict, mine = examine(entry, function), function
    show(card(entry, verdict))
    SESSION.note("exercise", entry.name, verdict.verdict)
    return mine if verdict.verdict == "PASS" else StandIn(entry, mine)


def _blank(*_: Any, **__: Any) -> Any:
    """Stands for a function that was never written."""
    raise NotImplementedError


def card(entry: Exercise, verdict: Verdict) -> Card:
    """What the learner sees: the verdict, where and why, and what opens on a click."""
    mark, edge = MARKS[verdict.verdict]
    head = f'<b><span style="color:{EDGES[edge]}">{mark}</span> {verdict.verdict}</b> <code>{escape(entry.name)}</code>'
    if verdict.verdict == "TODO":
        words = f"{escape(entry.task)} ({entry.minutes} minutes, {_lines(entry.lines)})"
    else:
        words = escape(str(verdict)[:1].upper() + str(verdict)[1:])
    helps = "".join(
        details(f"hint {i} of {len(entry.hints)}", escape(hint)) for i, hint in enumerate(entry.hints, 1)
    )
    if entry.solution:
        helps += details("solution", code(entry.solution))
    rest = GOES_ON if entry.reference else TRANSFER
    after = "" if verdict.verdict == "PASS" else f'<div style="margin-top:.4em;opacity:.8">{rest}</div>'
    text = f"{mark} {verdict.verdict} {entry.name}: {verdict}"
    return Card(text, f"{head}<div>{words}</div>{helps}{after}", edge=edge)


def _lines(count: int) -> str:
    return "1 line" if count == 1 else f"{count} lines"
