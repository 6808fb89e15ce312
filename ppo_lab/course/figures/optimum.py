"""A trained policy beside the best one there is, answer by answer, over a language that can be listed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ppo_lab.exact.optimum import optimal_logp

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ppo_lab.exact.language import Language
    from ppo_lab.rlhf.known_optimum import Progress

BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#999999"


def optimum_figure(language: Language, progress: Sequence[Progress], *, beta: float) -> Figure:
    """Left: J after every step under its ceiling J*. Right: each answer's probability before, after, at the optimum."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.2, 3.4), dpi=100)
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, width_ratios=(5, 4))
    figure.subplots_adjust(0.08, 0.16, 0.99, 0.93, 0.24)
    first = progress[0].exact
    steps = [0, *(p.step for p in progress)]
    left.plot(steps, [first.reference, *(p.exact.objective for p in progress)], color=ORANGE, lw=2, label="PPO")
    left.axhline(first.best, color=BLUE, ls="--", lw=1.5, label="J*, the most there is")
    left.axhline(first.reference, color=GREY, ls=":", lw=1.5, label="J of the reference")
    left.set(xlabel="step", ylabel="J = E[R] − β·KL")
    left.legend(loc="center right", frameon=False, fontsize=9)
    best = optimal_logp(language.ref_logp, language.reward, beta=beta).exp().tolist()
    right.loglog(best, language.ref_logp.exp().tolist(), "o", color=GREY, ms=3, mfc="none", label="reference")
    right.loglog(best, progress[-1].logp.exp().tolist(), "o", color=ORANGE, ms=3, label="after PPO")
    right.plot([min(best), max(best)], [min(best), max(best)], color=BLUE, ls="--", lw=1.5, label="π = π*")
    right.set(xlabel="π*(y)", ylabel="π(y)")
    right.legend(loc="lower right", frameon=False, fontsize=9)
    return figure
