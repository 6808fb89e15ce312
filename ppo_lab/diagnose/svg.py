"""A panel as inline SVG whose colours are variables of the page, so that one picture serves light, dark and paper."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from html import escape

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ppo_lab.diagnose import style

VARIABLES = {
    style.BLUE: "--blue", style.VERMILLION: "--vermillion", style.GREEN: "--green", style.ORANGE: "--orange",
    style.PURPLE: "--purple", style.SKY: "--sky", style.INK: "--ink", style.NOTE: "--muted", style.GRID: "--grid",
    style.PAPER: "--paper",
}  # fmt: skip


def picture(draw: Callable[[Axes], None], *, name: str, alt: str) -> str:
    """What ``draw`` puts on axes as an ``<svg role="img">`` with ``alt`` as its text; the same bytes every time."""
    with style.styled(), matplotlib.rc_context({"svg.hashsalt": name, "font.size": 8, "legend.fontsize": 7.5}):
        figure = Figure(figsize=(3.2, 2.7))
        ax = figure.subplots()
        figure.subplots_adjust(left=0.175, right=0.875, top=0.865, bottom=0.135)  # the same frame in every panel
        draw(ax)
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    return inline(buffer.getvalue(), prefix=name, alt=alt)


def inline(svg: str, *, prefix: str, alt: str) -> str:
    """A stand-alone SVG file as part of a page: no header, own ids, colours by variable, an accessible name."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->|<style.*?</style>", "", svg, flags=re.S)
    used = set(re.findall(r'(?:url\(#|href="#)([^")]+)', svg))
    svg = re.sub(r' id="([^"]*)"', lambda found: found[0] if found[1] in used else "", svg)
    svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{prefix}-", svg)
    svg = svg.replace("xlink:href", "href")
    box = re.search(r'viewBox="[^"]+"', svg)
    assert box is not None
    head = f'<svg class="panel" role="img" aria-label="{escape(alt)}" {box[0]}>'
    svg = re.sub(r"<svg[^>]*>", lambda _: head, svg, count=1)
    for color, variable in VARIABLES.items():
        svg = svg.replace(color, f"var({variable})")
    return re.sub(r"\s*\n\s*", "\n", svg).strip()
