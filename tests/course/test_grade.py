"""Grading many notebooks: right and wrong answers, and learners whose code loops, exits, hogs or patches things."""

from __future__ import annotations

import csv
import shutil
import time
from collections.abc import Mapping
from pathlib import Path

import nbformat
import pytest

from ppo_lab.course.exercises import EXERCISES, of_notebook
from ppo_lab.course.grade import Grade, grade, summary, verdict_of, write_table
from ppo_lab.course.grade.pool import Answer
from ppo_lab.course.grade.reading import exercise_cell, read
from ppo_lab.course.instructor import answer_of

RIGHT = {name: answer_of(entry) + f"\n\n{name} = course.check({name})" for name, entry in EXERCISES.items()}
MEAN = "def masked_mean(x, mask):\n    {}\n\n\nmasked_mean = course.check(masked_mean)"
HEAD = "from ppo_lab import course\ncourse.start('00_start_here')"
NAUGHTY = {
    "loop": MEAN.format("while True: pass"),
    "exit": "import os\n" + MEAN.format("os._exit(0)"),
    "exit_at_once": "import os\nos._exit(3)\n" + MEAN.format("return x[mask].mean()"),
    "memory": MEAN.format("return torch.ones(10**6, 10**3, dtype=torch.float64).mean()"),
    "system_exit": MEAN.format("raise SystemExit(0)"),
    "deep": MEAN.format("return masked_mean(x, mask)"),
    "kills_the_server": "import os, signal\n" + MEAN.format("os.kill(os.getppid(), signal.SIGKILL)"),
    "patches_the_comparison": "torch.isclose = lambda *a, **k: torch.ones(1, dtype=torch.bool)\n"
    "torch.Tensor.__eq__ = lambda a, b: True\nbool = lambda x: True\n" + MEAN.format("return x.mean()"),
    "patches_the_judge": "import ppo_lab.course.exercises.judge as j, ppo_lab.course.exercises.outcome as o\n"
    "j.same = lambda *a: True\nj.differs = lambda *a: False\no.call = None\n" + MEAN.format("return x.mean()"),
    "patches_the_reference": "import ppo_lab.core.masking as m\nfrom ppo_lab.course.exercises import EXERCISES as e\n"
    "m.masked_mean = lambda x, mask: x.mean()\nobject.__setattr__(e['masked_mean'], 'reference', m.masked_mean)\n"
    + MEAN.format("return x.mean()"),
    "writes_an_answer": "import os, json\nfor fd in range(3, 40):\n    try: os.write(fd, b'{\"101\": []}')\n"
    "    except OSError: pass\nos._exit(0)\n" + MEAN.format("return x.mean()"),
    "prints_and_asks": MEAN.format("print('hello', input())"),
    "returns_text": MEAN.format("return 'right'"),
    "syntax": MEAN.format("return x[mask.mean()"),
    "borrows": MEAN.format("return globals()['the_reference'](x, mask)"),
    "todo": MEAN.format("raise NotImplementedError"),
}


def notebook(path: Path, *cells: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in (HEAD, *cells)]), path)
    return path


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Grade]:
    """One grading of everything naughty, with good notebooks before, between and after."""
    folder = tmp_path_factory.mktemp("class")
    for name, cell in NAUGHTY.items():
        notebook(folder / name / "00_start_here.ipynb", cell)
    for name in ("a_good", "m_good", "z_good"):
        notebook(folder / f"{name}_00_start_here.ipynb", "1 / 0", "import no_such_name", RIGHT["masked_mean"])
    (folder / "broken.ipynb").write_text('{"cells": [', encoding="utf-8")
    found = grade(folder, folder / "grades.csv", seconds=1.5, memory_gb=0.5, jobs=3)
    with (folder / "grades.csv").open(encoding="utf-8") as file:
        assert [tuple(row.values()) for row in csv.DictReader(file)] == [
            (g.file, g.notebook, g.exercise, g.verdict, g.detail, g.note) for g in found
        ]
    return {g.file.removesuffix("/00_start_here.ipynb").removesuffix("_00_start_here.ipynb"): g for g in found}


def test_good_notebooks_pass_whoever_sits_beside_them(graded: Mapping[str, Grade]) -> None:
    assert {graded[name].verdict for name in ("a_good", "m_good", "z_good")} == {"PASS"}


def test_nobody_naughty_passes(graded: Mapping[str, Grade]) -> None:
    assert {name: graded[name].verdict for name in NAUGHTY} == {**dict.fromkeys(NAUGHTY, "FAIL"), "todo": "TODO"}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("loop", "still running after 1.5 s; is there an endless loop?"),
        ("exit", "it ended the process (exit code 0) and gave no answer"),
        ("exit_at_once", "it ended the process (exit code 3) and gave no answer"),
        ("memory", "can't allocate memory"),
        ("system_exit", "SystemExit"),
        ("deep", "RecursionError"),
        ("kills_the_server", "it ended the process that grades"),
        ("patches_the_comparison", "You average over all tokens"),
        ("patches_the_judge", "You average over all tokens"),
        ("patches_the_reference", "You average over all tokens"),
        ("writes_an_answer", "what came back is not what an exercise returns"),
        ("prints_and_asks", "EOFError"),
        ("returns_text", "it returns a str"),
        ("syntax", "SyntaxError"),
        ("borrows", "KeyError"),
        ("todo", "not written yet"),
    ],
)
def test_the_reason_is_told(graded: Mapping[str, Grade], name: str, words: str) -> None:
    assert words in graded[name].detail, graded[name]


def test_use_of_the_package_is_noted(graded: Mapping[str, Grade]) -> None:
    assert graded["patches_the_judge"].note.startswith("imports ppo_lab.course.exercises.judge")
    assert graded["a_good"].note == ""


def test_broken_files_are_listed(graded: Mapping[str, Grade]) -> None:
    assert graded["broken.ipynb"].verdict == "UNREADABLE" and "JSONDecodeError" in graded["broken.ipynb"].detail


def test_every_answer_of_the_course_passes_and_missing_ones_are_told(tmp_path: Path) -> None:
    of_ten = [RIGHT[entry.name] for entry in of_notebook("10_four_model_rlhf")]
    notebook(tmp_path / "whole.ipynb", *RIGHT.values())
    notebook(tmp_path / "ann_10_four_model_rlhf.ipynb", of_ten[0])
    found = grade(tmp_path)
    assert {(g.exercise, g.verdict) for g in found if g.file == "whole.ipynb"} == {(name, "PASS") for name in EXERCISES}
    ann = [g.verdict for g in found if g.file.startswith("ann")]
    assert sorted(ann) == ["MISSING"] * (len(of_ten) - 1) + ["PASS"]


def test_an_exercise_may_use_the_others_of_its_notebook(tmp_path: Path) -> None:
    """In the notebook they have run before, with the package's functions where a learner's did not pass."""
    uses = RIGHT["stop_bonus"].replace("from ppo_lab.rlhf.rewards import token_rewards\n", "")
    assert "import token_rewards" not in uses
    notebook(tmp_path / "10_four_model_rlhf.ipynb", uses)
    notebook(tmp_path / "ann.ipynb", "def token_rewards(*a, **k):\n    return reference(*a, **k)")
    found = {(g.file[:3], g.exercise): g for g in grade(tmp_path)}
    assert found["10_", "stop_bonus"].verdict == "PASS" and found["10_", "stop_bonus"].note == ""
    assert "NameError" in found["ann", "token_rewards"].detail


@pytest.mark.slow
def test_sixty_notebooks_in_thirty_seconds(tmp_path: Path) -> None:
    """With a loop, an exit and a patched library among them, at the limits of the real thing."""
    of_ten = [RIGHT[entry.name] for entry in of_notebook("10_four_model_rlhf")]
    first = notebook(tmp_path / "00.ipynb", RIGHT["masked_mean"], *of_ten)
    for i in range(1, 57):
        shutil.copy(first, tmp_path / f"{i:02}.ipynb")
    for name in ("loop", "exit", "patches_the_judge"):
        notebook(tmp_path / f"{name}.ipynb", NAUGHTY[name], *of_ten)
    begin = time.monotonic()
    found = grade(tmp_path)
    seconds = time.monotonic() - begin
    assert len(found) == 60 * (1 + len(of_ten)) and sum(g.verdict == "FAIL" for g in found) == 3
    assert seconds < 30, f"{seconds:.0f} s"


# --- reading ---------------------------------------------------------------------------------------------------------


def test_reading_executes_nothing_and_takes_the_last_definition(tmp_path: Path) -> None:
    path = notebook(tmp_path / "x.ipynb", MEAN.format("return 1"), "raise SystemExit", MEAN.format("return 2"))
    (cell,) = read(path, "x").cells
    assert cell.exercise == "masked_mean" and "return 2" in cell.source and "check" not in cell.source


@pytest.mark.parametrize(
    "line", ["masked_mean = course.check(masked_mean)", "course.check(masked_mean)", "masked_mean = check(masked_mean)"]
)
def test_the_checking_line_is_left_out(line: str) -> None:
    found = exercise_cell(f"%timeit 1\nimport math\n\ndef masked_mean(x, mask):\n    return 0\n\n{line}")
    assert found is not None and found.source == "import math\ndef masked_mean(x, mask):\n    return 0"


def test_other_cells_are_no_exercises() -> None:
    assert exercise_cell("x = 1") is None and exercise_cell("def helper(): ...") is None and exercise_cell("(") is None


def test_a_helper_beside_the_function_counts() -> None:
    found = exercise_cell("def half(x):\n    return x / 2\n\ndef masked_mean(x, mask):\n    return half(2)")
    assert found is not None and found.exercise == "masked_mean" and "def half" in found.source


def test_nothing_to_grade(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="found none"):
        grade(tmp_path)


# --- tables ----------------------------------------------------------------------------------------------------------


def test_summary_lines() -> None:
    lines = [*summary([Grade("a.ipynb", "n", "e", "PASS"), Grade("bb.ipynb", "n", "e", "TODO")])]
    assert lines == ["a.ipynb   1 of 1", "bb.ipynb  0 of 1  (e TODO)"]


def test_a_spreadsheet_computes_nothing(tmp_path: Path) -> None:
    write_table([Grade("=1+1", "n", "e", "FAIL", "-x")], tmp_path / "deep" / "g.csv")
    assert (tmp_path / "deep" / "g.csv").read_text().splitlines()[1] == "'=1+1,n,e,FAIL,'-x,"


@pytest.mark.parametrize("outcomes", [{}, {"101": 3}, {"101": [], "202": []}, {"101": [{}], "202": [{}]}])
def test_forged_answers_do_not_pass(outcomes: Mapping[str, object]) -> None:
    assert verdict_of("masked_mean", Answer(outcomes), (101, 202)).verdict == "FAIL"
