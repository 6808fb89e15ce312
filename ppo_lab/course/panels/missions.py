"""Missions of a panel, and the proof over the whole grid of settings that they are worth setting out on."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ppo_lab.course.panels.controls import Control

Facts = Mapping[str, Any]
Predicate = Callable[[Facts, Mapping[str, Any]], bool]
RARE, COMMON = 0.005, 0.15  # a mission is met in at least and at most this share of the settings
MOST_SETTINGS = 4000


@dataclass(frozen=True, slots=True)
class MissionReport:
    """What the grid says of one mission."""

    text: str
    at_start: bool  # already met before anything was moved
    share: float  # of all settings
    one_move: tuple[str, ...]  # controls that meet it alone, pushed to one of their ends

    @property
    def reachable(self) -> bool:
        """Whether any setting of the grid meets it."""
        return self.share > 0

    def faults(self) -> Iterator[str]:
        """Why it is no good mission, one sentence each."""
        if self.at_start:
            yield f"mission {self.text!r} is met at the start"
        if not self.reachable:
            yield f"mission {self.text!r} cannot be met"
        elif not RARE <= self.share <= COMMON:
            yield f"mission {self.text!r} is met in {self.share:.2%} of the settings, not in {RARE:.1%} to {COMMON:.0%}"
        for name in self.one_move:
            yield f"mission {self.text!r} is met by {name} alone at its end"


def thinned(values: Sequence[Any], most: int) -> list[Any]:
    """At most ``most`` of the values, evenly spread, both ends among them.

    >>> thinned(range(10), 4)
    [0, 3, 6, 9]
    """
    if len(values) <= most:
        return [*values]
    return [values[round(i * (len(values) - 1) / (most - 1))] for i in range(most)]


def grid(controls: Sequence[Control], most: int = MOST_SETTINGS) -> Iterator[dict[str, Any]]:
    """All settings, or where there are too many an even choice of the values of each control."""
    lists = [control.values() for control in controls]
    limit = max(map(len, lists), default=0)
    while limit > 2:
        thin = [thinned(values, limit) for values in lists]
        size = 1
        for values in thin:
            size *= len(values)
        if size <= most:
            break
        limit -= 1
    for combination in itertools.product(*(thinned(values, limit) for values in lists)):
        yield dict(zip((control.name for control in controls), combination, strict=True))


def mission_report(
    controls: Sequence[Control],
    facts: Callable[..., Facts],
    missions: Sequence[tuple[str, Predicate]],
    *,
    most: int = MOST_SETTINGS,
) -> list[MissionReport]:
    """Walk the grid once and judge every mission on it."""
    start = {control.name: control.start for control in controls}
    at_start = facts(**start)
    seen = [(facts(**settings), settings) for settings in grid(controls, most)]
    ends = [(c.name, {**start, c.name: end}) for c in controls for end in (c.values()[0], c.values()[-1])]
    pushed = [(name, facts(**settings), settings) for name, settings in ends]
    return [
        MissionReport(
            text,
            at_start=bool(met(at_start, start)),
            share=sum(bool(met(known, settings)) for known, settings in seen) / len(seen),
            one_move=tuple(dict.fromkeys(name for name, known, settings in pushed if met(known, settings))),
        )
        for text, met in missions
    ]
