"""`progress()`: what the learner has done so far, by their own report."""

from __future__ import annotations

from ppo_lab.course.catalogue import NOTEBOOKS
from ppo_lab.course.exercises import EXERCISES
from ppo_lab.course.html import Card, show, table
from ppo_lab.course.session import SESSION, read_progress, working_copy

HONEST = "Self-report: what your own kernels noted; nobody has checked it."


def progress() -> None:
    """Show exercises passed, missions met and bets placed, a line a notebook.

    In a working copy this is remembered from one notebook to the next, in its ``progress.json``; elsewhere it covers
    this kernel only.
    """
    root = working_copy()
    done = dict(SESSION.done) if root is None else {**read_progress(root)}
    verdicts = done.get("exercise", {})
    rows = []
    for book in NOTEBOOKS.values():
        mine = [entry.name for entry in EXERCISES.values() if entry.notebook == book.name]
        if mine and book.written and (root is not None or SESSION.name in ("", book.name)):
            passed = [name for name in mine if verdicts.get(name) == "PASS"]
            rows.append((book.name, f"{len(passed)} of {len(mine)}", ", ".join(passed)))
    total = f"{sum(v == 'PASS' for v in verdicts.values())} exercises passed"
    extra = f"{len(done.get('mission', {}))} missions met, {len(done.get('bet', {}))} bets placed"
    text = "\n".join([HONEST, *(f"{name}: {share}" for name, share, _ in rows), f"{total}, {extra}"])
    head = ("notebook", "exercises", "passed")
    lines = table(rows, head=head) if rows else ""
    show(Card(text, f"<div>{HONEST}</div>{lines}<div>{total}, {extra}</div>"))
