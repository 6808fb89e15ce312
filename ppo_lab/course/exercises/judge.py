"""From outcomes to a verdict: where it is wrong first, and why, in terms of the concept.

The ``why`` is looked up among the exercise's wrong answers: a function that gives the numbers of one of them has its
misconception. Where none fits, what all the wrong steps have in common is said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ppo_lab.course.exercises.exercise import Case, Exercise, Law
from ppo_lab.course.exercises.outcome import Array, Outcome, call

TOLERANCE = 1e-6  # float64 on toy data: any right way of writing it agrees far better


@dataclass(frozen=True, slots=True)
class Verdict:
    """TODO, FAIL or PASS, and for a FAIL what to tell the learner."""

    verdict: str
    exercise: str
    case: str = ""
    step: str = ""
    got: str = ""
    expected: str = ""
    why: str = ""
    mutant: str = ""  # name of the wrong answer it was recognised as

    def __str__(self) -> str:
        if self.verdict != "FAIL":
            return {"TODO": "not written yet", "PASS": "right on all toy data"}[self.verdict]
        numbers = f"{self.step} is {self.got}, expected {self.expected}. " if self.step else ""
        return f"{self.case}: {numbers}{self.why}"


def examine(exercise: Exercise, function: Callable[..., Any], seed: int = 0) -> Verdict:
    """Call the function on all cases of that seed and judge it."""
    return judge(exercise, [call(exercise, function, case) for case in exercise.cases(seed)], seed)


def judge(exercise: Exercise, outcomes: Sequence[Outcome], seed: int) -> Verdict:
    """Compare outcomes with those of the reference. ``outcomes`` may come from another process."""
    cases = exercise.cases(seed)
    if any(outcome.todo for outcome in outcomes):
        return Verdict("TODO", exercise.name)
    if exercise.reference is None:
        return judge_by_laws(exercise, cases, outcomes)
    expected = [call(exercise, exercise.reference, case) for case in cases]
    for i, (case, got, right) in enumerate(zip(cases, outcomes, expected, strict=True)):
        if got.error:
            return Verdict("FAIL", exercise.name, case.name, why=got.error)
        if not same(got, right):
            return explain(exercise, case, got, right, recognise(exercise, cases, outcomes, i))
    return Verdict("PASS", exercise.name)


def judge_by_laws(exercise: Exercise, cases: Sequence[Case], outcomes: Sequence[Outcome]) -> Verdict:
    """The first law that the results break."""
    values = []
    for case, got in zip(cases, outcomes, strict=True):
        if got.error or got.value is None:
            return Verdict("FAIL", exercise.name, case.name, why=got.error or "nothing came back")
        values.append(got.value.tensor())
    broken = next((law.text for law in exercise.laws if not obeyed(law, cases, values)), None)
    return Verdict("PASS", exercise.name) if broken is None else Verdict("FAIL", exercise.name, "a law", why=broken)


def obeyed(law: Law, cases: Sequence[Case], values: Sequence[Tensor]) -> bool:
    """Whether the law holds; results of a wrong shape obey none."""
    try:
        return bool(law.holds(cases, values))
    except (RuntimeError, IndexError, TypeError, ValueError):
        return False


def same(a: Outcome, b: Outcome) -> bool:
    """Equal values and gradients up to rounding; NaN equals nothing."""
    if a.error or b.error or a.value is None or b.value is None or a.value.shape != b.value.shape:
        return a == b
    pairs = [(a.value, b.value)]
    pairs += [((a.gradient or {}).get(name, Array((0,), ())), g) for name, g in (b.gradient or {}).items()]
    return all(x.shape == y.shape and not differs(x, y).any() for x, y in pairs)


def differs(x: Array, y: Array) -> Tensor:
    """True at entries that are not equal up to rounding."""
    return ~torch.isclose(x.tensor(), y.tensor(), rtol=TOLERANCE, atol=TOLERANCE)


def recognise(
    exercise: Exercise, cases: Sequence[Case], outcomes: Sequence[Outcome], first: int
) -> tuple[str, str]:
    """Name and why of the wrong answer that gives these outcomes; empty where none does.

    One that fits every case is preferred to one that fits up to ``first``, the first case that is wrong.
    """
    near = ("", "")
    for mutant in exercise.mutants:
        fits = [alike(call(exercise, mutant.function, case), got) for case, got in zip(cases, outcomes, strict=True)]
        if all(fits):
            return mutant.name, mutant.why
        if all(fits[: first + 1]) and not near[0]:
            near = mutant.name, mutant.why
    return near


def alike(a: Outcome, b: Outcome) -> bool:
    """As `same`, but a NaN is like a NaN: two wrong answers may share it."""
    if a.error or b.error or a.value is None or b.value is None:
        return False
    return same(_without_nan(a), _without_nan(b))


def _without_nan(outcome: Outcome) -> Outcome:
    def clean(x: Array) -> Array:
        return Array(x.shape, tuple(x.tensor().nan_to_num(1e300, 2e300, -2e300).reshape(-1).tolist()))

    assert outcome.value is not None
    return Outcome(clean(outcome.value), {name: clean(g) for name, g in (outcome.gradient or {}).items()} or None)


def explain(exercise: Exercise, case: Case, got: Outcome, right: Outcome, known: tuple[str, str]) -> Verdict:
    """The first wrong number of this case, and why."""
    assert got.value is not None and right.value is not None
    mutant, why = known
    if got.value.shape != right.value.shape:
        why = why or shape_advice(got.value.shape, right.value.shape)
        shapes = str(got.value.shape), str(right.value.shape)
        return Verdict("FAIL", exercise.name, case.name, "the shape", shapes[0], shapes[1], why, mutant)
    what, x, y = "", got.value, right.value
    for name, g in (right.gradient or {}).items():
        if not differs(x, y).any():
            what, x, y = f"the gradient for {name} at ", (got.gradient or {})[name], g
    wrong = differs(x, y)
    first = tuple(wrong.nonzero()[0].tolist())
    numbers = [f"{float(z.tensor()[first]):.4g}" for z in (x, y)]
    if numbers[0] == numbers[1]:
        numbers = [f"{float(z.tensor()[first]):.9g}" for z in (x, y)]
    why = why or common(x.tensor(), y.tensor(), wrong, exercise.places(case))
    step = what + describe(case, first)
    return Verdict("FAIL", exercise.name, case.name, step, numbers[0], numbers[1], why, mutant)


def describe(case: Case, index: tuple[int, ...]) -> str:
    """``row 1, step 2 (log_ratio=0.48, advantage=-1.6)``: a place, and what the function was given there."""
    if not index:
        numbers = [f"{name}={x:.3g}" for name, x in case.arguments.items() if isinstance(x, float)]
        return f"the result ({', '.join(numbers)})" if numbers else "the result"
    words = ("step",) if len(index) == 1 else ("row", "step")
    place = ", ".join(f"{word} {i}" for word, i in zip(words, index, strict=False))
    given = [
        f"{name}={_short(x[index])}"
        for name, x in case.arguments.items()
        if isinstance(x, Tensor) and x.ndim == len(index) and all(i < n for i, n in zip(index, x.shape, strict=True))
    ]
    return f"{place} ({', '.join(given)})" if given else place


def _short(x: Tensor) -> str:
    return str(x.item()) if x.dtype == torch.bool else f"{x.item():.3g}"


def shape_advice(got: Iterable[int], right: Iterable[int]) -> str:
    """What a wrong shape usually means."""
    got, right = tuple(got), tuple(right)
    if not right:
        return "One number is asked for: reduce all steps to one."
    if len(got) < len(right):
        return "One number a step is asked for: do not sum or average."
    return "Keep the shape of what you were given; look for an axis that was added or dropped."


def common(x: Tensor, y: Tensor, wrong: Tensor, places: Any) -> str:
    """What all wrong steps have in common."""
    if x[wrong].isnan().any():
        return "NaN: something that does not count has reached the arithmetic. 0 × NaN is NaN, so select first."
    if torch.allclose(x, -y):
        return "Every number has the wrong sign."
    ratio = x[wrong] / y[wrong]
    if len(ratio) > 1 and torch.allclose(ratio, ratio[:1].expand_as(ratio)) and not (~wrong & (y != 0)).any():
        return f"Every number is {ratio[0]:.4g} times what it should be."
    for name, mask in places.items():
        if mask.shape == wrong.shape and wrong.any() and bool((wrong <= mask).all()):
            return f"Only {name} is wrong; the rest is right."
    count = int(wrong.sum())
    return f"{count} of {wrong.numel()} numbers differ." if wrong.numel() > 1 else "Compare it with the task by hand."
