"""Schedules: what to multiply the base learning rate (or clip, or entropy weight) by at each step, counted from 0.

Steps are optimizer steps of the *run*, the same number on every rank: a schedule that each of 4 processes advances
once a step would end four times too early.
"""

from __future__ import annotations

import math

from ppo_lab.core._checks import check_range


def linear_anneal(step: float, *, total: float) -> float:
    """From 1 at step 0 straight down to 0 at ``total``, and 0 after.

    Source: Schulman's baselines; Huang et al. 2022, 37 Implementation Details of PPO, no. 4.

    >>> linear_anneal(2500, total=10_000)
    0.75
    """
    check_range("total", total, 1, math.inf, fix="the number of optimizer steps of the run")
    return min(max(1 - step / total, 0.0), 1.0)


def warmup_cosine(step: float, *, total: float, warmup: float, start: float = 0.0, floor: float = 0.0) -> float:
    r"""From ``start`` straight up to 1 at ``warmup``, then half a cosine down to ``floor`` at ``total``, flat after.

    Past the warm-up, :math:`floor + (1 - floor)(1 + \cos \pi q)/2` with q from 0 to 1. Raising ``warmup`` protects the
    first steps, while Adam's moments are young; raising ``floor`` keeps learning at the end. ``start = 1/(warmup +
    1)`` makes step 0 count as nanoGPT has it; 10 % warm-up from 1 %, then to 1 %, is ``warmup=total / 10, start=0.01,
    floor=0.01``.

    Args:
        step: from 0.
        total, warmup: in steps, warmup ≤ total.
        start, floor: multipliers in [0, 1].

    Source: Loshchilov & Hutter 2017, SGDR, eq. 5, one cycle.

    >>> [warmup_cosine(s, total=110, warmup=10) for s in (0, 5, 10, 60, 110, 500)]
    [0.0, 0.5, 1.0, 0.5, 0.0, 0.0]
    """
    check_range("warmup", warmup, 0, total, fix="shorten the warm-up or lengthen the run")
    check_range("start", start, 0, 1, fix="it is a share of the base rate")
    check_range("floor", floor, 0, 1, fix="it is a share of the base rate")
    if step < warmup:
        return start + (1 - start) * step / warmup
    q = min((step - warmup) / (total - warmup), 1.0) if total > warmup else 1.0
    return floor + (1 - floor) * (1 + math.cos(math.pi * q)) / 2


def periodic_restart(step: float, *, period: float, decay: float = 0.5) -> float:
    r"""Cosine cycles of ``period`` steps from a peak towards 0; each restart's peak is ``decay`` times the one before.

    In cycle c, at the share q of it: :math:`decay^c (1 + \cos \pi q)/2`. ``decay=1`` restarts at the full rate.
    Source: Loshchilov & Hutter 2017, SGDR, eq. 5.

    >>> [round(periodic_restart(s, period=10), 3) for s in (0, 5, 10, 15, 20)]
    [1.0, 0.5, 0.5, 0.25, 0.25]
    """
    check_range("period", period, 1, math.inf, fix="the number of steps between restarts")
    check_range("decay", decay, 0, 1, fix="1 restarts at the full rate")
    cycle, into = divmod(step, period)
    return decay**cycle * (1 + math.cos(math.pi * into / period)) / 2
