"""A page of the report, read by a parser that refuses what is not well formed."""

from html.parser import HTMLParser
from pathlib import Path

from ppo_lab.diagnose import report
from ppo_lab.diagnose.folder import read_run

VOID = {"meta", "link", "br", "img", "input", "hr"}


class Page(HTMLParser):
    """Tags, attributes and text of a page; refuses tags that do not close in order."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] != "style" and data.strip():
            self.text.append(data.strip())

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).split())


def html_of(folder: Path) -> Page:
    return Page(report.page(read_run(folder)))
