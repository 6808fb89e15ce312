"""What the panel of notebook 04 draws: the minimum written out, silence where autograd says so, and nothing else."""

from __future__ import annotations

import math

import pytest
import torch

from ppo_lab.course.figures.clipping import SAMPLES, WAYS, WIDEST, batch, clipping_panel, facts, slopes


def by_hand(r: float, a: float, clip: float, dual: float) -> tuple[float, float]:
    """(term, gradient with respect to log r), by cases."""
    term = min(r * a, min(max(r, 1 - clip), 1 + clip) * a)
    if a < 0:
        term = max(term, dual * a)
    return term, r * a if math.isclose(term, r * a, abs_tol=1e-12) else 0.0


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize(("clip", "dual"), [(0.2, math.inf), (0.5, 2.0), (0.05, 1.5)])
def test_curve_and_gradient_are_the_minimum_written_out(sign: float, clip: float, dual: float) -> None:
    ratio = torch.linspace(0.011, WIDEST, 83, dtype=torch.float64)
    terms, gradient = slopes(ratio.log(), torch.full_like(ratio, sign), clip=clip, dual_clip=dual)
    wanted = [by_hand(r, sign, clip, dual) for r in ratio.tolist()]
    assert terms.tolist() == pytest.approx([t for t, _ in wanted], abs=1e-9)
    assert gradient.tolist() == pytest.approx([g for _, g in wanted], abs=1e-9)
    assert any(g == 0 for _, g in wanted) and any(g != 0 for _, g in wanted)


def test_samples_are_drawn_where_the_objective_puts_them() -> None:
    panel = clipping_panel().set(clip=0.2, moved=0.6, way=WAYS[1], dual="2")
    found, drawn = panel.facts, []
    for axes in panel.figure.axes[:4:2]:
        for line in axes.get_lines():
            if line.get_label() in ("pushes", "pushes back", "silent"):
                drawn += [
                    (line.get_label(), x, y)
                    for x, y in zip(map(float, line.get_xdata()), map(float, line.get_ydata()), strict=True)
                ]
    assert len(drawn) == SAMPLES == len(found["ratio"])
    for label, x, y in drawn:
        if x > WIDEST - 0.05:
            continue
        term, gradient = by_hand(x, math.copysign(1.0, y), 0.2, 2.0)
        assert y == pytest.approx(term, abs=1e-9)
        assert (label == "silent") == (gradient == 0)
        assert (label == "pushes") == (gradient != 0 and 0.8 <= x <= 1.2)
    assert {label for label, _, _ in drawn} == {"pushes", "pushes back", "silent"}


@pytest.mark.parametrize(("dual", "clip"), [("none", 0.2), ("1.5", 0.6)])
def test_shares_add_up_and_are_the_bar(dual: str, clip: float) -> None:
    """With a dual clip inside the band a sample may be silent without being outside."""
    panel = clipping_panel().set(clip=clip, moved=1.0, way=WAYS[2], dual=dual)
    shares = [panel.facts[key] for key in ("push", "back", "off")]
    assert sum(shares) == pytest.approx(1, abs=1e-12)
    (bar,) = [axes for axes in panel.figure.axes if axes.patches and not axes.get_lines()]
    assert [patch.get_width() for patch in bar.patches] == pytest.approx(shares, abs=1e-12)
    assert panel.facts["outside"] >= panel.facts["back"]


def test_shade_is_where_the_gradient_is_off() -> None:
    panel = clipping_panel().set(clip=0.3, dual="1.5")
    left, right = panel.figure.axes[0], panel.figure.axes[2]
    spans = [[(p.get_x(), p.get_x() + p.get_width()) for p in axes.patches] for axes in (left, right)]
    assert spans == [[(1.3, WIDEST), (0, 0)], [(0, 0.7), (1.5, WIDEST)]]


def test_the_batch_is_exact() -> None:
    """Advantages average to 0 under the old policy; the three ways are equally long, two of them opposite."""
    world = batch()
    probs = world.logits.softmax(-1)
    assert (probs * world.advantage).sum(-1).abs().max() < 1e-12
    sizes = [(probs * way.square()).sum(-1).mean().item() for way in world.ways.values()]
    assert sizes == pytest.approx([1, 1, 1], abs=1e-12)
    assert torch.equal(world.ways[WAYS[0]], -world.ways[WAYS[2]])
    still = facts(0.2, 0.0, WAYS[0], "none")
    assert still["kl"] == 0 and still["off"] == 0 and (still["ratio"] == 1).all()
