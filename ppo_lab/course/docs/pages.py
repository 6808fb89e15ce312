"""Pages from the course's own registries: map, glossary, kill matrices, claims."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from ppo_lab.course.catalogue import KINDS, NOTEBOOKS, PATHS
from ppo_lab.course.claims import claims_in
from ppo_lab.course.docs.markdown import book_of, code, linked, shown_in, table
from ppo_lab.course.exercises import EXERCISES, Exercise, kill_matrix
from ppo_lab.course.glossary import CONTROL, LANGUAGE, PROBABILITY, SCALE, Symbol

TOPICS = {
    "A": "policy gradients and PPO", "B": "RLHF", "C": "details of implementations", "D": "diagnoses of a training log",
    "E": "scale", "F": "monitoring", "G": "evaluation", "H": "improving a run", "I": "neighbours of PPO",
}  # fmt: skip


def course_map(root: Path) -> str:
    """Notebooks, kinds, rows, paths."""
    books = NOTEBOOKS.values()
    table_of_books = table(
        ("notebook", "you will be able to", "kind", "minutes", "rows"),
        ((linked(b, f"{b.number} {b.title}") + ("" if b.written else " (planned)"), b.goal, b.kind, str(b.minutes),
          spans(b.rows)) for b in books),
    )  # fmt: skip
    kinds = table(("kind", "its parts, in the usual order"), ((k, ", ".join(parts)) for k, parts in KINDS.items()))
    paths = table(("path", "notebooks"), ((f"*{name}*", shown_in(map(book_of, path))) for name, path in PATHS.items()))
    topics = "; ".join(f"{letter} {topic}" for letter, topic in TOPICS.items())
    minutes = sum(b.minutes for b in books)
    return f"""\
# Map of the course

{sum(b.written for b in books)} of {len(books)} notebooks are written, the others are planned: they are no links yet.
Minutes are for reading and doing; all together {minutes / 60:.0f} hours.

{table_of_books}

Rows are what the course must show, numbered by topic: {topics}. A notebook that exists shows each of its rows in a cell
that carries the row as a tag.

## Paths

{paths}

## Kinds of notebook

{kinds}
"""


def spans(rows: Iterable[str]) -> str:
    """Row ids, neighbours drawn together.

    >>> spans(("A4", "A5", "A6", "A13", "F"))
    'A4–A6, A13, F'
    """
    found: list[list[str]] = []
    for row in rows:
        if found and row[1:] and row == f"{found[-1][-1][0]}{int(found[-1][-1][1:] or 0) + 1}":
            found[-1].append(row)
        else:
            found.append([row])
    return ", ".join(run[0] if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in found)


def glossary(root: Path) -> str:
    """Every symbol in English and Chinese."""
    parts = {"Acting and credit": CONTROL, "Probability": PROBABILITY, "Language": LANGUAGE, "Scale": SCALE}
    sections = "\n\n".join(f"## {title}\n\n{symbols_table(entries)}" for title, entries in parts.items())
    return f"""\
# Glossary

In a notebook, `course.symbols("r", "A", "ε")` shows the same lines. Shapes: B rows, T steps (tokens of a response), P
tokens of a prompt. What is in code is a name below `ppo_lab`.

{sections}
"""


def symbols_table(entries: Iterable[Symbol]) -> str:
    """One group of the glossary."""
    head = ("symbol", "English", "中文", "meaning", "shape", "unit", "in code")
    rows = ((code(e.key), e.name, e.chinese, e.meaning, e.shape or "–", e.unit or "–", code(e.code)) for e in entries)
    return table(head, rows)


def kill_matrices(root: Path) -> str:
    """Exercises × wrong answers: what catches each."""
    total = sum(len(entry.mutants) for entry in EXERCISES.values())
    sections = "\n\n".join(map(kill_section, EXERCISES.values()))
    return f"""\
# Kill matrix

A check is only worth something if wrong answers fail it. Each exercise knows the plausible wrong ones ({total} in all);
they run on its toy data, and a cross marks what catches them. A row without a cross would be a hole in the check, and
fails a test. A learner whose function gives the numbers of one of them is told its misconception.

{sections}
"""


def kill_section(entry: Exercise) -> str:
    """One exercise."""
    matrix = kill_matrix(entry)
    columns = list(next(iter(matrix.values())))
    key = dict(zip(columns, columns, strict=True)) if entry.reference else {c: str(i) for i, c in enumerate(columns, 1)}
    caught = sum(any(row.values()) for row in matrix.values())
    rows = ((name, *("✗" if row[c] else "" for c in columns)) for name, row in matrix.items())
    note = "" if entry.reference else "\n\n".join(["", "The laws: " + "; ".join(f"{key[c]} {c}" for c in columns)])
    book = NOTEBOOKS[entry.notebook]
    place = linked(book, book.name) + ("" if book.written else " (planned)")
    head = ("wrong answer", *(key[c] for c in columns))
    summary = f"Notebook {place}. {caught} of {len(matrix)} wrong answers are caught."
    return f"## `{entry.name}`\n\n{summary}\n\n{table(head, rows)}{note}"


def claims(root: Path) -> str:
    """What write-ups say against what the notebooks measured, from the outputs that they store."""
    sections = []
    for book in NOTEBOOKS.values():
        path = root / "notebooks" / f"{book.name}.ipynb"
        if book.written and path.is_file():
            found = [*claims_in(json.loads(path.read_text(encoding="utf-8")))]
            rows = ((code(c.id), *c.cells()) for c in found)
            if found:
                head = ("claim", "what is said", "measured", "95 % interval", "verdict")
                sections.append(f"## {linked(book, f'{book.number} {book.title}')}\n\n{table(head, rows)}")
    ledger = "\n\n".join(sections) or "No notebook that enters a claim is written yet: all are planned."
    return f"""\
# Claims ledger

What papers, posts and folklore say, and what came out when a notebook measured it. A verdict needs distance: a mean
that is nearer than three standard errors to the claim's limit decides nothing. Verdicts are of the small models and
toys that were measured, on paired seeds; they are no law for large ones.

{ledger}
"""
