"""A bet: the reader commits before anything is computed, and the notebook reveals later what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from ppo_lab.course.html import INK, Card, show
from ppo_lab.course.session import SESSION


class Bet:
    """A question with options to click. Stored outputs show it unanswered, the same on every machine."""

    def __init__(self, question: str, options: Sequence[str]) -> None:
        import ipywidgets

        if len(options) < 2 or len({*options}) != len(options):
            raise ValueError(f"a bet needs at least two different options, got {[*options]}; add one")
        self.question, self.options = question, tuple(options)
        buttons = ipywidgets.RadioButtons(options=options, value=None, layout={"width": "auto"})
        buttons.observe(lambda change: SESSION.note("bet", question, str(change["new"])), "value")
        head = ipywidgets.HTML(f'<div style="color:{INK}"><b>Bet:</b> {escape(question)}</div>')
        self._buttons, self._box = buttons, ipywidgets.VBox([head, buttons])
        self._box.add_class("ppo-bet")

    @property
    def choice(self) -> str | None:
        """What was clicked; None where nothing was."""
        return self._buttons.value

    def place(self, option: str) -> Bet:
        """Bet from code, for people who cannot click.

        Raises:
            ValueError: not one of the options.
        """
        if option not in self.options:
            raise ValueError(f"bet on one of {', '.join(self.options)}, got {option!r}")
        self._buttons.value = option
        return self

    def reveal(self, measured: str, because: str) -> None:
        """Compare the bet with what was measured.

        Args:
            measured: the option that turned out right, computed by the cells above, not typed in.
            because: one sentence of why.
        """
        if measured not in self.options:
            raise ValueError(f"measured must be one of {', '.join(self.options)}, got {measured!r}")
        if self.choice is None:
            yours, edge = "You placed no bet", "note"
        else:
            won = self.choice == measured
            yours = f"You bet on “{self.choice}”: {'right' if won else 'not this time'}"
            edge = "good" if won else "open"
        text = f"{yours}. Measured: {measured}. {because}"
        show(Card(text, f"{escape(yours)}. <b>Measured: {escape(measured)}.</b> {escape(because)}", edge=edge))

    def __repr__(self) -> str:
        return f"Bet: {self.question} {' / '.join(self.options)}"

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        """The live buttons; on a static page the question and its options."""
        live = self._box._repr_mimebundle_()
        view = {key: value for key, value in live.items() if key.startswith("application/")}
        options = "".join(f"<li>{escape(option)}</li>" for option in self.options)
        body = f"<b>Bet:</b> {escape(self.question)}<ul>{options}</ul>"
        return {"text/plain": repr(self), "text/html": Card(repr(self), body)._repr_html_(), **view}


def bet(question: str, *options: str) -> Bet:
    """Ask before computing; ``reveal`` on what comes back tells later.

    Args:
        question: one sentence. options: at least two, as a reader would say them.
    """
    placed = Bet(question, options)
    show(placed)
    return placed
