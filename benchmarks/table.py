"""The tables of benchmarks/README.md and the READMEs, made from the figures in results/, so that they cannot drift.

    python benchmarks/table.py [--check]

What is not there is left out. With --check nothing is written; exit status 1 where the page is not what would be.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
BEGIN, END = "<!-- results: python benchmarks/table.py -->", "<!-- end of results -->"


def ratio(r: dict[str, float]) -> str:
    """Median and 95 % interval."""
    return f"{r['median']:.2f} [{r['low']:.2f}, {r['high']:.2f}]"


def rows_of(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows])


def rlhf_step(found: dict[str, Any]) -> str:
    """One iteration."""
    ours = [name for name in ("ours", "compiled", "savings") if name in found["table"]]
    rows = [[name, f"{row['seconds']:.2f}", f"{row['peak_mb']:.0f}", ", ".join(map(str, row["optimizer_steps"])),
             *(ratio(found["ratios"][f"{name} / {our}"]) if name not in ours else "" for our in ours)]
            for name, row in found["table"].items()]  # fmt: skip
    head = ["one iteration", "seconds", "peak MB", "optimizer steps", *(f"its time / {our}" for our in ours)]
    return rows_of(head, rows)


def logprob(found: dict[str, Any]) -> str:
    """Output layer trained and frozen."""
    rows = [[case, name, f"{statistics.median(each['seconds'][name]):.2f}", f"{each['memory_mb'][name]:.0f}",
             ratio(each["ours / peer"][name]) if name != "ours" else ""]
            for case, each in found["cases"].items() for name in each["seconds"]]  # fmt: skip
    return rows_of(["output layer", "log-probs at V = 49,152", "seconds", "MB", "ours / it"], rows)


def gae(found: dict[str, Any]) -> str:
    """Three shapes."""
    rows = [[shape, name, f"{statistics.median(each['milliseconds'][name]):.2f}",
             ratio(each["ours / peer"][name]) if name != "ours" else ""]
            for shape, each in found["shapes"].items() for name in each["milliseconds"]]  # fmt: skip
    return rows_of(["rows x steps", "GAE", "milliseconds", "ours / it"], rows)


def generate(found: dict[str, Any]) -> str:
    """Three batches."""
    rows = [[batch, name, f"{rate:.0f}",
             ratio(each["ours times as fast as"][name]) if name != "ours" else ""]
            for batch, each in found["batches"].items()
            for name, rate in each["tokens a CPU-second"].items()]  # fmt: skip
    return rows_of(["batch", "sampling", "tokens a CPU-second", "ours / it"], rows)


def zero3(found: dict[str, Any]) -> str:
    """Bytes, messages and seconds of a step by who owns what; KiB."""
    parts = ("weights", "moments", "stepped copy", "gradients", "all live")
    rows = []
    for name, way in found["ways"].items():
        kib = [*(way["held"][part] for part in parts), way["replica"],
               *(way["sent"].get(phase, 0) for phase in ("update", "rollout and scores"))]  # fmt: skip
        rows.append([name, str(way["processes"]), *(f"{x / 1024:,.0f}" for x in kib), f"{way['cpu a rank']:.2f}",
                     f"{way['cpu']:.2f}", f"{way['wall']:.2f}", str(way["optimizer_steps"][0])])  # fmt: skip
    head = ["KiB a rank", "ranks", *parts, "replica", "sent: update", "sent: rollout, scores", "CPU-s a rank",
            "CPU-s in all", "wall s", "optimizer steps"]  # fmt: skip
    return rows_of(head, rows)


def course(found: dict[str, Any]) -> str:
    """Seconds a notebook, one after the other, and the check of all in two processes."""
    rows = [[name, f"{row['cpu']:.1f}", f"{row['wall']:.1f}", f"`{row['largest']}` {row['largest_wall']:.1f}"]
            for name, row in found["notebooks"].items()]  # fmt: skip
    rows.append(["all", f"{found['total']['cpu']:.0f}", f"{found['total']['wall']:.0f}", ""])
    check = found["nbval"]
    if check is not None:
        rows.append(["nbval of all, two processes" + ("" if check["passed"] else ", FAILED"), "",
                     f"{check['wall']:.0f}", ""])  # fmt: skip
    return rows_of(["notebook", "CPU-s", "wall s", "largest cell, wall s"], rows)


TABLES: dict[str, Callable[[dict[str, Any]], str]] = {
    "rlhf_step": rlhf_step, "rlhf_step_two": rlhf_step, "generate": generate, "logprob": logprob, "gae": gae,
    "zero3": zero3, "course": course,
}  # fmt: skip


def tables() -> str:
    """All that there are figures for."""
    parts = []
    for name, table in TABLES.items():
        path = HERE / "results" / f"{name}.json"
        if path.exists():
            found = json.loads(path.read_text(encoding="utf-8"))
            at = found["machine"]
            threads = f"{at['threads']} thread" if at["threads"] == 1 else f"{at['threads']} pinned threads, wall clock"
            parts.append(f"`{found['command']}` ({threads}, load {at['load']}):\n\n{table(found)}\n")
    return "\n".join(parts)


def headlines() -> list[tuple[str, str, dict[str, float], str]]:
    """Task, peer, how many times as fast ours is (``median`` and, where measured, ``low`` and ``high``), script."""

    def kept(name: str) -> dict[str, Any]:
        return dict(json.loads((HERE / "results" / f"{name}.json").read_text(encoding="utf-8")))

    def turned(r: dict[str, float]) -> dict[str, float]:
        return {"median": 1 / r["median"], "low": 1 / r["high"], "high": 1 / r["low"]}

    step, logs, gaes = kept("rlhf_step")["ratios"], kept("logprob")["cases"]["trained"], kept("gae")["shapes"]
    rows = [(f"RLHF, one iteration, {name}", "TRL 1.12.0", step[f"trl / {key}"], "rlhf_step")
            for key, name in (("ours", "float32"), ("compiled", "float32, `compile: true`"),
                              ("savings", "bfloat16, `compile: true`"))]  # fmt: skip
    for batch, found in kept("generate")["batches"].items():
        fast = found["ours times as fast as"]["transformers"]
        rows.append((f"sampling, batch {batch}", "transformers `generate`", fast, "generate"))
    name = logs["fastest_peer"]
    share = logs["memory_mb"]["ours"] / logs["memory_mb"][name]
    rows.append((f"log-probs, vocabulary of 49,152, in {share:.2f} of the memory", f"`{name}`",
                 turned(logs["ours / peer"][name]), "logprob"))  # fmt: skip
    for shape, found in gaes.items():
        name = found["fastest_torch_peer"]
        rows.append((f"GAE, {shape}", name, turned(found["ours / peer"][name]), "gae"))
    rows.append(("CartPole-v1 until solved", "the faster of Stable-Baselines3 and a plain loop",
                 {"median": 1 / kept("cartpole")["ratio"]}, "cartpole"))  # fmt: skip
    return rows


def headline_table(head: list[str]) -> str:
    """The READMEs' table."""
    return rows_of(head, [[task, peer, ratio(r) if "low" in r else f"{r['median']:.1f}", f"`benchmarks/{script}.py`"]
                          for task, peer, r, script in headlines()])  # fmt: skip


HEADS = {"README.md": ["task", "peer", "ours is so many times as fast", "measured by"],
         "README.zh.md": ["任务", "对照", "我们快多少倍", "测量脚本"]}  # fmt: skip


def pages() -> dict[Path, str]:
    """Every page that holds figures, as it should be."""
    made = {HERE.parent / name: headline_table(head) + "\n" for name, head in HEADS.items()}
    made[HERE / "README.md"] = tables()
    found = {}
    for page, inside in made.items():
        before, rest = page.read_text(encoding="utf-8").split(BEGIN)
        found[page] = f"{before}{BEGIN}\n\n{inside}\n{END}{rest.split(END)[1]}"
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    asked = parser.parse_args()
    wanted = pages()
    if asked.check:
        return int(any(page.read_text(encoding="utf-8") != text for page, text in wanted.items()))
    for page, text in wanted.items():
        page.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
