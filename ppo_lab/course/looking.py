"""To look at: answers before and after training, the source of a function, the stations of the loop."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING, Any

from ppo_lab.course.captions import Drawn
from ppo_lab.course.html import Card, code, show, table
from ppo_lab.course.session import here

if TYPE_CHECKING:
    from ppo_lab.rlhf.compare import BeforeAfter
    from ppo_lab.rlhf.train import Run

# Words that a trained policy says differ from machine to machine in rare places. Comments keep the mark of `here` off
# the page; a bracket inside would end it early.
OPEN, CLOSE = "<!--[this machine: -->", "<!--]-->"


def samples(pair: BeforeAfter, count: int = 4) -> None:
    """The same prompts and the same noise, answered before and after training, with the reward model's score."""
    rows = [
        (str(pair.before["prompt"][i]), *_cells(pair.before, i), *_cells(pair.after, i))
        for i in range(min(count, len(pair.before["prompt"])))
    ]
    head = ("prompt", "before", "score", "after", "score")
    inside = table(rows, head=head, align="right").replace("[", "&#91;").replace("]", "&#93;")
    lines = "\n".join(" | ".join(row) for row in rows).replace("]", ")")
    text = f"{len(rows)} prompts, before and after\n{here(lines)}"
    show(Card(text, f"<b>{len(rows)} prompts, before and after</b>{OPEN}{inside}{CLOSE}"))


def _cells(side: Any, i: int) -> tuple[str, str]:
    return str(side["response"][i]), f"{float(side['score'][i]):+.2f}"


def source(function: Callable[..., Any]) -> None:
    """Print a function of the package as it runs; its docstring stands above it."""
    text = without_docstring(textwrap.dedent(inspect.getsource(function)))
    document = inspect.getdoc(function)
    name = function.__qualname__
    body = f"<b>{escape(name)}</b>: {escape(document or '')}{code(text)}"
    show(Card(f"Source of {name}\n{text}", body, width=76))


def without_docstring(source: str) -> str:
    """The text of a function without its docstring and without notes to the formatter.

    >>> without_docstring('def f():\\n    "Doc."\\n    return 1  # fmt: skip\\n')
    'def f():\\n    return 1'
    """
    lines, body = source.rstrip().splitlines(), ast.parse(source).body[0].body  # type: ignore[attr-defined]
    first = body[0]
    if len(body) > 1 and isinstance(first, ast.Expr) and isinstance(getattr(first.value, "value", None), str):
        del lines[first.lineno - 1 : first.end_lineno]
    return "\n".join(line.removesuffix("# fmt: skip").rstrip() for line in lines)


def flow(station: int, **given: Any) -> None:
    """The stations of the loop with those up to ``station`` lit, and the shapes of what was just made.

    Args:
        station: 1 to 8; 0 lights nothing.
        given: tensors (shown by their shape) or numbers, by name.
    """
    from ppo_lab.course.figures.flow import STATIONS, flow_figure

    made = [f"{name} {_shape(value)}" for name, value in given.items()]
    figure = flow_figure(station, made)
    what = STATIONS[station - 1].title.replace("\n", " ") if station else "the loop"
    names = f": {', '.join(given)}" if given else ""  # shapes hang on the longest answer, so they are only drawn
    show(Drawn(figure, f"{what}, station {station} of {len(STATIONS)}{names}"))


def _shape(value: Any) -> str:
    if hasattr(value, "shape"):
        return "(" + ", ".join(map(str, value.shape)) + ("," if len(value.shape) == 1 else "") + ")"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def models(run: Run) -> None:
    """The four models of a run: where each came from, what is trained, and the bytes that weights and training take."""
    rows = [
        (name, start, "trained" if trained else "frozen", f"{count:,}", *(f"{size / 1e6:.1f} MB" for size in sizes))
        for name, start, trained, count, sizes in four_models(run)
    ]
    head = ("model", "starts as", "", "parameters", "weights", "gradients", "Adam's m, v")
    text = "\n".join(" | ".join(row) for row in (head, *rows))
    show(Card(f"Four models\n{text}", table(rows, head=head, align="right")))


def four_models(run: Run) -> list[tuple[str, str, bool, int, tuple[int, int, int]]]:
    """(name, start, trained?, parameters, (bytes of weights, gradients, moments)) of each of the four.

    A frozen model has no gradients and no moments, so it costs a quarter of what a trained one does.
    """
    module, frozen = run.learner.module, run.learner.frozen  # type: ignore[attr-defined]
    critic = [p for name, p in module.named_parameters() if not name.startswith("policy.")]
    found = [("policy", "SFT", [*module.policy.parameters()]),
             ("reference", "SFT", [*frozen["reference"].parameters()]),
             ("critic", f"{module.origin}, new head", critic)]  # fmt: skip
    found += [("reward model", "SFT, then preferences", [*model.parameters()])
              for name, model in frozen.items() if name != "reference"]  # fmt: skip
    lines = []
    for name, start, parameters in found:
        weights = sum(p.numel() * p.element_size() for p in parameters)
        learned = sum(p.numel() * p.element_size() for p in parameters if p.requires_grad)
        count = sum(p.numel() for p in parameters)
        lines.append((name, start, learned > 0, count, (weights, learned, 2 * learned)))
    return lines
