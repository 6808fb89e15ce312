"""A small concept notebook that keeps every rule: the ground that faults are planted in. It is executed once."""

from __future__ import annotations

from typing import Any

import nbformat

from ppo_lab.course.catalogue import NOTEBOOKS
from ppo_lab.course.exercises import EXERCISES

BOOK = NOTEBOOKS["04_clipping"]
HEADER = """# 04 · Clipping

You will be able to write PPO's objective, and to say which samples of a batch still push the policy and which of them
have gone silent. 25 min of reading and doing. You need: ratios of probabilities (03) and a little patience.

03 Importance sampling · map · 05 Generalised advantages (the ones not written yet are planned)"""
RECAP = """## Recap

The clipped objective stops paying for a move once the ratio has left the band around one, but only on the side where
the move pays. A bad action that became more likely is still pushed back: the smaller of the two products is taken.

Reading: Schulman et al. 2017, Proximal Policy Optimization Algorithms, eq. 7; Ye et al. 2020 for the second clip."""
CELLS: tuple[tuple[str, str, str], ...] = (  # id, tags, source; markdown where it starts with a heading or a capital
    ("header", "", HEADER),
    ("setup", "", 'import torch\nfrom course.probe_panel import panel\nfrom ppo_lab import course\n\n'
     'course.start("04_clipping")'),
    ("bet", "part:bet", 'push = course.bet("A bad action became more likely. Still pushed down?", "yes", "no")'),
    ("panel", "part:panel row:A6", "line = panel()\nline"),
    ("see", "", 'course.see(line, "The line ends at {end:.2f}.")'),
    ("names", "row:A7", 'course.symbols("r", "A", "ε")\ncourse.metric("clip_fraction")'),
    ("by-hand-text", "", "## By hand\n\nThree samples are enough to see it all: two good ones and a bad one, with "
     "ratios far above one, near one, and far below one. Work the three numbers out on paper before you run it."),
    ("by-hand", "part:by-hand row:A5", "ratio = torch.tensor([1.4, 0.97, 0.6])\nA = torch.tensor([1.0, 1.0, -1.0])\n"
     "torch.minimum(ratio * A, ratio.clamp(0.8, 1.2) * A)"),
    ("your-turn-text", "", "## Your turn\n\nWrite the objective for every step. Do not average: that comes later, with "
     "the mask, and in one place only. There is more than one way to write it; the check compares numbers and slopes."),
    ("your-turn", "part:exercise row:A6", EXERCISES["clipped_surrogate"].stub),
    ("your-turn-2", "", EXERCISES["clip_fraction"].stub),
    ("your-turn-3-text", "", "And one to transfer: what would an objective look like that pulls a sample back towards "
     "the band, when the clip would only have let it go?"),
    ("your-turn-3", "", EXERCISES["rollback"].stub),
    ("experiment", "part:experiment row:A4 row:A13",
     "ends = [0.30, 0.31, 0.29, 0.30, 0.32] * 2\nmeasured = course.measure(ends, least=0.2, most=0.4)\n"
     'course.claim("A4.share", "About a third is silent.", measured)'),
    ("bug-text", "", "## A bug\n\nTake the minimum over the ratios and not over the products, and for a bad action the "
     "order turns round: the clip then holds where it should let go. Nothing crashes, and the loss looks healthy."),
    ("bug", "part:bug row:A15", "torch.minimum(ratio, ratio.clamp(0.8, 1.2)) * A"),
    ("reveal", "", 'push.reveal("yes", "The smaller product is the one that is not clipped.")'),
    ("recap-text", "part:recap", RECAP),
    ("recap", "", 'course.ledger()\ncourse.quiz(\n    ("When is a good step silent?", "Above the band."),\n'
     '    ("And a bad one?", "Below it."),\n    ("Does the clip bound the KL?", "No."),\n)'),
)  # fmt: skip


def sample() -> Any:
    """The notebook, not yet executed."""
    notebook = nbformat.v4.new_notebook()
    for id, tags, source in CELLS:
        prose = id == "header" or id.endswith("-text")
        new = nbformat.v4.new_markdown_cell if prose else nbformat.v4.new_code_cell
        notebook["cells"].append(new(source, id=id, metadata={"tags": tags.split()} if tags else {}))
    return notebook


def cell(notebook: Any, id: str) -> Any:
    """The cell of that id."""
    return next(c for c in notebook["cells"] if c["id"] == id)
