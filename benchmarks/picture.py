"""The READMEs' speed table as a picture: how many times as fast as the peer, with intervals.

    python benchmarks/picture.py [--out docs/speed.png]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=HERE.parent / "docs" / "speed.png")
    asked = parser.parse_args()
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from table import headlines

    figure, axis = pyplot.subplots(figsize=(9, 4.2), layout="constrained")
    rows = headlines()[::-1]
    for y, (_, _, r, _) in enumerate(rows):
        axis.plot(r["median"], y, "o", color="C0")
        if "low" in r:
            axis.plot([r["low"], r["high"]], [y, y], "-", color="C0", linewidth=2)
        axis.annotate(f"{r['median']:.2f}", (r["median"], y), xytext=(7, 0), textcoords="offset points", va="center")
    axis.axvline(1, color="0.5", linewidth=1, linestyle="--")
    axis.set_xscale("log")
    axis.set_xticks([1, 2, 5, 10, 20], ["1: as fast as the peer", "2", "5", "10", "20"])
    axis.set_xticks([], minor=True)
    axis.set_yticks(range(len(rows)), [f"{task}\nagainst {peer}".replace("`", "") for task, peer, _, _ in rows], size=7)
    axis.set_xlim(0.7, 40)
    axis.set_xlabel("ours is so many times as fast (CPU-seconds on one thread; 95 % interval)")
    figure.savefig(asked.out, dpi=130)
    return 0


if __name__ == "__main__":
    sys.exit(main())
