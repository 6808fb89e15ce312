"""What an exercise is: a task, toy data, a tested reference, and wrong answers that each have a name.

A wrong answer (`Mutant`) serves twice: the check must catch it, which a test proves, and a learner whose function
gives the same numbers is told its ``why``.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Case:
    """One call of the function. Tensors are float64 or bool; the learner's function gets copies."""

    name: str
    arguments: Mapping[str, Any]  # positional, by name, in order
    options: Mapping[str, Any] = field(default_factory=dict)  # keyword only


@dataclass(frozen=True, slots=True)
class Mutant:
    """A plausible wrong answer. ``why`` speaks to the learner and names the concept, not the code."""

    name: str
    why: str
    function: Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Law:
    """What every right answer of a transfer exercise obeys: a sentence, and a test of the results of all cases."""

    text: str
    holds: Callable[[Sequence[Case], Sequence[Tensor]], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exercise:
    """One exercise.

    A *transfer* exercise has no answer in the package: no ``reference`` and no ``answer``, but a ``heading`` (name and
    parameters) and ``laws``. Its answer is a file of the instructor's.

    ``answer`` is how a learner might write it, ``lines`` lines below the ``def``; a test runs it. ``reference`` is the
    package's own function, whose source the card offers. ``gradient_of`` names arguments with respect to which the
    gradient of the summed result is compared as well. ``places`` names steps of a case, such as padding, so that an
    error which sits only there can be said to.
    """

    name: str
    notebook: str
    minutes: int
    lines: int
    task: str
    answer: str = ""
    reference: Callable[..., Any] | None = None
    heading: str = ""
    laws: tuple[Law, ...] = ()
    cases: Callable[[int], Sequence[Case]]  # seed -> toy data
    hints: tuple[str, str, str]
    mutants: tuple[Mutant, ...]
    gradient_of: tuple[str, ...] = ()
    places: Callable[[Case], Mapping[str, Tensor]] = lambda case: {}
    parts: tuple[Callable[..., Any], ...] = ()  # functions of the package that the reference leans on

    @property
    def signature(self) -> str:
        """Name and parameters, as the stub in the notebook has them.

        >>> from ppo_lab.course.exercises import exercise
        >>> exercise("masked_mean").signature
        'masked_mean(x, mask)'
        """
        if self.heading:
            return self.heading
        node = ast.parse(self.answer).body[0]
        assert isinstance(node, ast.FunctionDef)
        return f"{node.name}({ast.unparse(node.args)})"

    @property
    def stub(self) -> str:
        """The cell a learner starts from."""
        call = f"{self.name} = course.check({self.name})"
        todo = f"raise NotImplementedError  # your {self.lines} line{'s' if self.lines > 1 else ''}"
        return f"def {self.signature}:\n    {todo}\n\n{call}"

    @property
    def solution(self) -> str:
        """The short answer, and the tested source of the package without its docstring; "" where it has none."""
        if self.reference is None:
            return ""
        package = "\n\n".join(source_of(function) for function in (self.reference, *self.parts))
        return f"{self.answer.strip()}\n\n# as the package has it, tested\n{package}"


def source_of(function: Callable[..., Any]) -> str:
    """Source text without the docstring."""
    source = textwrap.dedent(inspect.getsource(function))
    node = ast.parse(source).body[0]
    if not isinstance(node, ast.FunctionDef) or not ast.get_docstring(node):
        return source.rstrip()
    doc, lines = node.body[0], source.splitlines()
    return "\n".join(lines[: doc.lineno - 1] + lines[doc.end_lineno :]).rstrip()


class Wrong(list[Mutant]):
    """Collects mutants: ``@wrong("why")`` above a function; its name, with spaces, is the mutant's."""

    def __call__(self, why: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Decorator that keeps the function as a wrong answer."""

        def keep(function: Callable[..., Any]) -> Callable[..., Any]:
            self.append(Mutant(function.__name__.strip("_").replace("_", " "), why, function))
            return function

        return keep
