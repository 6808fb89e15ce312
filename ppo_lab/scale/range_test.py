"""The learning-rate range test: raise the rate a little each step and watch where the loss falls, and where it breaks.

Source: Smith 2017, Cyclical Learning Rates for Training Neural Networks, sec. 3.3 (there the rate rises linearly).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass


def rate_at(step: int, *, steps: int, low: float = 1e-7, high: float = 1e-4) -> float:
    r"""Rate of a step, :math:`low \cdot (high/low)^{i/(n-1)}`: equal factors, so each power of ten gets equal steps.

    >>> [f"{rate_at(i, steps=4):.0e}" for i in range(4)]
    ['1e-07', '1e-06', '1e-05', '1e-04']
    """
    if not 0 < low < high or steps < 2 or not 0 <= step < steps:
        raise ValueError(
            f"a range test needs 0 < low < high and steps of at least 2, got low {low}, high {high}, step {step} of "
            f"{steps}; 1e-7 to 1e-4 in 100 steps is usual for language models"
        )
    return low * (high / low) ** (step / (steps - 1))


@dataclass(frozen=True, slots=True)
class RangeTest:
    """Rates, losses as they came, smoothed losses; the rates that follow from them."""

    rates: tuple[float, ...]
    losses: tuple[float, ...]
    smooth: tuple[float, ...]
    best: float  # rate of the lowest smoothed loss
    suggested: float  # a fraction of it
    broke_at: float | None  # rate at which the loss blew up, if it did

    @property
    def sees_the_end(self) -> bool:
        """Whether the range was wide enough: the loss turned before the last rate."""
        return self.broke_at is not None or self.best < self.rates[-1]


def range_test(
    train: Callable[[float], float],
    *,
    steps: int = 100,
    low: float = 1e-7,
    high: float = 1e-4,
    smooth: float = 0.8,
    blow_up: float = 2.0,
    fraction: float = 0.1,
) -> RangeTest:
    """Train with a rising rate until the loss breaks, and suggest a rate.

    Args:
        train: one optimizer step at this rate on a fresh batch; returns its loss, positive. The weights are used up.
        steps, low, high: of the range. ``smooth``: weight of the past in the running mean, corrected for its start.
        blow_up: stop where the smoothed loss passes this times its lowest value, or is not finite.
        fraction: of the rate with the lowest loss that is suggested. By then the loss has long stopped falling, so a
            tenth of it is safe and a half is brave.
    """
    rates, losses, means = [], [], []
    mean, broke = 0.0, None
    for i in range(steps):
        rate = rate_at(i, steps=steps, low=low, high=high)
        loss = float(train(rate))
        mean = smooth * mean + (1 - smooth) * loss
        rates.append(rate)
        losses.append(loss)
        means.append(mean / (1 - smooth ** (i + 1)))
        if not math.isfinite(loss) or means[-1] > blow_up * min(means):
            broke = rate
            break
    finite = [x if math.isfinite(x) else math.inf for x in means]
    best = rates[finite.index(min(finite))]
    return RangeTest(tuple(rates), tuple(losses), tuple(means), best, fraction * best, broke)
