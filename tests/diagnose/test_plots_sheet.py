"""The sheet of panels: its fonts, its order, and that it leaves nothing behind."""

import gc
import subprocess
import sys
import warnings
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from diagnose.drawing import draw, texts
from diagnose.synthetic import evaluation, rows, samples
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen
from matplotlib import font_manager
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ppo_lab.diagnose import plots, style
from ppo_lab.diagnose.dashboard import figure
from ppo_lab.diagnose.plots import PANELS
from ppo_lab.metrics import GROUPS


@pytest.fixture(autouse=True)
def _strict():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


# --- fonts, pyplot, memory ------------------------------------------------------------------------------------------


def paint(sheet):
    with style.styled():
        sheet.canvas.draw()
    return sheet


def cjk_samples():
    data = samples()
    data[0] |= {"prompt": "这部电影", "response": "很好看 $x_1$ \t ½ − 映画はとても良い"}
    return data


def test_letters_no_font_has_become_boxes_with_one_note(monkeypatch):
    monkeypatch.setattr(style, "FALLBACKS", ())
    sheet = paint(figure(rows(2), title="実験 −1 $5 and $6", samples=cjk_samples()))
    said = texts(sheet)
    assert "□□ −1 $5 and $6" in said and "$x_1$ ½ − □□" in said
    assert said.count("no font here has this character") == 1
    assert "no font here" not in texts(figure(rows(2), title="plain −1"))


def test_letters_a_fallback_font_has_are_drawn(monkeypatch, tmp_path):
    name = "Ppo Lab Test Han"
    font_manager.fontManager.addfont(font_with(name, "実験这部电影很好看映画はとても良い", tmp_path / "han.ttf"))
    monkeypatch.setattr(style, "FALLBACKS", (name,))
    try:
        sheet = paint(figure(rows(2), title="実験 −1", samples=cjk_samples()))
        assert "実験 −1" in texts(sheet) and style.MISSING not in texts(sheet)
    finally:
        font_manager.fontManager.ttflist[:] = [e for e in font_manager.fontManager.ttflist if e.name != name]


def font_with(name: str, letters: str, path: Path) -> Path:
    """A font that has just these letters, each a square."""
    pen = TTGlyphPen(None)
    for i, point in enumerate([(0, 0), (0, 800), (800, 800), (800, 0)]):
        (pen.lineTo if i else pen.moveTo)(point)
    pen.closePath()
    names = [".notdef", *(f"uni{ord(c):04X}" for c in dict.fromkeys(letters))]
    builder = FontBuilder(1000, isTTF=True)
    builder.setupGlyphOrder(names)
    builder.setupCharacterMap({ord(c): f"uni{ord(c):04X}" for c in letters})
    builder.setupGlyf({glyph: pen.glyph() for glyph in names})
    builder.setupHorizontalMetrics({glyph: (1000, 0) for glyph in names})
    builder.setupHorizontalHeader(ascent=900, descent=-100)
    builder.setupNameTable({"familyName": name, "styleName": "Regular"})
    builder.setupOS2(sTypoAscender=900, usWinAscent=900, usWinDescent=100)
    builder.setupPost()
    builder.save(path)
    return path


def test_the_minus_is_a_minus_whatever_the_user_s_settings():
    assert ord("−") in style._characters(("DejaVu Sans",))
    with matplotlib.rc_context({"axes.unicode_minus": False}):
        labels = [label.get_text() for label in draw("loss", rows(5)).axes[0].get_yticklabels()]
    assert any(label.startswith("−0.0") for label in labels) and not any("-" in label for label in labels)


def test_a_sheet_looks_the_same_whatever_the_settings_when_it_is_shown():
    """A notebook draws the figure later, outside of our settings."""
    hostile = {"axes.unicode_minus": False, "font.family": ["serif"], "font.size": 30, "grid.color": "red",
               "xtick.labelsize": 20, "ytick.color": "blue", "xtick.major.size": 20, "axes.linewidth": 5}  # fmt: skip
    pictures = []
    for settings in ({}, hostile):
        sheet = figure(rows(5), title="demo", samples=samples())
        with matplotlib.rc_context(settings):
            canvas = FigureCanvasAgg(sheet)
            canvas.draw()
            pictures.append(bytes(canvas.buffer_rgba()))
    assert pictures[0] == pictures[1]


def test_styles_do_not_leak():
    before = dict(matplotlib.rcParams)
    draw("reward", rows(3))
    assert dict(matplotlib.rcParams) == before


def figures_alive():
    gc.collect()
    return sum(type(thing) is Figure for thing in gc.get_objects())


def test_a_hundred_refreshes_leave_no_figure_behind():
    data, names, before = rows(6), list(PANELS), figures_alive()
    for i in range(100):
        draw(names[i % len(names)], data)
    assert figures_alive() <= before + 1


def test_pyplot_is_never_imported():
    code = """
import sys, warnings
warnings.simplefilter("error")
from diagnose.synthetic import rows, samples
from ppo_lab.diagnose.dashboard import figure
for _ in range(3):
    figure(rows(2), samples=samples())
assert "matplotlib.pyplot" not in sys.modules
import matplotlib.pyplot as plt
assert plt.get_fignums() == []
"""
    root = Path(__file__).parents[2]
    path = {"PYTHONPATH": f"{root}:{root / 'tests'}", "PATH": "", "MPLBACKEND": "agg"}
    subprocess.run([sys.executable, "-c", code], check=True, env=path, cwd=root, timeout=120)


def test_the_sheet_has_all_panels_in_order_and_a_strip_of_samples():
    start = {"eval_score": 0.0}
    sheet = figure(rows(4), title="demo", baseline=start, samples=samples())
    titles = [axes.get_title(loc="left") for axes in sheet.axes if axes.get_title(loc="left")]
    assert titles == list(GROUPS.values())
    said = texts(sheet)
    assert "demo" in said and "(−0.9) a dull cast and the plot is thin ." in said and "(2.2) a perfect cast" in said
    assert tuple(sheet.get_size_inches()) == (12.5, 10.3)
    assert tuple(figure([]).get_size_inches()) == (12.5, 9.0)


def test_a_long_answer_is_cut_where_the_next_column_begins():
    data = samples()
    data[0]["response"] = "word " * 100
    with style.styled():
        sheet = style.blank(12.5, 1.5)
        ax = sheet.subplots()
        plots.samples_strip(ax, data)
        sheet.canvas.draw()
    heads = {text.get_text(): text.get_window_extent().x0 for text in ax.texts}
    left, right = heads["Step 0"], heads["Step 40"]
    cut = next(t for t in ax.texts if t.get_text().endswith("…")).get_window_extent()
    assert cut.x0 == pytest.approx(left, abs=1) and cut.x1 < right


def test_evaluation_rows_are_the_synthetic_ones():
    """The fixture itself: the last row carries the evaluation the plots were checked against."""
    assert rows(40)[-1]["eval_score"] == evaluation(1 - np.exp(-3.2)).eval_score
