"""Seconds a notebook: CPU and wall of each, executed in a fresh kernel as `make notebooks` does, and its largest cell.

    python benchmarks/course.py [NAME ...] [--nbval] [--keep course]

NAME is the beginning of a notebook's name; none: all. Imports and the kernel's start are in it, as for a reader.
``--nbval``: besides, the wall time of the strict check of all their outputs, two at a time (`make nbval`). Exit status
1 where it fails or takes more than eight minutes; a machine that does other work says nothing about that.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
from side_by_side import HERE, keep, machine  # noqa: E402

RUN = """import json, sys, nbformat
from pathlib import Path
from ppo_lab.course.build import execute
path = Path(sys.argv[1])
print(json.dumps(execute(nbformat.read(path, as_version=4), path.parent)))"""
NBVAL = ["--nbval", "--nbval-current-env", "--nbval-cell-timeout", "120", "--nbval-sanitize-with",
         "tests/nbval_sanitize.cfg", "-p", "no:cacheprovider", "-q", "-n", "2", "--dist", "loadscope"]  # fmt: skip
MOST = 480.0  # seconds


def seconds(book: Path) -> dict[str, Any]:
    """One notebook."""
    before, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run([sys.executable, "-c", RUN, str(book)], check=True, cwd=HERE.parent, text=True,
                          stdout=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": "1"})  # fmt: skip
    wall, after = time.perf_counter() - wall, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    cells = {cell["id"]: took(cell) for cell in json.loads(done.stdout)["cells"] if cell["cell_type"] == "code"}
    largest = max(cells, key=cells.__getitem__)
    return {"cpu": cpu, "wall": wall, "cells": len(cells), "largest": largest, "largest_wall": cells[largest]}


def took(cell: dict[str, Any]) -> float:
    """Seconds that the kernel was busy with a cell, from nbclient's own notes."""
    times = cell["metadata"]["execution"]
    begin, end = (datetime.fromisoformat(times[f"iopub.status.{word}"]) for word in ("busy", "idle"))
    return (end - begin).total_seconds()


def nbval(books: list[Path]) -> dict[str, Any]:
    """The strict check of these, two processes."""
    wall = time.perf_counter()
    command = [sys.executable, "-m", "pytest", *NBVAL, *map(str, books)]
    done = subprocess.run(command, cwd=HERE.parent, env={**os.environ, "OMP_NUM_THREADS": "1"})
    return {"wall": time.perf_counter() - wall, "passed": done.returncode == 0, "processes": 2}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--nbval", action="store_true", help="check the outputs, too")
    parser.add_argument("--keep", help="name of the file below results/")
    asked = parser.parse_args()
    books = [book for book in sorted((HERE.parent / "notebooks").glob("*.ipynb"))
             if not asked.names or book.stem.startswith(tuple(asked.names))]  # fmt: skip
    found = {}
    for book in books:
        row = found[book.stem] = seconds(book)
        print(f"{book.stem:<32} {row['cpu']:6.1f} CPU-s {row['wall']:6.1f} s; largest cell {row['largest']} "
              f"{row['largest_wall']:.1f} s", flush=True)  # fmt: skip
    total = {name: sum(row[name] for row in found.values()) for name in ("cpu", "wall")}
    print(f"{'all':<32} {total['cpu']:6.1f} CPU-s {total['wall']:6.1f} s")
    check = nbval(books) if asked.nbval else None
    if check is not None:
        print(f"nbval, two processes: {check['wall']:.0f} s of {MOST:.0f}, {'passed' if check['passed'] else 'FAILED'}")
    if asked.keep:
        keep(asked.keep, {"machine": machine(1), "total": total, "nbval": check, "notebooks": found})
    return 0 if check is None or (check["passed"] and check["wall"] <= MOST) else 1


if __name__ == "__main__":
    sys.exit(main())
