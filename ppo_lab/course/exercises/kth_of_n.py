"""Transfer exercise of notebook 12: not the best of n but the k-th best, which an outlier cannot win."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb

import torch
from torch import Tensor

from ppo_lab.course.exercises.exercise import Case, Exercise, Law, Wrong
from ppo_lab.course.exercises.toys import Toys
from ppo_lab.evaluate.best_of_n import best_of_n

wrong = Wrong()
SIZE, N = 7, 4


def _near(x: Tensor, y: Tensor) -> bool:
    return x.shape == y.shape and torch.allclose(x.double(), y.double(), rtol=1e-6, atol=1e-6)


def _best(case: Case, sign: float = 1.0) -> Tensor:
    return best_of_n(sign * case.arguments["score"], case.arguments["value"], n=N)


def _single(cases: Sequence[Case], values: Sequence[Tensor]) -> bool:
    return all(x.shape == () for x in values)


def _ones(cases: Sequence[Case], values: Sequence[Tensor]) -> bool:
    return all(_near(x, torch.ones(())) for c, x in zip(cases, values, strict=True) if c.name.startswith("ones"))


def _named(cases: Sequence[Case], values: Sequence[Tensor], name: str) -> tuple[Case, Tensor]:
    return next((c, x) for c, x in zip(cases, values, strict=True) if c.name == name)


def _first(cases: Sequence[Case], values: Sequence[Tensor]) -> bool:
    case, x = _named(cases, values, "k = 1")
    return _near(x, _best(case))


def _last(cases: Sequence[Case], values: Sequence[Tensor]) -> bool:
    case, x = _named(cases, values, f"k = {N}")
    return _near(x, _best(case, -1.0))


def _mean(cases: Sequence[Case], values: Sequence[Tensor]) -> bool:
    found = [_named(cases, values, f"k = {k}") for k in range(1, N + 1)]
    each = [x for _, x in found]
    return all(x.shape == () for x in each) and _near(torch.stack(each).mean(), found[0][0].arguments["value"].mean())


def _order(cases: Sequence[Case], values: Sequence[Tensor]) -> bool:
    return _near(_named(cases, values, "k = 2")[1], _named(cases, values, "k = 2, another order")[1])


LAWS = (
    Law("One number a pool.", _single),
    Law("If every answer is worth 1, so is the kept one.", _ones),
    Law("The order in which the pool is listed does not matter.", _order),
    Law("k = 1 is best-of-n.", _first),
    Law("k = n keeps the worst: best-of-n of −score.", _last),
    Law("The mean over k = 1 … n is the mean of the pool: each answer of a subset has one rank.", _mean),
)


def weights(size: int, n: int, k: int) -> Tensor:
    """Used to derive wrong answers only."""
    found = [comb(i, n - k) * comb(size - 1 - i, k - 1) / comb(size, n) for i in range(size)]
    return torch.tensor(found, dtype=torch.float64)


def _expected(score: Tensor, value: Tensor, n: int, k: int) -> Tensor:
    return (weights(len(score), n, k) * value[score.argsort()]).sum()


@wrong("k forgotten")
def always_the_best(score: Tensor, value: Tensor, *, n: int, k: int) -> Tensor:
    """k = 1."""
    return _expected(score, value, n, 1)


@wrong("counted from the bottom")
def from_the_bottom(score: Tensor, value: Tensor, *, n: int, k: int) -> Tensor:
    """k-th lowest."""
    return _expected(score, value, n, n + 1 - k)


@wrong("k-th best of the pool")
def of_the_pool(score: Tensor, value: Tensor, *, n: int, k: int) -> Tensor:
    """n forgotten."""
    return value[score.argsort(descending=True)[k - 1]]


@wrong("not divided by the subsets")
def counts(score: Tensor, value: Tensor, *, n: int, k: int) -> Tensor:
    """Sum over subsets."""
    return _expected(score, value, n, k) * comb(len(score), n)


@wrong("not sorted")
def not_sorted(score: Tensor, value: Tensor, *, n: int, k: int) -> Tensor:
    """The pool's own order."""
    return (weights(len(score), n, k) * value).sum()


@wrong("right at both ends only")
def between_the_ends(score: Tensor, value: Tensor, *, n: int, k: int) -> Tensor:
    """Between best and worst in proportion to k²."""
    share = ((k - 1) / (n - 1)) ** 2
    return (1 - share) * _expected(score, value, n, 1) + share * _expected(score, value, n, n)


@wrong("weights in place of their sum")
def a_vector(score: Tensor, value: Tensor, *, n: int, k: int) -> Tensor:
    """Not summed."""
    return weights(len(score), n, k) * value[score.argsort()]


@wrong("best of fewer")
def best_of_fewer(score: Tensor, value: Tensor, *, n: int, k: int) -> Tensor:
    """As if the k − 1 best were left out before drawing."""
    return _expected(score, value, n - k + 1, 1)


def cases(seed: int) -> Sequence[Case]:
    """A pool under every k; the same in another order; a pool whose answers are all worth 1."""
    toys = Toys("kth_of_n", seed)
    score, value, order = toys.normal(SIZE), toys.away(SIZE), torch.arange(SIZE).roll(3)
    pool = {"score": score, "value": value}
    made = [Case(f"k = {k}", dict(pool), {"n": N, "k": k}) for k in range(1, N + 1)]
    made.append(Case("k = 2, another order", {name: x[order] for name, x in pool.items()}, {"n": N, "k": 2}))
    made.append(Case("ones", {"score": score, "value": torch.ones_like(value)}, {"n": N, "k": 3}))
    return made


KTH_OF_N = Exercise(
    name="kth_of_n",
    notebook="12_reward_hacking",
    minutes=12,
    lines=4,
    heading="kth_of_n(score, value, *, n, k)",
    task="Whoever is best of n may be best by a mistake of the proxy. Keep the k-th best of n instead: return its "
    "expected value, exactly, over all n-subsets of the pool. score, value (M,), no two scores equal; k = 1 … n.",
    laws=LAWS,
    cases=cases,
    hints=(
        "The i-th lowest of the pool is the k-th best of a subset if k − 1 of the others are above it.",
        "Choose n − k companions among the i − 1 below and k − 1 among the M − i above.",
        "weight = comb(i − 1, n − k) · comb(M − i, k − 1) / comb(M, n), i from 1, scores ascending.",
    ),
    mutants=tuple(wrong),
)
