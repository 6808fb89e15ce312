"""Three questions at the end of a notebook, each with its answer behind a click."""

from __future__ import annotations

from html import escape

from ppo_lab.course.html import Card, details, show

QUESTIONS = 3


def quiz(*pairs: tuple[str, str]) -> None:
    """Show three (question, answer) pairs; answers stay closed until clicked and are not in the text output."""
    if len(pairs) != QUESTIONS:
        raise ValueError(f"a quiz has {QUESTIONS} questions, got {len(pairs)}; a reader remembers no more")
    body = "".join(
        f'<div style="margin-top:.3em"><b>{i}.</b> {escape(question)}{details("answer", escape(answer))}</div>'
        for i, (question, answer) in enumerate(pairs, 1)
    )
    lines = [f"{i}. {question}" for i, (question, _) in enumerate(pairs, 1)]
    show(Card("\n".join(["Quiz", *lines]), body))
