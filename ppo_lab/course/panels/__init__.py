"""Panels: key figures with controls, facts, missions and one picture."""

from ppo_lab.course.panels.controls import Choice, Slider, Steps, Switch
from ppo_lab.course.panels.missions import MissionReport
from ppo_lab.course.panels.panel import Panel

__all__ = ["Choice", "MissionReport", "Panel", "Slider", "Steps", "Switch"]
