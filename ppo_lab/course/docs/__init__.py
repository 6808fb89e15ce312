"""``make docs``: the pages of ``docs/`` that registries know by heart, and the marked parts of pages written by hand.

    python -m ppo_lab.course.docs

`PAGES` makes whole files. `BLOCKS` makes what stands between ``<!-- made: NAME -->`` and ``<!-- end -->`` in a file
that people write, so that a notebook which is only planned can never be announced as a link. A test compares what is
committed with what would be written.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from ppo_lab.course.docs import blocks, breaks, kl, metrics, pages, settings
from ppo_lab.paths import PACKAGE

PAGES: dict[str, Callable[[Path], str]] = {
    "docs/map.md": pages.course_map,
    "docs/glossary.md": pages.glossary,
    "docs/cheat_sheet.md": metrics.cheat_sheet,
    "docs/when_it_breaks.md": breaks.when_it_breaks,
    "docs/kl_estimators.md": kl.kl_estimators,
    "docs/configuration.md": settings.configuration,
    "docs/kill_matrix.md": pages.kill_matrices,
    "docs/claims.md": pages.claims,
}
BLOCKS: dict[str, Callable[[], str]] = {
    "paths": blocks.paths,
    "paths-zh": blocks.paths_in_chinese,
    "syllabus": blocks.syllabus,
}
BY_HAND = ("README.md", "README.zh.md", "docs/teaching.md")
MARKED = re.compile(r"(<!-- made: ([\w-]+) -->\n).*?(<!-- end -->)", re.S)
NOTE = "<!-- Made by `make docs`; change the registry it comes from, not this page. -->\n\n"


def made(root: Path) -> dict[str, str]:
    """Every file as it should be, by its path from ``root``."""
    whole = {name: NOTE + page(root).rstrip("\n") + "\n" for name, page in PAGES.items()}
    return whole | {name: filled((root / name).read_text(encoding="utf-8"), name) for name in BY_HAND}


def filled(text: str, name: str = "text") -> str:
    """The text with its marked parts made anew.

    Raises:
        ValueError: a marked part that nothing makes.

    >>> filled("a <!-- made: paths --> b")
    'a <!-- made: paths --> b'
    """

    def part(found: re.Match[str]) -> str:
        if found[2] not in BLOCKS:
            raise ValueError(f"{name}: made must be one of {', '.join(BLOCKS)}, got {found[2]!r}; fix the mark")
        return f"{found[1]}{BLOCKS[found[2]]().rstrip()}\n{found[3]}"

    return MARKED.sub(part, text)


def stale(root: Path = PACKAGE.parent) -> list[str]:
    """Files that differ from what would be written."""
    texts = made(root).items()
    return [name for name, text in texts if not (p := root / name).is_file() or p.read_text(encoding="utf-8") != text]


def write(root: Path = PACKAGE.parent) -> list[str]:
    """Write what is stale, and return it."""
    texts = made(root)
    changed = stale(root)
    for name in changed:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(texts[name], encoding="utf-8")
    return changed
