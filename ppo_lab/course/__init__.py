"""What only notebooks use: `from ppo_lab import course`.

    course.map(), course.broken()                  the notebooks and the paths; where to go with a sick run
    course.start("04_clipping")                    one line, unless something is missing
    course.symbols("r", "A", "ε")                  what they mean, on a click
    course.metric("clip_fraction")                 what a log calls it
    push = course.bet("Does PPO …?", "yes", "no")  before anything is computed; push.reveal(...) later
    course.panel("beta")                           the key figure with its controls and missions (a `Panel`)
    gae = course.check(gae)                        an exercise: one card, and something to go on with
    course.see(fig, "{off:.0%} …", facts)          a caption whose numbers were measured
    course.claim("A3.tail", "…", course.measure(…))    what write-ups say, against what came out
    course.recorded("name"), course.scratch("run")  a long experiment replayed; an empty folder to write in
    course.watch(run), course.flow(3, reward=reward), course.samples(pair)    a real run, to look at
    course.models(run), course.source(f)           who is in it; a function as it runs
    course.quiz(…), course.ledger(), course.progress()

The command line uses `lab.open_course`, `grade.grade` and `build.rebuild`. Panels load ipywidgets and matplotlib, and
only when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ppo_lab.course.bets import Bet, bet
from ppo_lab.course.captions import see
from ppo_lab.course.checking import check
from ppo_lab.course.claims import claim, ledger, measure
from ppo_lab.course.figures import panel
from ppo_lab.course.logging_names import metric
from ppo_lab.course.looking import flow, models, samples, source
from ppo_lab.course.maps import broken, map
from ppo_lab.course.questions import quiz
from ppo_lab.course.recordings import recorded
from ppo_lab.course.self_report import progress
from ppo_lab.course.session import here, scratch, start
from ppo_lab.course.terms import symbols

if TYPE_CHECKING:
    from ppo_lab.course.panels import Choice, Panel, Slider, Steps, Switch
    from ppo_lab.course.watching import watch

__all__ = [
    "Bet", "Choice", "Panel", "Slider", "Steps", "Switch", "bet", "broken", "check", "claim", "flow", "here", "ledger",
    "map",
    "measure", "metric", "models", "panel", "progress", "quiz", "recorded", "samples", "scratch", "see", "source",
    "start", "symbols", "watch",
]  # fmt: skip
_PANELS = ("Choice", "Panel", "Slider", "Steps", "Switch")
_ON_DEMAND = {**dict.fromkeys(_PANELS, "panels"), "watch": "watching"}


def __getattr__(name: str) -> Any:
    """Panels and `watch` on demand, and modules such as ``course.grade`` by their name."""
    if name in _ON_DEMAND:
        return getattr(import_module(f"ppo_lab.course.{_ON_DEMAND[name]}"), name)
    if name in {"build", "grade", "lab"}:
        return import_module(f"ppo_lab.course.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
