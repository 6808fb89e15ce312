"""Every planted bug is found: each mutant of `mutants` fails at least one case or one test of the functions."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest
from mutants import MUTANTS
from mutation import Check, Mutant, code_of, compiled, exchanged, killer
from test_cases import SHIPPED, compare, problems

HERE = Path(__file__).parent
# module under test -> the test module to ask first
FIRST = {
    "core.masking": "core.test_masking",
    "core.returns": "core.test_returns",
    "core.importance": "core.test_objectives",
    "core.objectives": "core.test_objectives",
    "core.values": "core.test_objectives",
    "core.distributions": "core.test_kl",
    "core.kl": "core.test_kl",
    "core.preferences": "core.test_answers",
    "core.groups": "core.test_answers",
    "core.averages": "core.test_answers",
    "core.trust_region": "core.test_steps",
    "core.schedules": "core.test_steps",
    "core._checks": "core.test_bad_input",
    "rlhf.rewards": "core.test_answers",
    "exact.mdp.moments": "exact.test_mdp",
    "exact.mdp.solve": "exact.test_solve",
    "exact.mdp.gradient": "exact.test_solve",
    "exact.mdp.improvement": "exact.test_improvement",
    "evaluate.passk": "evaluate.test_statistics",
    "evaluate.statistics": "evaluate.test_statistics",
    "scale.memory.zero": "scale.test_zero_bytes",
}
PADDING = "core.test_padding"


def plain(name: str) -> ModuleType:
    """A test module without pytest's rewriting of assertions: most of the time would go into unread messages."""
    spec = importlib.util.spec_from_file_location(f"plain.{name}", HERE / f"{name.replace('.', '/')}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def of_module(name: str) -> Iterator[tuple[str, Check]]:
    """Its tests as functions, a parametrised one once a parameter."""
    for test, function in inspect.getmembers(plain(name), inspect.isfunction):
        if test.startswith("test_") and function.__module__ == f"plain.{name}":
            marks = getattr(function, "pytestmark", [])
            values = [value for mark in marks for value in mark.args[1]]
            yield from ((f"{name}.{test}[{v}]", partial(function, v)) for v in values)
            if not marks:
                yield f"{name}.{test}", function


def right(case: dict) -> None:
    found = problems(case, "bfloat16" if case["dtype"] == "bfloat16" else "float64")
    if found:
        raise AssertionError(found)


TESTS = {name: dict(of_module(name)) for name in dict.fromkeys([*FIRST.values(), PADDING])}
CASES = {f"case {case['id']}": partial(right, case) for case in compare.load(SHIPPED)}


def checks(module: str) -> dict[str, Check]:
    """All checks, those most likely to notice first."""
    order = dict.fromkeys([FIRST[module], PADDING, *TESTS])
    near, *far = (TESTS[name] for name in order)
    return near | CASES | {name: check for tests in far for name, check in tests.items()}


@pytest.fixture(scope="module", autouse=True)
def unmutated() -> None:
    """All checks pass on the functions as they are; else a kill would mean nothing."""
    for check in checks("core.masking").values():
        check()


@pytest.mark.parametrize("module", FIRST)
def test_every_mutant_is_killed(module: str) -> None:
    mine = checks(module)
    survivors = [str(mutant) for mutant in MUTANTS if mutant.module == module and killer(mutant, mine) is None]
    assert survivors == []


def test_every_function_is_mutated() -> None:
    """Each public function of the modules above, and all of the list is run."""
    public = {
        (name, f)
        for name in FIRST
        for f, function in inspect.getmembers(importlib.import_module(f"ppo_lab.{name}"), inspect.isfunction)
        if function.__module__ == f"ppo_lab.{name}" and f[0] != "_"
    }
    mutated = {(mutant.module, mutant.function) for mutant in MUTANTS}
    assert public - mutated == set() and {mutant.module for mutant in MUTANTS} == FIRST.keys()
    assert len(set(MUTANTS)) == len(MUTANTS) >= 80


def test_a_harmless_mutant_survives() -> None:
    """The run can fail: what changes nothing is reported, and so is a pattern that is no longer in the source."""
    harmless = Mutant("core.schedules", "linear_anneal", "1 - step / total", "1.0 - step / total")
    assert killer(harmless, checks("core.schedules")) is None
    stale = Mutant("core.schedules", "linear_anneal", "1 - step / horizon", "0")
    with pytest.raises(LookupError, match="bring the list up to date"):
        compiled(stale)
    crash = Mutant("core.schedules", "linear_anneal", "1 - step / total", "unknown")
    with pytest.raises(NameError):
        killer(crash, checks("core.schedules"))


def test_the_original_comes_back() -> None:
    mutant = MUTANTS[0]
    before = mutant.original.__code__
    with exchanged(mutant):
        assert mutant.original.__code__ is not before
    assert mutant.original.__code__ is before and mutant.old in code_of(mutant.original)
