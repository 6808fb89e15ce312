"""Language: four models, one loop. Transformers is imported where it is used, not here."""

from .score import RewardError
from .train import Run

__all__ = ["RewardError", "Run"]
