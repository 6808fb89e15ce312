"""The key figures of the notebooks, by name: what one draws is a tested function here, not a cell there.

A notebook shows a panel with one line, ``course.panel("beta")``. Tests walk `PANELS`: missions over the whole grid, and
what is drawn as data.
"""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ppo_lab.course.panels import Panel

PANELS: dict[str, str] = {  # name -> the function that makes it, below ppo_lab.course.figures
    "reinforce": "reinforce:reinforce_panel",
    "baselines": "baselines:baselines_panel",
    "gae": "gae:gae_panel",
    "ablation": "ablation_panel:ablation_panel",
    "beta": "beta:beta_panel",
    "pressure": "pressure:pressure_panel",
    "ribbon": "ribbon:ribbon_panel",
    "clipping": "clipping:clipping_panel",
    "importance": "importance:importance_panel",
    "reward_models": "reward_models:reward_models_panel",
    "memory": "memory:memory_panel",
    "lengths": "lengths:lengths_panel",
}


def panel(name: str) -> Panel:
    """Make the panel of that name; `ValueError` with the nearest name otherwise."""
    if name not in PANELS:
        near = get_close_matches(name, PANELS, n=1) or [", ".join(PANELS)]
        raise ValueError(f"there is no panel {name!r}; did you mean {near[0]}?")
    module, _, function = PANELS[name].partition(":")
    made: Panel = getattr(import_module(f"ppo_lab.course.figures.{module}"), function)()
    return made
