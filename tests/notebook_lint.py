"""Rules for a committed notebook, as functions of its content: each yields one sentence a violation.

This file: how a notebook is built and written. `notebook_outputs.py`: what is stored in it. `faults` runs them all;
`tests/test_notebooks.py` runs that over the repository's notebooks, and over a good one with planted faults.
"""

from __future__ import annotations

import ast
import csv
import re
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ppo_lab.course.catalogue import NOTEBOOKS, Notebook, neighbours
from ppo_lab.course.exercises import EXERCISES, of_notebook

Content = Mapping[str, Any]
Rule = Callable[[Content, Notebook], Iterator[str]]
ROWS = Path(__file__).parent / "data" / "rows.csv"

MOST_CELLS, LONGEST_LINE, LONGEST_CELL, MEDIAN_CELL = 45, 88, 25, 6
FEWEST_WORDS, MOST_WORDS = 5, 9  # of prose for a line of code
MOST_SERVICE = 0.25  # share of code cells that only set up or tabulate
SERVICE = {"start", "symbols", "metric", "progress", "quiz", "ledger"}
ID = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
RANDOM_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){0,3}.*")
OPT_OUT = re.compile(r"NBVAL_|nbval[-_]|raises-exception|skip-execution", re.I)
FORBIDDEN = {
    r"\binteract(ive|_manual)?\(": "interact",
    r"\bOutput\(": "Output()",
    r"clear_output": "clear_output",
    r"\.update_display|display_id": "display updates",
    r"\bpyplot\b|\bplt\.": "pyplot (make a Figure)",
    r"\bopen\(|\bPath\(|\bread_csv\(|\.chdir\(": "a file by its place (course.scratch, course.recorded)",
}
NETWORK = re.compile(
    r"https?://|^\s*[!%]\s*(pip|conda|wget|curl|git)\b|\b(requests|urllib|httpx|aiohttp|socket)\b|load_dataset\(|"
    r"hf_hub_download|snapshot_download|from_pretrained\(\s*[\"'][\w.-]+/[\w.-]+[\"']",
    re.M,
)


def cells(notebook: Content, kind: str | None = None) -> list[Mapping[str, Any]]:
    """All cells, or those of one kind (``code``, ``markdown``)."""
    return [cell for cell in notebook["cells"] if kind in (None, cell["cell_type"])]


def source(cell: Mapping[str, Any]) -> str:
    """The text of a cell, however it is stored."""
    text = cell["source"]
    return text if isinstance(text, str) else "".join(text)


def lines(cell: Mapping[str, Any]) -> list[str]:
    """Lines of a cell that are not blank."""
    return [line for line in source(cell).splitlines() if line.strip()]


def tags(cell: Mapping[str, Any]) -> Sequence[str]:
    """The tags a person gave the cell, as ``part:bet`` and ``row:A1``."""
    return cell["metadata"].get("tags", ())


def tree(cell: Mapping[str, Any]) -> ast.Module:
    """The parsed cell; one that holds magics or errors parses as empty."""
    try:
        return ast.parse(source(cell))
    except SyntaxError:
        return ast.Module([], [])


def calls(node: ast.AST) -> list[str]:
    """What is called as ``course.NAME(...)`` anywhere below."""
    found = [n.func for n in ast.walk(node) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)]
    return [f.attr for f in found if isinstance(f.value, ast.Name) and f.value.id == "course"]


def calling(notebook: Content, name: str) -> list[Mapping[str, Any]]:
    """Code cells that call ``course.NAME``."""
    return [cell for cell in cells(notebook, "code") if name in calls(tree(cell))]


# --- how it is written -----------------------------------------------------------------------------------------------


def sizes(notebook: Content, book: Notebook) -> Iterator[str]:
    """At most 45 cells; code short and narrow."""
    if (count := len(cells(notebook))) > MOST_CELLS:
        yield f"{count} cells, at most {MOST_CELLS}"
    lengths = [len(lines(cell)) for cell in cells(notebook, "code")]
    if lengths and statistics.median(lengths) > MEDIAN_CELL:
        yield f"the median code cell has {statistics.median(lengths):g} lines, at most {MEDIAN_CELL}"
    for cell in cells(notebook, "code"):
        if len(lines(cell)) > LONGEST_CELL:
            yield f"cell {cell['id']} has {len(lines(cell))} lines, at most {LONGEST_CELL}"
        if (widest := max(map(len, source(cell).splitlines()), default=0)) > LONGEST_LINE:
            yield f"cell {cell['id']} has a line of {widest} characters, at most {LONGEST_LINE}"


def prose(notebook: Content, book: Notebook) -> Iterator[str]:
    """Five to nine words of prose for a line of code."""
    words = sum(len(re.findall(r"\w+", source(cell))) for cell in cells(notebook, "markdown"))
    code = sum(len(lines(cell)) for cell in cells(notebook, "code"))
    if code and not FEWEST_WORDS <= words / code <= MOST_WORDS:
        yield f"{words / code:.1f} words of prose for a line of code, not {FEWEST_WORDS} to {MOST_WORDS}"


def is_service(cell: Mapping[str, Any]) -> bool:
    """Imports, settings and tables only: nothing is computed that a reader came for."""
    body = tree(cell).body
    return bool(body) and all(
        isinstance(node, ast.Import | ast.ImportFrom)
        or (isinstance(node, ast.Expr) and {*calls(node)} and {*calls(node)} <= SERVICE)
        for node in body
    )


def service(notebook: Content, book: Notebook) -> Iterator[str]:
    """At most a quarter of the code cells are service cells."""
    code = cells(notebook, "code")
    count = sum(map(is_service, code))
    if code and count / len(code) > MOST_SERVICE:
        yield f"{count} of {len(code)} code cells are service cells, at most {MOST_SERVICE:.0%}"


def ids(notebook: Content, book: Notebook) -> Iterator[str]:
    """Every cell has its own name that a translation can follow; none is random."""
    seen = [cell.get("id", "") for cell in cells(notebook)]
    for id in dict.fromkeys(seen):
        if seen.count(id) > 1:
            yield f"{seen.count(id)} cells have the id {id!r}"
        if not ID.fullmatch(id) or RANDOM_ID.fullmatch(id):
            yield f"the cell id {id!r} is no name in small letters, as by-hand-1"


def forbidden(notebook: Content, book: Notebook) -> Iterator[str]:
    """No way around the comparison of outputs, nothing that strict comparison cannot follow, no network."""
    for cell in cells(notebook):
        if found := OPT_OUT.search(source(cell) + " ".join(tags(cell))):
            yield f"cell {cell['id']} opts out of checks: {found[0]}"
    for cell in cells(notebook, "code"):
        for pattern, name in FORBIDDEN.items():
            if re.search(pattern, source(cell)):
                yield f"cell {cell['id']} uses {name}"
        if found := NETWORK.search(source(cell)):
            yield f"cell {cell['id']} needs the network: {found[0].strip()}"


# --- how it is built -------------------------------------------------------------------------------------------------


def header(notebook: Content, book: Notebook) -> Iterator[str]:
    """First cell: title, what a reader will be able to do, minutes, what is needed, the way back and on."""
    first = source(notebook["cells"][0]) if notebook["cells"] else ""
    wanted = {
        "title": rf"^# {book.number} · ",
        "what you will be able to do": r"you will be able to",
        "minutes": r"\d+ min",
        "what you need": r"you need",
        "map": r"\bmap\b",
    }
    before, after = neighbours(book.name)
    wanted |= {f"notebook {near.number}": near.number for near in (before, after) if near}
    for what, pattern in wanted.items():
        if not re.search(pattern, first, re.I | re.M):
            yield f"the header lacks {what}"


def parts(notebook: Content, book: Notebook) -> Iterator[str]:
    """The parts of its kind are there, by the tags ``part:NAME``."""
    have = {tag.removeprefix("part:") for cell in cells(notebook) for tag in tags(cell) if tag.startswith("part:")}
    for part in book.parts:
        if part not in have:
            yield f"the part {part} of a {book.kind} notebook is missing"
    for part in sorted(have - {*book.parts}):
        yield f"part:{part} is no part of a {book.kind} notebook"
    needed = {"bet": "bet", "exercise": "check", "recap": "quiz", "experiment": "claim"}
    for part in book.parts:
        if part in needed and not calling(notebook, needed[part]):
            yield f"the part {part} lacks a call of course.{needed[part]}"
    if "recap" in book.parts and not any(re.search(r"\beq\.", source(c)) for c in cells(notebook, "markdown")):
        yield "the recap names no reading with an equation number (eq.)"
    if book.kind in ("concept", "lab") and not calling(notebook, "metric"):
        yield "no cell says what a log calls it (course.metric)"


def setup(notebook: Content, book: Notebook) -> Iterator[str]:
    """One cell starts the session, under the notebook's own name."""
    starting = calling(notebook, "start")
    if len(starting) != 1:
        yield f"{len(starting)} cells call course.start, not one"
    elif f'course.start("{book.name}"' not in source(starting[0]):
        yield f'course.start must name "{book.name}"'


def order(notebook: Content, book: Notebook) -> Iterator[str]:
    """The bet comes before any result, the ledger after the last claim."""
    code = cells(notebook, "code")
    bets = [i for i, cell in enumerate(code) if "bet" in calls(tree(cell))]
    results = [i for i, cell in enumerate(code) if cell.get("outputs") and not is_service(cell) and i not in bets]
    if bets and results and results[0] < bets[0]:
        yield f"cell {code[results[0]]['id']} shows a result before the bet"
    claims = [i for i, cell in enumerate(code) if "claim" in calls(tree(cell))]
    ledgers = [i for i, cell in enumerate(code) if "ledger" in calls(tree(cell))]
    if claims and (not ledgers or ledgers[-1] < claims[-1]):
        yield "no course.ledger() after the last claim"


def exercises(notebook: Content, book: Notebook) -> Iterator[str]:
    """Each exercise of the notebook is there once, as an untouched stub with its check as the last line."""
    present = []
    for cell in calling(notebook, "check"):
        body = tree(cell).body
        names = [node.name for node in body if isinstance(node, ast.FunctionDef)]
        name = names[-1] if names else ""
        present.append(name)
        if name not in EXERCISES or EXERCISES[name].notebook != book.name:
            yield f"cell {cell['id']} checks {name or 'nothing'}, which is no exercise of {book.name}"
            continue
        if ast.unparse(body[-1]) != f"{name} = course.check({name})":
            yield f"cell {cell['id']} must end with {name} = course.check({name})"
        if ast.unparse(body[0]) != ast.unparse(ast.parse(EXERCISES[name].stub).body[0]):
            yield f"cell {cell['id']} is not the untouched stub of {name}"
    for entry in of_notebook(book.name):
        if present.count(entry.name) != 1:
            yield f"the exercise {entry.name} is there {present.count(entry.name)} times, not once"


def links(notebook: Content, book: Notebook, folder: Path | None = None) -> Iterator[str]:
    """Links between notebooks lead somewhere; one that is only planned is plain text."""
    for cell in cells(notebook, "markdown"):
        for target in re.findall(r"\]\(([^)#\s]+\.ipynb)[^)]*\)", source(cell)):
            written = target in {f"{name}.ipynb" for name, other in NOTEBOOKS.items() if other.written}
            if not written and not (folder and (folder / target).is_file()):
                yield f"cell {cell['id']} links to {target}, which is not there"


# --- rows of the course map ------------------------------------------------------------------------------------------


def row_table(path: Path = ROWS) -> list[dict[str, str]]:
    """The lines of rows.csv: id, notebook, status."""
    with path.open(encoding="utf-8", newline="") as file:
        return [*csv.DictReader(file)]


def rows(notebook: Content, book: Notebook) -> Iterator[str]:
    """Every row of the course map that belongs here is shown by a cell with the tag ``row:ID``."""
    shown = {tag.removeprefix("row:") for cell in cells(notebook) for tag in tags(cell) if tag.startswith("row:")}
    wanted = {*book.rows}
    yield from (f"no cell shows row {id}" for id in book.rows if id not in shown)
    yield from (f"row:{id} does not belong to {book.name}" for id in sorted(shown - wanted))


AUTHORED: tuple[Rule, ...] = (
    sizes, prose, service, ids, forbidden, header, parts, setup, order, exercises, links, rows,
)  # fmt: skip
