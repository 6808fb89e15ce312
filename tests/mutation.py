"""Mutation testing without a process a mutant: a function's source is changed, and its code object exchanged in place.

As the function object stays the same, every module that imported it sees the mutant. A mutant is killed when a check
fails. One that names what does not exist proves nothing about the checks and counts as a mistake in the list.
"""

from __future__ import annotations
import __future__

import ast
import importlib
import inspect
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FunctionType

import pytest

Check = Callable[[], object]
MISTAKES = (NameError, AttributeError, SyntaxError, ImportError)


@dataclass(frozen=True)
class Mutant:
    """Replace ``old`` by ``new`` in the code (not the docstring) of ``ppo_lab.<module>.<function>``."""

    module: str
    function: str
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.module}.{self.function}: {self.old!r} -> {self.new!r}"

    @property
    def original(self) -> FunctionType:
        return getattr(importlib.import_module(f"ppo_lab.{self.module}"), self.function)


def code_of(function: FunctionType) -> str:
    """Source without the docstring."""
    source = textwrap.dedent(inspect.getsource(function))
    (node,) = ast.parse(source).body
    assert isinstance(node, ast.FunctionDef)
    if ast.get_docstring(node) is None:
        return source
    doc, lines = node.body[0], source.splitlines(keepends=True)
    return "".join(lines[: doc.lineno - 1] + lines[doc.end_lineno :])


def compiled(mutant: Mutant) -> FunctionType:
    source = code_of(mutant.original)
    if source.count(mutant.old) != 1:
        raise LookupError(f"{mutant}: found {source.count(mutant.old)} times in the source; bring the list up to date")
    scope = dict(vars(importlib.import_module(f"ppo_lab.{mutant.module}")))
    flags = __future__.annotations.compiler_flag
    exec(compile(source.replace(mutant.old, mutant.new), str(mutant), "exec", flags), scope)
    return scope[mutant.function]


@contextmanager
def exchanged(mutant: Mutant) -> Iterator[None]:
    """The mutant in place of the original, wherever it has been imported to."""
    target, other = mutant.original, compiled(mutant)
    parts = ("__code__", "__defaults__", "__kwdefaults__")
    saved = {part: getattr(target, part) for part in parts}
    try:
        for part in parts:
            setattr(target, part, getattr(other, part))
        yield
    finally:
        for part, value in saved.items():
            setattr(target, part, value)


def killer(mutant: Mutant, checks: dict[str, Check]) -> str | None:
    """Name of the first check that the mutant fails, or None if it survives them all."""
    with exchanged(mutant):
        for name, check in checks.items():
            try:
                check()
            except MISTAKES:
                raise
            except (Exception, pytest.fail.Exception):
                return name
    return None
