"""Settings of what a control run is paid besides the environment's reward."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PositiveFloat, PositiveInt

from .base import Config


class ShapingConfig(Config):
    """A reward for getting nearer, as the reader understands near. Returns in log and evaluation are without it."""

    potential: str | None = Field(
        None, description="module:function or file.py:function, Φ(observations (n, *O)) -> (n,); None: no shaping."
    )
    kind: Literal["difference", "level"] = Field(
        "difference",
        description="difference: γ·Φ(s') - Φ(s), which keeps the best policies (Ng et al. 1999); level: Φ(s') itself, "
        "which can make standing still the best.",
    )
    weight: PositiveFloat = Field(1.0, description="Multiplies it. Higher: counts more against the reward.")
    adapt: Literal["fixed", "zero_share"] = Field(
        "fixed", description="zero_share: weight ×1.1 while more than 20 % of a rollout's episodes earn nothing, ×0.9 "
        "below 10 %.",
    )  # fmt: skip


class ExplorationConfig(Config):
    """A reward for what is new. Returns in log and evaluation are without it."""

    bonus: Literal["none", "count", "prediction"] = Field(
        "none", description="count: 1/√visits of a cell; prediction: error of a network that learns a random one (RND)."
    )
    weight: PositiveFloat = Field(0.1, description="Multiplies the bonus. Higher: explores longer, earns later.")
    resolution: PositiveFloat = Field(
        0.5, description="Side of a cell, in units of the observation (count). Higher: fewer cells, familiar sooner."
    )
    width: PositiveInt = Field(32, description="Hidden and output width of both networks (prediction). More: finer.")
    rate: PositiveFloat = Field(1e-3, description="Learning rate (prediction). Higher: familiar sooner.")
    passes: PositiveInt = Field(4, description="Steps on each rollout (prediction). More: familiar sooner, slower.")
