"""Every exercise: the reference and the short answer pass, each wrong answer fails with its own message."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from typing import Any

import pytest
import torch

from ppo_lab.course.catalogue import NOTEBOOKS
from ppo_lab.course.exercises import EXERCISES, Exercise, examine, exercise, kill_matrix, of_notebook
from ppo_lab.course.exercises.exercise import source_of
from ppo_lab.course.grade import SEEDS
from ppo_lab.course.instructor import answer_of as solution_of

ROOT = Path(__file__).resolve().parents[2]
ALL_SEEDS = (0, *SEEDS, 3)
TRANSFER = {name: entry for name, entry in EXERCISES.items() if entry.reference is None}
KNOWN = {name: entry for name, entry in EXERCISES.items() if entry.reference is not None}
every = pytest.mark.parametrize("entry", EXERCISES.values(), ids=EXERCISES)
each = pytest.mark.parametrize("entry", KNOWN.values(), ids=KNOWN)
transfer = pytest.mark.parametrize("entry", TRANSFER.values(), ids=TRANSFER)


def answer_of(entry: Exercise) -> Any:
    """The function that the short answer defines, alone in a namespace."""
    names: dict[str, Any] = {"torch": torch}
    exec(solution_of(entry), names)
    return names[entry.name]


@every
@pytest.mark.parametrize("seed", ALL_SEEDS)
def test_reference_and_answer_pass(entry: Exercise, seed: int) -> None:
    assert entry.reference is None or examine(entry, entry.reference, seed).verdict == "PASS"
    assert examine(entry, answer_of(entry), seed).verdict == "PASS"


@each
@pytest.mark.parametrize("seed", ALL_SEEDS)
def test_each_wrong_answer_fails_with_its_own_message(entry: Exercise, seed: int) -> None:
    verdicts = {mutant.name: examine(entry, mutant.function, seed) for mutant in entry.mutants}
    assert {name: v.verdict for name, v in verdicts.items()} == dict.fromkeys(verdicts, "FAIL")
    assert {name: v.mutant for name, v in verdicts.items()} == {name: name for name in verdicts}
    assert all(mutant.why in str(verdicts[mutant.name]) for mutant in entry.mutants)
    assert all(v.step and v.got != v.expected for v in verdicts.values())


@transfer
@pytest.mark.parametrize("seed", ALL_SEEDS)
def test_wrong_answers_break_a_law_and_each_law_is_needed(entry: Exercise, seed: int) -> None:
    """A law that no wrong answer breaks alone, or first, says nothing new."""
    verdicts = [examine(entry, mutant.function, seed) for mutant in entry.mutants]
    assert {v.verdict for v in verdicts} == {"FAIL"} and {v.why for v in verdicts} <= {law.text for law in entry.laws}
    matrix = kill_matrix(entry, seed)
    assert {law for row in matrix.values() for law, caught in row.items() if caught} == {law.text for law in entry.laws}
    assert 5 <= len(entry.laws) <= len(entry.mutants) and all(any(row.values()) for row in matrix.values())


@transfer
def test_transfer_answers_are_the_instructors(entry: Exercise) -> None:
    assert not entry.answer and not entry.solution and not hasattr(importlib.import_module("ppo_lab.core"), entry.name)
    assert (ROOT / "instructor" / f"{entry.name}.py").is_file()


@every
def test_enough_wrong_answers_all_different(entry: Exercise) -> None:
    assert len(entry.mutants) >= 6
    assert len({m.name for m in entry.mutants}) == len({m.why for m in entry.mutants}) == len(entry.mutants)


@each
def test_kill_matrix_has_no_hole(entry: Exercise) -> None:
    matrix = kill_matrix(entry)
    assert {*matrix} == {m.name for m in entry.mutants}
    assert [name for name, row in matrix.items() if not any(row.values())] == []
    caught_first = [name for name, row in matrix.items() if next(iter(row.values()))]
    assert len(caught_first) < len(matrix) or len(entry.cases(0)) == 1, "a later case catches nothing new"


def test_a_hole_would_show() -> None:
    """Planted: on toy data without padding, the answer that ignores the mask is as good as the right one."""
    entry = exercise("masked_mean")
    (case, *_) = entry.cases(0)
    full = type(case)("no padding", {"x": case.arguments["x"], "mask": torch.ones(2, 6, dtype=torch.bool)})
    blind = Exercise(**{**{f: getattr(entry, f) for f in entry.__slots__}, "cases": lambda seed: (full,)})
    assert kill_matrix(blind)["mask ignored"] == {"no padding": False}
    assert examine(blind, lambda x, mask: x.mean()).verdict == "PASS"


@every
def test_what_is_promised_holds(entry: Exercise) -> None:
    text = solution_of(entry)
    (function,) = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    assert function.end_lineno == function.lineno + entry.lines and f"def {entry.signature}:" in text
    assert max(map(len, text.splitlines())) <= (88 if entry.answer else 120)
    assert entry.notebook in NOTEBOOKS and entry in of_notebook(entry.notebook)
    assert 1 <= entry.minutes <= 15 and all(hint.endswith((".", "?")) for hint in entry.hints)
    assert entry.reference is None or (entry.reference.__module__.startswith("ppo_lab.") and entry.reference.__doc__)


@every
def test_stub_is_a_cell(entry: Exercise) -> None:
    tree = ast.parse(entry.stub)
    assert ast.unparse(tree.body[-1]) == f"{entry.name} = course.check({entry.name})"
    names: dict[str, Any] = {}
    exec(entry.stub.rpartition("\n")[0], names)
    assert examine(entry, names[entry.name]).verdict == "TODO"


@each
def test_solution_is_the_tested_source_without_prose(entry: Exercise) -> None:
    assert source_of(entry.reference).splitlines()[-1] in entry.solution and entry.answer.strip() in entry.solution
    assert '"""' not in entry.solution
    assert {n.name for n in ast.parse(entry.solution).body if isinstance(n, ast.FunctionDef)} >= {entry.name}


@every
def test_seeds_give_other_numbers(entry: Exercise) -> None:
    def numbers(seed: int) -> list[Any]:
        values = [x for case in entry.cases(seed) for x in case.arguments.values()]
        return [x.nan_to_num().tolist() if isinstance(x, torch.Tensor) else x for x in values]

    assert numbers(0) == numbers(0) != numbers(SEEDS[0]) != numbers(SEEDS[1])


def test_first_exercise_is_short() -> None:
    (first,) = of_notebook("00_start_here")
    assert first.minutes <= 3 and first.lines == 1


def test_the_update_is_the_trainers() -> None:
    """The reference of `ppo_loss` is what `ppo_lab.update` minimises for the policy."""
    from ppo_lab.config import PPOConfig
    from ppo_lab.core.masking import step_weights
    from ppo_lab.records import Assessment, StepBatch
    from ppo_lab.update import Leash, loss_and_sums

    entry = exercise("ppo_loss")
    case = entry.cases(0)[0]
    logp, old, advantage, mask = case.arguments.values()
    zero = torch.zeros_like(logp)
    batch = StepBatch(inputs=None, old_logp=old, old_value=zero, advantage=advantage, return_=zero, mask=mask)
    seen = Assessment(logp=logp, entropy=zero, value=zero)
    cfg = PPOConfig(clip=case.options["clip"], value_coef=0.0)
    weight = step_weights(mask, dtype=logp.dtype)
    loss, *_ = loss_and_sums(seen, batch, weight, cfg, Leash(), policy_on=True)
    assert entry.reference is not None
    assert loss.item() == pytest.approx(entry.reference(*case.arguments.values(), **case.options).item(), abs=1e-12)


def test_unknown_name_is_explained() -> None:
    with pytest.raises(ValueError, match="did you mean masked_mean"):
        exercise("maskd_mean")
