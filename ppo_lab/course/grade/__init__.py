"""`grade(folder)`: examine the exercise cells of many notebooks, with other numbers than the learners saw.

Nobody's code runs in this process. Each exercise cell runs in a process of its own, forked from a server that has
already imported the package, with limits on time and memory; what comes back are plain numbers, and they are compared
here, with the reference, where no learner can have changed anything. So a loop, an ``os._exit`` and a monkey-patched
library cost their author a point and nobody else anything. It is no sandbox against malice: grade untrusted files
where they may do no harm.
"""

from __future__ import annotations

import csv as csv_format
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from ppo_lab.course.exercises import EXERCISES, of_notebook
from ppo_lab.course.exercises.judge import Verdict, judge
from ppo_lab.course.exercises.outcome import Outcome, from_plain
from ppo_lab.course.grade.pool import Answer, Job, run
from ppo_lab.course.grade.reading import Submission, read

SEEDS = (101, 202)  # learners see seed 0
SECONDS, MEMORY_GB = 5.0, 1.0
FORMULA = ("=", "+", "-", "@")  # a spreadsheet would compute a cell that starts so


@dataclass(frozen=True, slots=True)
class Grade:
    """One exercise of one notebook. ``verdict`` is PASS, FAIL, TODO, MISSING (no such cell) or UNREADABLE."""

    file: str
    notebook: str
    exercise: str
    verdict: str
    detail: str = ""
    note: str = ""


def grade(
    folder: str | Path,
    csv: str | Path | None = None,
    *,
    seeds: Sequence[int] = SEEDS,
    seconds: float = SECONDS,
    memory_gb: float = MEMORY_GB,
    jobs: int | None = None,
) -> list[Grade]:
    """Grade every notebook below ``folder``, print a line a file, and write a table if asked to.

    Args:
        folder: of ``.ipynb`` files, searched through; file names tell learners apart.
        csv: file to write, one line an exercise.
        seeds: of the toy data; each exercise must pass on all.
        seconds, memory_gb: most an exercise may use.
        jobs: processes at a time; one a core if left out.

    Raises:
        ValueError: the folder is not there or holds no notebook.
    """
    place = Path(folder)
    found = sorted(p for p in place.rglob("*.ipynb") if ".ipynb_checkpoints" not in p.parts)
    if not found:
        raise ValueError(f"{place} must be a folder with notebooks to grade, found none; give the learners' folder")
    submissions = [read(path, path.relative_to(place).as_posix()) for path in found]
    work = {
        f"{i}/{cell.exercise}": Job(cell.exercise, cell.source, tuple(seeds), seconds, memory_gb)
        for i, submission in enumerate(submissions)
        for cell in submission.cells
    }
    answers = run(work, jobs=jobs)
    grades = [g for i, submission in enumerate(submissions) for g in grades_of(submission, str(i), answers, seeds)]
    for line in summary(grades):
        print(line)
    if csv is not None:
        write_table(grades, Path(csv))
    return grades


def grades_of(submission: Submission, key: str, answers: dict[str, Answer], seeds: Sequence[int]) -> Iterator[Grade]:
    """The grades of one notebook: what it has, then what it lacks."""
    if submission.trouble:
        yield Grade(submission.file, "", "", "UNREADABLE", submission.trouble)
        return
    have = {cell.exercise: cell for cell in submission.cells}
    books = dict.fromkeys([submission.notebook, *(EXERCISES[name].notebook for name in have)])
    for entry in (entry for book in books if book for entry in of_notebook(book)):
        if entry.name not in have:
            yield Grade(submission.file, entry.notebook, entry.name, "MISSING")
            continue
        verdict = verdict_of(entry.name, answers[f"{key}/{entry.name}"], seeds)
        detail = "" if verdict.verdict == "PASS" else str(verdict).lstrip(": ")
        note = have[entry.name].note
        yield Grade(submission.file, entry.notebook, entry.name, verdict.verdict, detail, note)


def verdict_of(name: str, answer: Answer, seeds: Sequence[int]) -> Verdict:
    """Judge what came back, here, by the reference."""
    if answer.trouble:
        return Verdict("FAIL", name, why=answer.trouble)
    try:
        by_seed: list[list[Outcome]] = [[from_plain(item) for item in answer.outcomes[str(seed)]] for seed in seeds]
        verdicts = [judge(EXERCISES[name], found, seed) for seed, found in zip(seeds, by_seed, strict=True)]
    except (KeyError, TypeError, ValueError):
        return Verdict("FAIL", name, why="what came back is not what an exercise returns")
    return next((verdict for verdict in verdicts if verdict.verdict != "PASS"), verdicts[0])


def summary(grades: Sequence[Grade]) -> Iterator[str]:
    """A line a file: how many passed, and what did not."""
    files = dict.fromkeys(g.file for g in grades)
    width = max(map(len, files), default=0)
    for file in files:
        mine = [g for g in grades if g.file == file]
        missed = [f"{g.exercise} {g.verdict}".strip() for g in mine if g.verdict != "PASS"]
        total = f"{sum(g.verdict == 'PASS' for g in mine)} of {len(mine)}"
        yield f"{file:<{width}}  {total}" + (f"  ({', '.join(missed)})" if missed else "")


def write_table(grades: Sequence[Grade], path: Path) -> None:
    """The grades as CSV, safe to open in a spreadsheet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv_format.writer(file)
        table.writerow([f.name for f in fields(Grade)])
        for line in grades:
            table.writerow([f"'{cell}" if cell.startswith(FORMULA) else cell for cell in astuple(line)])
