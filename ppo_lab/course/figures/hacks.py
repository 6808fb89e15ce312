"""Tables of notebook 12: hacks as text with both scores, and the form of Gao et al. fitted to gold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ppo_lab.course.experiments.pressed import Rows, fits
from ppo_lab.course.figures.trust import mean
from ppo_lab.course.html import Card, show, table
from ppo_lab.evaluate.overoptimisation import Form


def show_hacks(rows: Rows, title: str) -> None:
    """Texts, each with its proxy (deviations of the untouched policy) and gold (−1 to 1), widest gap first."""
    lines = [(str(row["text"]), str(row["arm"]), f"{row['proxy']:+.1f}", f"{row['gold']:+.2f}") for row in rows]
    head = ("text", "run", "proxy", "gold")
    text = "\n".join(" | ".join(line) for line in (head, *lines))
    show(Card(f"{title}\n{text}", f"<b>{title}</b>{table(lines, head=head, align='right')}", width=76))


def gao_lines(found: Mapping[str, tuple[Rows, str, Form]]) -> list[tuple[str, ...]]:
    """A line a curve: α, β, the share explained, and the √KL of the peak where every seed has one; means over seeds."""
    lines: list[tuple[str, ...]] = []
    for name, (rows, arm, form) in found.items():
        fitted = fits(rows, arm, form)
        peaks = [fit.peak for fit in fitted]
        peak = f"{mean(peaks):.1f}" if max(peaks) < 100 else "none in sight"
        lines.append((name, f"{mean([f.alpha for f in fitted]):.2f}", f"{mean([f.beta for f in fitted]):.2f}",
                      f"{mean([f.explained for f in fitted]):.2f}", peak))  # fmt: skip
    return lines


def show_gao(found: Mapping[str, tuple[Rows, str, Form]]) -> None:
    """The fits as a table."""
    lines: list[tuple[str, ...]] = gao_lines(found)
    head = ("gold of", "α", "β", "explained", "peak at √KL")
    text = "\n".join(" | ".join(line) for line in (head, *lines))
    show(Card(f"Gao's form\n{text}", table(lines, head=head, align="right"), width=60))


def counts(rows: Rows, arm: str) -> dict[str, Any]:
    """Seeds of an arm, and how many of its judges order fewer than 6 in 10 held-out pairs rightly."""
    mine = [row for row in rows if row["arm"] == arm and row["step"] == 0]
    return {"seeds": len(mine), "poor": sum(row["accuracy"] < 0.6 for row in mine)}
