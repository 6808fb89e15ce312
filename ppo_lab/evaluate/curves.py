"""A learning curve in a few numbers: on one scale, smoothed, and whether the run fell down after it had learned."""

from __future__ import annotations

import math
from collections.abc import Sequence


def normalized_score(score: float, *, random: float, reference: float) -> float:
    r""":math:`(s - s_{random}) / (s_{reference} - s_{random})`: 0 as good as chance, 1 as good as the reference.

    It makes environments comparable; it may leave [0, 1] on both sides.

    Args:
        score: return of a policy.
        random: return of a policy that acts at random.
        reference: return that counts as solved.

    Raises:
        ValueError: the two ends are the same.

    Source: Mnih et al. 2015, Human-level control, table 2.

    >>> normalized_score(260.0, random=20.0, reference=500.0)
    0.5
    """
    if random == reference:
        raise ValueError(f"random and reference must differ, got {random} twice; measure a policy that acts at random")
    return (score - random) / (reference - random)


def smoothed(scores: Sequence[float], *, decay: float) -> list[float]:
    """Exponential moving average :math:`m_t = d m_{t-1} + (1 - d) s_t`, started at the first score.

    Raising ``decay`` makes it calmer and later.

    >>> smoothed([0.0, 1.0, 1.0], decay=0.5)
    [0.0, 0.5, 0.75]
    """
    if not 0 <= decay < 1:
        raise ValueError(f"decay must be in [0, 1), got {decay}; 0.5 forgets half a score")
    means: list[float] = []
    for score in scores:
        means.append(decay * means[-1] + (1 - decay) * score if means else score)
    return means


def deepest_fall(
    scores: Sequence[float], *, random: float, reference: float, decay: float = 0.5, learned: float = 0.2
) -> float:
    r""":math:`\min_t m_t / \max_{s \le t} m_s` of the smoothed, normalised score m: what is left of the best so far.

    A run that never learned cannot fall: only steps count at which the running best has reached ``learned``; 1 where
    there is none.

    Args:
        scores: returns along the run, evenly spaced.
        random, reference: as `normalized_score` takes them.
        decay: of the moving average. Higher: short dips are forgiven.
        learned: normalised score from which on there is something to lose. Higher: fewer falls.

    >>> deepest_fall([20.0, 500.0, 260.0], random=20.0, reference=500.0, decay=0.0)
    0.5
    """
    best, deepest = -math.inf, 1.0
    for score in smoothed([normalized_score(s, random=random, reference=reference) for s in scores], decay=decay):
        best = max(best, score)
        if best >= learned:
            deepest = min(deepest, score / best)
    return deepest


def crashed(
    scores: Sequence[float], *, random: float, reference: float, decay: float = 0.5, learned: float = 0.2
) -> bool:
    """Whether the smoothed, normalised score ever falls below half of its running best; arguments as `deepest_fall`.

    >>> crashed([20.0, 500.0, 500.0, 20.0, 20.0], random=20.0, reference=500.0)
    True
    >>> crashed([20.0, 500.0, 500.0, 300.0, 300.0], random=20.0, reference=500.0)
    False
    """
    return deepest_fall(scores, random=random, reference=reference, decay=decay, learned=learned) < 0.5


def binned(when: Sequence[float], scores: Sequence[float], *, total: float, bins: int) -> list[float]:
    """Mean score in each of ``bins`` equal spans of (0, total]; an empty span repeats the one before it.

    Runs whose episodes end at different times become comparable. Empty spans at the start take the first mean.

    >>> binned([1, 2, 8], [10.0, 20.0, 30.0], total=8, bins=4)
    [15.0, 15.0, 15.0, 30.0]
    """
    if len(when) != len(scores) or not scores:
        raise ValueError(f"binned needs a time for each score, got {len(when)} and {len(scores)}; give one each")
    groups: list[list[float]] = [[] for _ in range(bins)]
    for at, score in zip(when, scores, strict=True):
        groups[min(max(math.ceil(at / total * bins) - 1, 0), bins - 1)].append(score)
    means: list[float] = []
    first = next(sum(g) / len(g) for g in groups if g)
    for group in groups:
        means.append(sum(group) / len(group) if group else means[-1] if means else first)
    return means
