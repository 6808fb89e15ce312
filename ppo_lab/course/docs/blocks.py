"""Parts of pages that people write: paths through the course, and the syllabus."""

from __future__ import annotations

from ppo_lab.course.catalogue import NOTEBOOKS, PATHS
from ppo_lab.course.docs.markdown import book_of, linked, table
from ppo_lab.course.exercises import of_notebook

FOR_WHOM = {
    "full": ("everything, in order", "完整", "按顺序全部学完"),
    "language first": ("you came for RLHF", "语言优先", "只为 RLHF 而来"),
    "my run is broken": ("you have a log and no idea", "我的训练坏了", "手里有日志，不知从何查起"),
    "scale": ("you know RLHF, and one device is too small", "规模化", "懂 RLHF，但一块设备不够用"),
}
WEEKS = {  # topic -> notebooks; together the full path, in an order that a class can follow
    "the policy gradient": ("00", "01", "02", "03"),
    "PPO": ("04", "05", "06"),
    "from control to language": ("08", "09", "10"),
    "what goes wrong with rewards, and what is not PPO": ("11", "12", "15"),
    "details, logs and bugs": ("07", "13", "14"),
    "scale, reports, a run of your own": ("16", "17", "18"),
}


def paths() -> str:
    """The paths as the README shows them."""
    return _paths("path", "for whom", "notebooks", chinese=False)


def paths_in_chinese() -> str:
    """The same in Chinese."""
    return _paths("路线", "适合谁", "笔记本", chinese=True)


def _paths(*head: str, chinese: bool) -> str:
    rows = []
    for name, numbers in PATHS.items():
        english, title, whom = FOR_WHOM[name]
        books = [linked(book_of(n), n, above="") for n in numbers]
        rows.append((f"*{title if chinese else name}*", whom if chinese else english, " ".join(books)))
    written = sum(book.written for book in NOTEBOOKS.values())
    if chinese:
        state = f"{len(NOTEBOOKS)} 本笔记本中已写成 {written} 本（带链接的）；其余为计划中（planned）。"
        first = "" if written else "在第一本完成之前，`make lab` 会运行演示。"
    else:
        state = f"{written} of {len(NOTEBOOKS)} notebooks are written; a number without a link is planned. "
        first = "" if written else "Until the first is there, `make lab` runs the demo."
    return f"{table(head, rows)}\n\n{(state + first).strip()}"


def syllabus() -> str:
    """Six weeks: what is read, how long it takes, what is handed in."""
    rows = []
    for number, (topic, numbers) in enumerate(WEEKS.items(), start=1):
        books = [book_of(n) for n in numbers]
        tasks = [f"`{entry.name}`" for book in books for entry in of_notebook(book.name)]
        names = [f"{linked(b, b.number)} {b.title}{'' if b.written else ' (planned)'}" for b in books]
        minutes = str(sum(book.minutes for book in books))
        rows.append((str(number), topic, ", ".join(names), minutes, ", ".join(tasks) or "–"))
    return table(("week", "topic", "notebooks", "minutes", "exercises that the grader knows"), rows)
