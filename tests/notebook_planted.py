"""Faults to plant in the good notebook, each with words of the message that must come."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
from notebook_sample import cell

ROOT = Path(__file__).resolve().parent.parent
ERROR = nbformat.v4.new_output("error", ename="E", evalue="", traceback=[])
Change = Callable[[Any], object]


def retag(id: str, old: str, new: str) -> Change:
    """Replace a tag of a cell."""
    return lambda n: cell(n, id)["metadata"].update(tags=[new if t == old else t for t in cell(n, id).metadata.tags])


def edit(id: str, old: str, new: str) -> Change:
    """Replace text in a cell's source, which must be there."""

    def change(notebook: Any) -> None:
        place = cell(notebook, id)
        assert old in place["source"]
        place["source"] = place["source"].replace(old, new)

    return change


def stored(id: str, text: str) -> Change:
    """Put text into a cell's first output."""
    output = {"output_type": "stream", "name": "stdout", "text": text}
    return lambda n: cell(n, id)["outputs"].insert(0, nbformat.from_dict(output))


def store_html(html: str) -> Change:
    return lambda n: cell(n, "by-hand")["outputs"][0]["data"].update({"text/html": html})


def drop(id: str) -> Change:
    return lambda n: n["cells"].remove(cell(n, id))


def move(id: str, to: int) -> Change:
    return lambda n: n["cells"].insert(to, n["cells"].pop(n["cells"].index(cell(n, id))))


def many_cells(notebook: Any) -> None:
    extra = [nbformat.v4.new_markdown_cell("", id=f"more-{i}") for i in range(45)]
    notebook["cells"].extend(extra)


AUTHORED: dict[str, tuple[Change, str]] = {
    "too many cells": (many_cells, "64 cells, at most 45"),
    "wide line": (edit("by-hand", "ratio =", "ratio  = " + " " * 90), "has a line of 130 characters, at most 88"),
    "long cell": (edit("bug", "torch", "\n".join(["x = 1"] * 25) + "\ntorch"), "cell bug has 26 lines, at most 25"),
    "little prose": (edit("by-hand-text", "Three", "1"), ""),
    "much prose": (edit("by-hand-text", "Three", "word " * 300), "words of prose for a line of code, not 5 to 9"),
    "all service": (lambda n: [edit(i, cell(n, i).source, "course.metric('entropy')")(n) for i in ("by-hand", "bug")],
                    "5 of 13 code cells are service cells, at most 25%"),
    "same id": (lambda n: cell(n, "bug").update(id="bet"), "2 cells have the id 'bet'"),
    "random id": (lambda n: cell(n, "bug").update(id="3fa9c1d2"), "the cell id '3fa9c1d2' is no name"),
    "uuid": (lambda n: cell(n, "bug").update(id="bad0beef-12ab-4cde"), "the cell id 'bad0beef-12ab-4cde' is no name"),
    "opts out by comment": (edit("bug", "torch", "# NBVAL_IGNORE_OUTPUT\ntorch"), "opts out of checks: NBVAL_"),
    "opts out by tag": (retag("bug", "row:A15", "raises-exception"), "opts out of checks: raises-exception"),
    "interact": (edit("bug", "torch", "interact(f)\ntorch"), "cell bug uses interact"),
    "output widget": (edit("bug", "torch", "w = Output()\ntorch"), "cell bug uses Output()"),
    "clear_output": (edit("bug", "torch", "clear_output()\ntorch"), "cell bug uses clear_output"),
    "pyplot": (edit("bug", "torch", "plt.plot([1])\ntorch"), "cell bug uses pyplot"),
    "file by its place": (edit("bug", "torch", 'x = open("a.txt")\ntorch'), "cell bug uses a file by its place"),
    "install": (edit("bug", "torch", "!pip install x\ntorch"), "needs the network: !pip"),
    "download": (edit("bug", "torch", 'm = from_pretrained("org/model")\ntorch'), "needs the network: from_pretrained"),
    "url": (edit("bug", "torch", 'u = "https://a.org"\ntorch'), "needs the network: https://"),
    "no title": (edit("header", "# 04 · ", "# "), "the header lacks title"),
    "no goal": (edit("header", "You will be able to", "This is about how to"), "the header lacks what you will be"),
    "no minutes": (edit("header", "25 min", "A while"), "the header lacks minutes"),
    "no needs": (edit("header", "You need", "Before"), "the header lacks what you need"),
    "no map": (edit("header", "map", "plan"), "the header lacks map"),
    "no way on": (edit("header", "05 Gen", "Gen"), "the header lacks notebook 05"),
    "part missing": (retag("bug", "part:bug", "x"), "the part bug of a concept notebook is missing"),
    "part of another kind": (retag("bug", "row:A15", "part:reveal"), "part:reveal is no part of a concept notebook"),
    "bet without bet": (edit("bet", "course.bet", "print"), "the part bet lacks a call of course.bet"),
    "no quiz": (edit("recap", "course.quiz", "str"), "the part recap lacks a call of course.quiz"),
    "no claim": (edit("experiment", "course.claim", "print"), "the part experiment lacks a call of course.claim"),
    "no equation": (edit("recap-text", "eq. 7", "p. 3"), "the recap names no reading with an equation number"),
    "no metric": (edit("names", "course.metric", "print"), "no cell says what a log calls it"),
    "two starts": (edit("bug", "torch", 'course.start("04_clipping")\ntorch'), "2 cells call course.start, not one"),
    "other name": (edit("setup", "04_clipping", "05_gae"), 'course.start must name "04_clipping"'),
    "result before bet": (move("bet", 9), "shows a result before the bet"),
    "no ledger": (edit("recap", "course.ledger", "str"), "no course.ledger() after the last claim"),
    "ledger too early": (move("recap", 5), "no course.ledger() after the last claim"),
    "unknown exercise": (edit("your-turn", "clipped_surrogate", "clip_surrogate"), "checks clip_surrogate, which is"),
    "check is not last": (edit("your-turn", "= course.check(clipped_surrogate)",
                               "= course.check(clipped_surrogate)\nx = 1"), "cell your-turn must end with"),
    "solved": (edit("your-turn", "raise NotImplementedError", "return 0"), "is not the untouched stub"),
    "signature": (edit("your-turn", "log_ratio, advantage", "advantage, log_ratio"), "is not the untouched stub"),
    "exercise missing": (drop("your-turn-2"), "the exercise clip_fraction is there 0 times, not once"),
    "link to planned": (edit("header", "05 Gen", "[05 Gen](06_planned.ipynb)"), "links to 06_planned.ipynb, which is"),
    "row missing": (retag("bug", "row:A15", "x"), "no cell shows row A15"),
    "row of another": (retag("bug", "row:A15", "row:B1"), "row:B1 does not belong to 04_clipping"),
}  # fmt: skip

STORED: dict[str, tuple[Change, str]] = {
    "unexecuted cell": (lambda n: cell(n, "bug").update(execution_count=None), "not executed in order"),
    "out of order": (lambda n: cell(n, "bug").update(execution_count=3), "not executed in order"),
    "stripped": (lambda n: cell(n, "by-hand").update(outputs=[]), "cell by-hand must show something"),
    "stripped card": (lambda n: cell(n, "your-turn").update(outputs=[]), "cell your-turn must show something"),
    "stripped panel": (lambda n: cell(n, "panel").update(outputs=[]), "cell panel must show something"),
    "error": (lambda n: cell(n, "bug").update(outputs=[ERROR]), "cell bug stores an error: E"),
    "stderr": (lambda n: (stored("bug", "x")(n), cell(n, "bug")["outputs"][0].update(name="stderr")),
               "cell bug stores what went to stderr"),
    "live view": (lambda n: cell(n, "panel")["outputs"][0]["data"].update(
        {"application/vnd.jupyter.widget-view+json": {"model_id": "a"}}), "cell panel stores a live widget"),
    "no text": (lambda n: cell(n, "bug")["outputs"][0]["data"].pop("text/plain"), "stores an output without text"),
    "widget state": (lambda n: n["metadata"].update(widgets={}), "metadata.widgets is stored"),
    "own kernel": (lambda n: n["metadata"]["kernelspec"].update(name="mine"), "the kernel must be python3"),
    "old format": (lambda n: n.update(nbformat_minor=4), "older than 4.5"),
    "times": (lambda n: cell(n, "bug")["metadata"].update(execution={}), "metadata of a session: execution"),
    "address": (stored("bug", "<function f at 0x7fe94e20d6c0>\n"), "stores an address in memory"),
    "time": (stored("bug", "took 12.3 s\n"), "stores a time"),
    "date": (stored("bug", "2026-11-30 14:22\n"), "stores a date"),
    "bar": (stored("bug", "  3%|▏\n"), "stores a progress bar"),
    "colour": (stored("bug", "\x1b[31mred\n"), "stores terminal colours"),
    "warning": (stored("bug", "UserWarning: x\n"), "stores a warning"),
    "picture in HTML": (store_html("<img src='data:image/png;base64,AA'>"), "a picture inside of HTML"),
    "script": (store_html("<script src='x'></script>"), "HTML that needs a script"),
    "path in text": (edit("bug", "torch", f"p = {str(ROOT)!r}\ntorch"), "names /"),
    "path in output": (stored("bug", "/ho" + "me/ann/x\n"), "cell bug:1 names /ho" + "me/ann"),
    "no picture": (move("panel", 12), "no picture within the first five cells"),
    "panel without picture": (lambda n: cell(n, "panel")["outputs"][0]["data"].pop("image/png"),
                              "stores a panel without its picture"),
    "second line": (stored("setup", "[OK] torch\n"), "must print one line"),
    "trouble": (lambda n: cell(n, "setup")["outputs"][0].update(text="[FAIL] torch\n"), "must print one line"),
}  # fmt: skip
