"""Captions that cannot lie: every number in them comes from measured facts.

`see(fig, "{off:.0%} of the samples have no gradient", facts)` shows the figure and the sentence. A percentage or a
decimal number typed into the sentence is refused, since nobody would notice when it stops being true.
"""

from __future__ import annotations

import re
import string
from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING, Any

from ppo_lab.course.html import Card, show

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TYPED = re.compile(r"\d+[.,]\d+|\d\s?%")


class Drawn:
    """A figure as a picture, with a text beside it by which stored outputs are compared."""

    def __init__(self, figure: Figure, text: str) -> None:
        from ppo_lab.course.panels.picture import encoded, png

        self.text, self._picture = text, encoded(png(figure, compress=9))

    def __repr__(self) -> str:
        return f"Figure: {self.text}"

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        return {"text/plain": repr(self), "image/png": self._picture}


def fill(template: str, facts: Mapping[str, Any], *, what: str = "caption") -> str:
    """The template with its ``{fact:format}`` filled in; `ValueError` names a fact that there is not.

    >>> fill("{off:.0%} off", {"off": 0.25})
    '25% off'
    """
    try:
        return template.format_map(facts)
    except KeyError as error:
        known = ", ".join(facts) or "none"
        raise ValueError(f"the {what} names {error}, which is not among the facts ({known}); fix the name") from None
    except (TypeError, ValueError, IndexError, AttributeError) as error:
        raise ValueError(f"the {what} {template!r} cannot be filled in: {error}; fix its formats") from None


def caption(template: str, facts: Mapping[str, Any]) -> str:
    """The sentence, after checking that its numbers are facts.

    Raises:
        ValueError: no fact in it, a fact that was not measured, or a number typed in.
    """
    parts = [*string.Formatter().parse(template)]
    if not any(name for _, name, _, _ in parts):
        raise ValueError(f"the caption must contain a measured fact, as {{off:.0%}}, got {template!r}; name one")
    if typed := TYPED.search("".join(literal for literal, *_ in parts)):
        raise ValueError(f"the caption has the number {typed[0]!r} typed into it; measure it and write {{name:format}}")
    return fill(template, facts)


def see(figure: Any, template: str, facts: Mapping[str, Any] | None = None) -> None:
    """Show a figure and, below it, what to see in it.

    Args:
        figure: a matplotlib figure; a `Panel` (already on the page, so only the sentence is shown); or None.
        template: the sentence, with ``{fact:format}`` for every number.
        facts: what was measured; a panel brings its own.
    """
    own = {**getattr(figure, "settings", {}), **getattr(figure, "facts", {})}
    text = caption(template, {**own, **(facts or {})})
    if figure is not None and hasattr(figure, "savefig"):
        show(Drawn(figure, text))
    show(Card(f"What to see: {text}", f"<i>What to see:</i> {escape(text)}"))
