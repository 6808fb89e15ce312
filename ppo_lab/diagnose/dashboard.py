"""A run as one picture and one page: `figure` for notebooks and paper, `write_report` for the run's folder."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.text import Text

from ppo_lab.diagnose import report, style
from ppo_lab.diagnose.control import panels_of
from ppo_lab.diagnose.curves import RIGHT, Rows
from ppo_lab.diagnose.folder import read_run
from ppo_lab.diagnose.plots import samples_strip

DPI = 144  # 1800 pixels wide: sharp on a laptop, 200 dots an inch across A4


def figure(
    rows: Rows,
    *,
    title: str = "",
    baseline: Mapping[str, Any] | None = None,
    samples: Sequence[Mapping[str, Any]] = (),
) -> Figure:
    """All panels on one sheet, 12.5 × 9 inches; with ``samples`` a strip of answers before and after below.

    Args:
        rows: of metrics.jsonl (`ppo_lab.metrics.read`), or of ``StepMetrics.row()``; any number, none included.
        title: the name of the run; characters no font here has are drawn as ``□``, with one note.
        baseline: the evaluation of the untouched SFT policy, drawn at step 0.
        samples: rows of samples.jsonl.

    Returns:
        A `matplotlib.figure.Figure` that pyplot knows nothing of: it needs no closing, ``savefig`` writes it.
    """
    with style.styled():
        sheet = style.blank(12.5, 10.3 if samples else 9.0)
        grid = sheet.add_gridspec(4 if samples else 3, 4, height_ratios=[1, 1, 1, 0.42][: 4 if samples else 3])
        for place, (name, panel) in enumerate(panels_of(rows).items()):
            ax = sheet.add_subplot(grid[divmod(place, 4)])
            panel(ax, rows, **({"baseline": baseline} if name == "evaluation" else {}))
        if samples:
            samples_strip(sheet.add_subplot(grid[3, :]), samples)
        sheet.suptitle(style.drawable(title) or " ", x=0.006, ha="left", fontsize=11, weight="bold", parse_math=False)
        legend = f"shaded: healthy band   {RIGHT} right scale"
        if any(style.MISSING in text.get_text() for text in sheet.findobj(Text)):
            legend += f"   {style.MISSING} no font here has this character"
        sheet.text(0.994, 0.992, legend, ha="right", va="top", fontsize=7, color=style.NOTE)
        return sheet


def write_report(folder: str | Path) -> tuple[Path, Path]:
    """Write ``dashboard.png`` and ``report.html`` into a run's folder; also of a run that is still going on.

    The page is self-contained. Both replace older ones in one move, so a reader never sees half a file.

    Raises:
        ValueError: no metrics.jsonl in the folder, or one that is broken in the middle.
    """
    folder = Path(folder)
    run = read_run(folder)
    picture, html = folder / "dashboard.png", folder / "report.html"
    sheet = figure(run.rows, title=f"{run.name} · {run.state}", baseline=run.baseline, samples=run.samples)
    partial = folder / ".dashboard.png.tmp"
    with style.styled():
        sheet.savefig(partial, format="png", dpi=DPI, metadata={"Software": None})
    os.replace(partial, picture)
    partial = folder / ".report.html.tmp"
    partial.write_text(report.page(run), encoding="utf-8")
    os.replace(partial, html)
    return picture, html
