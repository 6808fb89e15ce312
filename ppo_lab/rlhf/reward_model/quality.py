"""How good a reward model is on pairs it has not seen; below a threshold PPO does not start."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ppo_lab.config import ConfigError
from ppo_lab.config.language import RewardModelConfig
from ppo_lab.core.preferences import bradley_terry_loss

from ..models.folders import QUALITY, read_figures

BINS = 10  # of confidence, from 0.5 to 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """Pairs on which the model was about equally sure: how sure, how often right, how many. Calibrated: equal."""

    confidence: float
    accuracy: float
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Agreement of score differences Δ = r(chosen) - r(rejected) with a set of labels.

    ``accuracy``: share with Δ > 0, ties wrong. ``margin``: mean Δ, in score units. ``log_loss``: Bradley–Terry, nats
    (log 2 knows nothing). ``ece``: expected calibration error, mean |accuracy - confidence| over the bins by count.
    """

    accuracy: float
    margin: float
    log_loss: float
    ece: float
    bins: tuple[Bin, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """A reward model on held-out pairs: against the labels one has, and against the labeller's true preference."""

    labels: Fit
    clean: Fit
    train_accuracy: float
    pairs: int
    held_out_pairs: int
    loss: tuple[float, ...]
    seconds: float

    @property
    def accuracy(self) -> float:
        """Held-out pair accuracy against the labels: what anyone can measure, and what the threshold looks at."""
        return self.labels.accuracy

    def figures(self) -> dict[str, Any]:
        """Plain data for ``quality.json``; the figures against the labels stand at the top."""
        data = asdict(self)
        return {**data.pop("labels"), **data}


def measure(difference: Tensor) -> Fit:
    r"""Figures of score differences ``(N,)``, chosen less rejected.

    The model's confidence in its own choice is :math:`\sigma(|\Delta|)`, between 0.5 and 1.

    Source: Guo et al. 2017, On Calibration of Modern Neural Networks, eq. 3.

    >>> fit = measure(torch.tensor([2.0, 2.0, 2.0, -2.0]))
    >>> fit.accuracy, fit.margin, round(fit.ece, 4)
    (0.75, 1.0, 0.1308)
    """
    difference = difference.double()
    right, sure = (difference > 0).double(), torch.sigmoid(difference.abs())
    place = ((sure - 0.5) * 2 * BINS).long().clamp(max=BINS - 1)
    bins = tuple(
        Bin(confidence=float(sure[place == b].mean()), accuracy=float(right[place == b].mean()),
            count=int((place == b).sum()))
        for b in range(BINS) if bool((place == b).any())
    )  # fmt: skip
    return Fit(
        accuracy=float(right.mean()),
        margin=float(difference.mean()),
        log_loss=float(bradley_terry_loss(difference, torch.zeros_like(difference)).mean()),
        ece=sum(b.count * abs(b.accuracy - b.confidence) for b in bins) / len(difference),
        bins=bins,
    )


def require_quality(quality: Quality, cfg: RewardModelConfig) -> None:
    """Raise `ConfigError` where held-out accuracy is below ``cfg.threshold``, unless the config allows it.

    A policy soon finds what a weak reward model likes and nobody else does.
    """
    if quality.accuracy < cfg.threshold and not cfg.allow_weak_reward_model:
        raise ConfigError(
            f"reward_model.threshold asks for held-out pair accuracy {cfg.threshold:.2f} before PPO starts, got "
            f"{quality.accuracy:.3f} on {quality.held_out_pairs} pairs; raise reward_model.pairs ({quality.pairs}) or "
            "epochs, or set reward_model.allow_weak_reward_model: true"
        )


def read_quality(folder: str | Path) -> Quality | None:
    """What a run noted beside its reward model; None for a folder or hub name without ``quality.json``."""
    try:
        data = read_figures(folder)
        if data is None:
            return None
        clean, labels = _fit(data.pop("clean")), _fit({k: data.pop(k) for k in Fit.__slots__})
        return Quality(labels=labels, clean=clean, **{**data, "loss": tuple(data["loss"])})
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ConfigError(f"{Path(folder) / QUALITY} must be as a run writes it, got {error!r}; remove it") from error


def _fit(data: dict[str, Any]) -> Fit:
    return Fit(**{**data, "bins": tuple(Bin(**b) for b in data["bins"])})
