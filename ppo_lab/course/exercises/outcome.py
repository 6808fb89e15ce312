"""Calling a function on toy data, and what came out, as plain numbers that can cross a process boundary."""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from ppo_lab.course.exercises.exercise import Case, Exercise
from ppo_lab.paths import PACKAGE

MOST_NUMBERS = 100_000


@dataclass(frozen=True, slots=True)
class Array:
    """A result: a tensor as shape and numbers (row by row), a plain number as the empty shape."""

    shape: tuple[int, ...]
    values: tuple[float, ...]

    def tensor(self) -> Tensor:
        """As float64."""
        return torch.tensor(self.values, dtype=torch.float64).reshape(self.shape)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one case gave. ``error`` is a sentence; ``todo`` means the stub was not touched."""

    value: Array | None = None
    gradient: Mapping[str, Array] | None = None
    error: str = ""
    todo: bool = False

    def plain(self) -> dict[str, Any]:
        """Lists, numbers and text, for JSON."""
        return asdict(self)


def from_plain(found: Any) -> Outcome:
    """The outcome that `Outcome.plain` wrote; `ValueError` on anything else a process may send."""

    def array(item: Any) -> Array:
        shape, values = tuple(map(int, item["shape"])), tuple(map(float, item["values"]))
        if len(values) > MOST_NUMBERS or math.prod(shape) != len(values):
            raise ValueError("shape and numbers do not agree")
        return Array(shape, values)

    try:
        value, gradient = found["value"], found["gradient"]
        return Outcome(
            None if value is None else array(value),
            None if gradient is None else {str(name): array(item) for name, item in gradient.items()},
            str(found["error"])[:500],
            bool(found["todo"]),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not an outcome: {error}") from None


def to_array(result: Any) -> Array:
    """A tensor or a number as an `Array`; `TypeError` says what came instead."""
    if result is None:
        raise TypeError("it returns nothing; is there a return?")
    if isinstance(result, bool | int | float):
        return Array((), (float(result),))
    if not isinstance(result, Tensor):
        raise TypeError(f"it returns a {type(result).__name__}; return a tensor, or a number where one is asked for")
    if result.numel() > MOST_NUMBERS:
        raise TypeError(f"it returns {result.numel()} numbers, far more than it was given")
    return Array(tuple(result.shape), tuple(result.detach().to(torch.float64).reshape(-1).tolist()))


def call(exercise: Exercise, function: Callable[..., Any], case: Case) -> Outcome:
    """Call the function on copies of the case's data; nothing it does, short of leaving, gets out of here."""
    given = {name: x.clone() if isinstance(x, Tensor) else x for name, x in case.arguments.items()}
    for name in exercise.gradient_of:
        given[name].requires_grad_(True)
    try:
        result = function(*given.values(), **case.options)
        value = to_array(result)
        gradient = gradients(result, {name: given[name] for name in exercise.gradient_of})
    except NotImplementedError:
        return Outcome(todo=True)
    except Exception as error:
        return Outcome(error=sentence(error))
    for name, x in case.arguments.items():
        if isinstance(x, Tensor) and not torch.equal(x.nan_to_num(), given[name].detach().nan_to_num()):
            return Outcome(error=f"it changes its argument {name} in place; work on a copy")
    return Outcome(value, gradient or None)


def gradients(result: Any, inputs: Mapping[str, Tensor]) -> dict[str, Array]:
    """Gradient of the summed result with respect to each input; zeros where it does not depend on it."""
    if not inputs:
        return {}
    if not (isinstance(result, Tensor) and result.requires_grad):
        return {name: to_array(torch.zeros_like(x)) for name, x in inputs.items()}
    found = torch.autograd.grad(result.sum(), [*inputs.values()], allow_unused=True)
    pairs = zip(inputs.items(), found, strict=True)
    return {name: to_array(torch.zeros_like(x) if g is None else g) for (name, x), g in pairs}


def sentence(error: Exception) -> str:
    """The error and the learner's line it came from."""
    trace = traceback.extract_tb(error.__traceback__)
    frames = [frame for frame in trace if not frame.filename.startswith(str(PACKAGE))]
    own = [frame for frame in frames if "site-packages" not in frame.filename]
    where = f" in line {own[0].lineno}: {own[0].line}" if own and own[0].line else ""
    return f"{type(error).__name__}: {error}{where}"
