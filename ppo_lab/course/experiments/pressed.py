"""What the recorded runs of `overoptimisation` say: numbers a seed, so that arms can be compared in pairs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ppo_lab.evaluate.overoptimisation import Form, GaoFit, gao_fit

Rows = Sequence[Mapping[str, Any]]


def runs(rows: Rows, arm: str) -> list[list[Mapping[str, Any]]]:
    """The rows of an arm, a list a seed, in order of the steps.

    Raises:
        ValueError: no such arm.
    """
    mine = [row for row in rows if row["arm"] == arm]
    if not mine:
        raise ValueError(f"there is no arm {arm!r} (known: {', '.join(sorted({row['arm'] for row in rows}))})")
    order = "step" if "step" in mine[0] else "n"
    seeds = sorted({row["seed"] for row in mine})
    return [sorted((row for row in mine if row["seed"] == seed), key=lambda row: row[order]) for seed in seeds]


def gained(run: Rows) -> list[float]:
    """Gold less what it was at the start, in deviations of the untouched policy's answers: the unit of the proxy."""
    return [(row["gold"] - run[0]["gold"]) / row["gold_std"] for row in run]


def ends(rows: Rows, arm: str, key: str = "gold") -> list[float]:
    """``key`` after the last step, a number a seed."""
    return [run[-1][key] for run in runs(rows, arm)]


def differences(first: Sequence[float], second: Sequence[float]) -> list[float]:
    """First less second, seed by seed.

    >>> differences([3.0, 2.0], [1.0, 1.0])
    [2.0, 1.0]
    """
    return [a - b for a, b in zip(first, second, strict=True)]


def unearned(rows: Rows, arm: str) -> list[float]:
    """At the end: how much more the proxy gained than gold did, both in deviations of the untouched policy."""
    return [run[-1]["proxy"] - run[0]["proxy"] - gained(run)[-1] for run in runs(rows, arm)]


def share_kept(rows: Rows, arm: str) -> int:
    """How much of what the proxy gained gold gained by the end, means over seeds: 0 half or more, 1 less, 2 nothing."""
    gold = sum(gained(run)[-1] for run in runs(rows, arm))
    proxy = sum(run[-1]["proxy"] - run[0]["proxy"] for run in runs(rows, arm))
    return 2 if gold < 0 else 0 if gold >= proxy / 2 else 1


def late(rows: Rows, arm: str, key: str = "gold") -> list[float]:
    """What the second half of the run changed: after the last step less after half of them."""
    found = []
    for run in runs(rows, arm):
        half = next(row for row in run if 2 * row["step"] == run[-1]["step"])
        found.append(run[-1][key] - half[key])
    return found


def at_kl(run: Rows, kl: float, key: str = "gold") -> float:
    """``key`` where the run first went ``kl`` nats away, on the straight line over √KL between two looks at it.

    Raises:
        ValueError: it never went so far.

    >>> at_kl([{"kl": 0.0, "gold": 0.0}, {"kl": 4.0, "gold": 1.0}], 1.0)
    0.5
    """
    for a, b in zip(run, run[1:], strict=False):
        if b["kl"] >= kl:
            low, high = (math.sqrt(max(row["kl"], 0.0)) for row in (a, b))
            share = (math.sqrt(kl) - low) / (high - low) if high > low else 1.0
            return float(a[key] + share * (b[key] - a[key]))
    raise ValueError(f"the run never went {kl:g} nats away, only {max(row['kl'] for row in run):.2f}; ask for less")


def gold_at(rows: Rows, arm: str, kl: float) -> list[float]:
    """Gold of an arm at this distance, a number a seed; see `at_kl`."""
    return [at_kl(run, kl) for run in runs(rows, arm)]


def common_kl(rows: Rows, *arms: str) -> float:
    """The distance that every run of these arms reached, in nats."""
    return min(max(row["kl"] for row in run) for arm in arms for run in runs(rows, arm))


def fits(rows: Rows, arm: str, form: Form) -> list[GaoFit]:
    """The form of Gao et al. fitted to each seed's gold, in deviations, over √KL; looks with KL ≤ 0 are left out."""
    found = []
    for run in runs(rows, arm):
        points = [(math.sqrt(row["kl"]), y) for row, y in zip(run, gained(run), strict=True) if row["kl"] > 0]
        found.append(gao_fit([d for d, _ in points], [y for _, y in points], form=form))
    return found


def agreement(rows: Rows, arms: Sequence[str]) -> list[float]:
    """In each seed, Spearman's rank correlation over the arms: held-out accuracy of the judge, and gold at the end."""
    accuracy, gold = ([ends(rows, arm, key) for arm in arms] for key in ("accuracy", "gold"))
    return [spearman(a, b) for a, b in zip(zip(*accuracy, strict=True), zip(*gold, strict=True), strict=True)]


def spearman(x: Sequence[float], y: Sequence[float]) -> float:
    """Rank correlation; 0 where one side is constant.

    >>> spearman([1, 2, 3], [1, 4, 9]), spearman([1, 2, 3], [3, 2, 1])
    (1.0, -1.0)
    """
    from scipy.stats import rankdata

    a, b = rankdata(x), rankdata(y)
    a, b = a - a.mean(), b - b.mean()
    size = float(((a @ a) * (b @ b)) ** 0.5)
    return float(a @ b) / size if size else 0.0


def share_lost(rows: Rows, arm: str, key: str = "distinct_2", **where: Any) -> list[float]:
    """Of the untouched policy's diversity at temperature 1, the share that an arm has lost, a number a seed."""
    before = [run[0][key] for run in _at(rows, "untouched", temperature=1.0)]
    after = [run[0][key] for run in _at(rows, arm, **{"temperature": 1.0, **where})]
    return [1 - b / a for a, b in zip(before, after, strict=True)]


def cooled(rows: Rows, arm: str, temperature: float, key: str) -> list[float]:
    """What a lower sampling temperature changes in ``key``, seed by seed."""
    cold, warm = (_at(rows, arm, temperature=t) for t in (temperature, 1.0))
    return [c[0][key] - w[0][key] for c, w in zip(cold, warm, strict=True)]


def _at(rows: Rows, arm: str, **where: Any) -> list[list[Mapping[str, Any]]]:
    some = [row for row in rows if all(row[k] == v for k, v in where.items())]
    seeds = sorted({row["seed"] for row in some})
    return [[row for row in some if row["arm"] == arm and row["seed"] == seed] for seed in seeds]


def worst(rows: Rows, arms: Sequence[str], *, among: str, count: int = 3) -> list[Mapping[str, Any]]:
    """The texts whose proxy is farthest above their gold: each run gives its worst one, the widest gaps are shown."""
    mine = [row for row in rows if row["arm"] in arms and row["among"] == among]
    return sorted(mine, key=lambda row: -row["gap"])[:count]
