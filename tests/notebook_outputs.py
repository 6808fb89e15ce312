"""Rules for what is stored in a committed notebook: executed in order, whole, quiet, and the same on every machine."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from house import machine_paths
from notebook_lint import AUTHORED, Content, Rule, calls, cells, source, tree

from ppo_lab.course.build import HERE, KEPT_CELL, KERNEL, VIEW
from ppo_lab.course.catalogue import Notebook

ROOT = Path(__file__).resolve().parent.parent
MOST_BYTES = 1_000_000
PICTURES = ("image/png", "image/svg+xml", "image/jpeg")
CHANGING = {
    "an address in memory": re.compile(r"\b0x[0-9a-f]{6,}"),
    "a time (mark it with course.here)": re.compile(r"\d\.\d+ ?(s|ms|µs|sec|seconds)\b|\bit/s\b|\btok/s\b"),
    "a date": re.compile(r"\b20\d\d-\d\d-\d\d[ T]\d\d:\d\d"),
    "a progress bar": re.compile(r"\r|\d%\|"),
    "terminal colours": re.compile(r"\x1b\["),
    "a warning": re.compile(r"\b\w*Warning:"),
}
SILENT = {"backward", "step", "zero_grad", "append", "extend", "update", "manual_seed", "load_state_dict", "train",
          "eval", "set", "reset", "close"}  # fmt: skip
SPEAKING = {"print", "display", "bet", "check", "claim", "ledger", "metric", "progress", "quiz", "reveal", "see",
            "start", "symbols"}  # fmt: skip


def outputs(notebook: Content) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """(cell, output) of every stored output."""
    for cell in cells(notebook, "code"):
        for output in cell.get("outputs", ()):
            yield cell, output


def texts(output: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(kind, text) of an output, pictures left out."""
    if "text" in output:
        yield "stream", _joined(output["text"])
    for kind, value in output.get("data", {}).items():
        if kind.startswith("text/") or kind.endswith("json"):
            yield kind, _joined(value)


def _joined(text: Any) -> str:
    return "".join(text) if isinstance(text, list) else str(text)


def executed(notebook: Content, book: Notebook) -> Iterator[str]:
    """Every code cell was run once, from top to bottom, in a fresh kernel."""
    counts = [cell["execution_count"] for cell in cells(notebook, "code") if source(cell).strip()]
    if counts != [*range(1, len(counts) + 1)]:
        yield f"cells were not executed in order: {counts}"


def whole(notebook: Content, book: Notebook) -> Iterator[str]:
    """No output was stripped: a cell that must show something has something stored."""
    for cell in cells(notebook, "code"):
        if not cell.get("outputs") and speaks(tree(cell)):
            yield f"cell {cell['id']} must show something, but nothing is stored"


def speaks(body: ast.Module) -> bool:
    """Whether a cell shows something for certain: it prints or shows a card, or ends in a value."""
    top = [node for node in body.body if isinstance(node, ast.Expr | ast.Assign)]
    called = {name for node in top for name in _called(node)}
    last = body.body[-1] if body.body else None
    if called & SPEAKING or not isinstance(last, ast.Expr):
        return bool(called & SPEAKING)
    value = last.value
    if isinstance(value, ast.Call):
        name = ast.unparse(value.func).split(".")[-1]
        return name not in SILENT and not name.endswith("_")
    return not (isinstance(value, ast.Constant) and value.value is None)


def _called(node: ast.AST) -> set[str]:
    value = getattr(node, "value", None)
    return {ast.unparse(value.func).split(".")[-1]} if isinstance(value, ast.Call) else set()


def clean(notebook: Content, book: Notebook) -> Iterator[str]:
    """No error, nothing on stderr, no live widget state, no metadata of a session."""
    for cell, output in outputs(notebook):
        if output["output_type"] == "error":
            yield f"cell {cell['id']} stores an error: {output['ename']}"
        if output.get("name") == "stderr":
            yield f"cell {cell['id']} stores what went to stderr"
        if VIEW in output.get("data", {}):
            yield f"cell {cell['id']} stores a live widget, which no page without a kernel can show"
        if "data" in output and "text/plain" not in output["data"]:
            yield f"cell {cell['id']} stores an output without text"
    if "widgets" in notebook["metadata"]:
        yield "metadata.widgets is stored"
    if notebook["metadata"].get("kernelspec") != KERNEL:
        yield f"the kernel must be {KERNEL['name']}, {KERNEL['display_name']}"
    if (notebook["nbformat"], notebook["nbformat_minor"]) < (4, 5):
        yield "the format is older than 4.5, which has no cell ids"
    for cell in cells(notebook):
        if extra := sorted({*cell["metadata"]} - {*KEPT_CELL}):
            yield f"cell {cell['id']} stores metadata of a session: {', '.join(extra)}"


def constant(notebook: Content, book: Notebook) -> Iterator[str]:
    """Stored text is the same in every run; pictures are not inside it, where they would be compared."""
    for cell, output in outputs(notebook):
        for kind, text in texts(output):
            plain = HERE.sub("", text)
            for what, pattern in CHANGING.items():
                if found := pattern.search(plain):
                    yield f"cell {cell['id']} stores {what}: {found[0].strip()!r}"
            if kind == "text/html" and "<img" in text:
                yield f"cell {cell['id']} stores a picture inside of HTML"
            if kind == "text/html" and re.search(r"<script|(src|href)=[\"']https?:", text):
                yield f"cell {cell['id']} stores HTML that needs a script or the network"


def paths(notebook: Content, book: Notebook) -> Iterator[str]:
    """No path of one machine, in text or output."""
    places = {str(ROOT), str(Path.home()), sys.prefix} - {"/"}
    for cell in cells(notebook):
        stored = [text for output in cell.get("outputs", ()) for _, text in texts(output)]
        for text in (source(cell), *stored):
            found = [*machine_paths(text, f"cell {cell['id']}")]
            yield from found or (f"cell {cell['id']} names {place}" for place in places if place in text)


def pictures(notebook: Content, book: Notebook) -> Iterator[str]:
    """A picture within the first five cells; a panel stores its picture."""
    first = notebook["cells"][:5]
    drawn = any({*PICTURES} & {*o.get("data", {})} for cell in first for o in cell.get("outputs", ()))
    if not drawn and not any(re.search(r"!\[[^\]]+\]\((?!https?:)", source(cell)) for cell in first):
        yield "no picture within the first five cells"
    for cell, output in outputs(notebook):
        data = output.get("data", {})
        if _joined(data.get("text/plain", "")).startswith("Panel ") and "image/png" not in data:
            yield f"cell {cell['id']} stores a panel without its picture"


def one_line(notebook: Content, book: Notebook) -> Iterator[str]:
    """The setup cell prints one line."""
    for cell in cells(notebook, "code"):
        if "start" in calls(tree(cell)):
            said = "".join(text for output in cell.get("outputs", ()) for _, text in texts(output))
            if said.count("\n") != 1 or not said.startswith(f"{book.name}: ready"):
                yield f"cell {cell['id']} must print one line, that all is ready, not {said!r}"


def size(notebook: Content, book: Notebook, stored_bytes: int) -> Iterator[str]:
    """Below 1 MB: it is fetched by everybody and kept for ever."""
    if stored_bytes >= MOST_BYTES:
        yield f"the file has {stored_bytes} bytes, at most {MOST_BYTES}"


STORED: tuple[Rule, ...] = (executed, whole, clean, constant, paths, pictures, one_line)


def faults(notebook: Content, book: Notebook, stored_bytes: int = 0) -> list[str]:
    """Every violation of every rule."""
    found = [fault for rule in (*AUTHORED, *STORED) for fault in rule(notebook, book)]
    return found + [*size(notebook, book, stored_bytes)]
