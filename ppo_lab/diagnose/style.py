"""How pictures look: one palette, one line style a curve, quiet axes, and fonts for text in any script.

Colours are those of Okabe and Ito (2008), told apart by colour-blind readers; dashes tell them apart on grey paper.
Figures are `matplotlib.figure.Figure` objects, never pyplot's: nothing stays open, nothing warns.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import matplotlib
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

BLUE, VERMILLION, GREEN, ORANGE, PURPLE, SKY = "#0072b2", "#d55e00", "#009e73", "#e69f00", "#cc79a7", "#56b4e9"
INK, NOTE, GRID, PAPER = "#1f2328", "#59636e", "#dfe3e8", "#ffffff"
SOLID, DASHED, DASHDOT, DOTTED = "-", (0, (5, 1.6)), (0, (5, 1.4, 1, 1.4)), (0, (1.2, 1.2))
MISSING = "□"  # drawn where no font on this machine has the character

FAMILY = "DejaVu Sans"  # comes with matplotlib and has every sign we use, the minus among them
FALLBACKS = (
    "Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans SC", "Noto Sans JP", "Source Han Sans SC",
    "WenQuanYi Micro Hei", "WenQuanYi Zen Hei", "Droid Sans Fallback", "IPAexGothic", "IPAGothic", "TakaoGothic",
    "PingFang SC", "Hiragino Sans", "Heiti TC",
    "Apple SD Gothic Neo", "Microsoft YaHei", "SimHei", "Yu Gothic", "Meiryo", "MS Gothic", "Malgun Gothic",
    "Arial Unicode MS", "Noto Emoji", "Unifont",
)  # fmt: skip


def families() -> list[str]:
    """The font list of every text: ours first, then what this machine has for other scripts."""
    present = {entry.name for entry in font_manager.fontManager.ttflist}
    return [FAMILY, *(name for name in FALLBACKS if name in present)]


def drawable(text: str) -> str:
    """The text with every character no font here can draw as ``□``, so that nothing warns.

    >>> drawable("β → −1")
    'β → −1'
    """
    return "".join(c if c.isspace() or ord(c) in _characters(tuple(families())) else MISSING for c in text)


@cache
def _characters(names: tuple[str, ...]) -> frozenset[int]:
    fonts = (font_manager.get_font(font_manager.findfont(name)) for name in names)
    return frozenset().union(*(font.get_charmap() for font in fonts))


def rc() -> dict[str, object]:
    """Settings of every figure; applied around drawing and saving, never globally."""
    return {
        "font.family": families(),
        "font.size": 7.5,
        "axes.titlesize": 8.5,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "axes.labelsize": 7,
        "axes.labelcolor": NOTE,
        "axes.edgecolor": NOTE,
        "axes.linewidth": 0.6,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.unicode_minus": True,
        "axes.formatter.use_mathtext": False,
        "axes.formatter.limits": (-3, 4),
        "axes.titlecolor": INK,
        "figure.facecolor": PAPER,
        "axes.facecolor": "none",
        "grid.color": GRID,
        "grid.linewidth": 0.6,
        "text.color": INK,
        "text.usetex": False,
        "xtick.color": NOTE,
        "ytick.color": NOTE,
        "xtick.labelsize": 7,
        "ytick.labelsize": 7,
        "xtick.major.size": 2.5,
        "ytick.major.size": 0,
        "legend.fontsize": 7,
        "legend.frameon": False,
        "lines.linewidth": 1.5,
        "lines.dash_capstyle": "butt",
        "savefig.facecolor": "auto",
        "savefig.bbox": None,
        "svg.fonttype": "path",
        "path.simplify": True,
    }


@contextmanager
def styled() -> Iterator[None]:
    """Draw and save inside of this: reproducible looks whatever the caller's matplotlibrc says."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # of this context only
        matplotlib.rcParams.update(rc())
        yield


def dress(ax: Axes) -> None:
    """Give ticks their looks now: matplotlib makes them when it draws, by the settings of that moment."""
    ax.tick_params(labelsize=7, colors=NOTE, labelfontfamily=families(), width=0.6, grid_color=GRID,
                   grid_linewidth=0.6, grid_linestyle="-", grid_alpha=1.0)  # fmt: skip
    ax.tick_params(axis="x", length=2.5, pad=3.5)
    ax.tick_params(axis="y", length=0, pad=3.5)


def blank(width: float, height: float) -> Figure:
    """An empty figure of so many inches, laid out when drawn, unknown to pyplot."""
    engine = ConstrainedLayoutEngine(w_pad=0.05, h_pad=0.06, wspace=0.015, hspace=0.02)
    return Figure(figsize=(width, height), layout=engine)
