"""Seconds a notebook: CPU and wall of each, executed from nothing in a process of its own.

    python benchmarks/course.py [NAME ...] [--keep course]

NAME is the beginning of a notebook's name; none: all. Imports and the kernel's start are in it, as for a reader.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from side_by_side import HERE, keep, machine  # noqa: E402

RUN = """import sys, nbformat, nbclient
book = nbformat.read(sys.argv[1], as_version=4)
nbclient.NotebookClient(book, timeout=600, resources={"metadata": {"path": sys.argv[2]}}).execute()"""


def seconds(book: Path) -> dict[str, float]:
    """One notebook."""
    before, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, "-c", RUN, str(book), str(book.parent)], check=True,
                   env={**os.environ, "OMP_NUM_THREADS": "1"})  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"cpu": cpu, "wall": time.perf_counter() - wall}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--keep", help="name of the file below results/")
    asked = parser.parse_args()
    found = {}
    for book in sorted((HERE.parent / "notebooks").glob("*.ipynb")):
        if not asked.names or book.stem.startswith(tuple(asked.names)):
            found[book.stem] = seconds(book)
            print(f"{book.stem:<32} {found[book.stem]['cpu']:6.1f} CPU-s {found[book.stem]['wall']:6.1f} s", flush=True)
    print(f"{'all':<32} {sum(row['cpu'] for row in found.values()):6.1f} CPU-s")
    if asked.keep:
        keep(asked.keep, {"machine": machine(1), "notebooks": found})
    return 0


if __name__ == "__main__":
    sys.exit(main())
