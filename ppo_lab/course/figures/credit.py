"""One answer, token by token: what each token earned, what the critic expected, and the credit that flowed back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ppo_lab import seeding
from ppo_lab.config.ppo import PPOConfig
from ppo_lab.core.masking import masked_var, select
from ppo_lab.records import TextRollout
from ppo_lab.rlhf.steps import advantages

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#999999"
MOST = 16  # tokens that fit


def credit_figure(words: Sequence[str], reward: Tensor, value: Tensor, advantage: Tensor) -> Figure:
    """Bars: token reward and advantage, ``(T,)`` each, line: value before the token. The first ``len(words)`` steps.

    Raises:
        ValueError: more words than fit, or than there are steps.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    count = len(words)
    if not 0 < count <= min(MOST, len(reward)):
        raise ValueError(f"credit_figure draws 1 to {min(MOST, len(reward))} tokens, got {count}; pick another answer")
    earned, expected, credit = (x[:count].double().tolist() for x in (reward, value, advantage))
    figure = Figure(figsize=(9.2, 3.0), dpi=100)
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0.06, 0.24, 0.93, 0.72))
    places = torch.arange(count).tolist()
    axes.bar([x - 0.2 for x in places], earned, 0.38, color=ORANGE, label="reward of the token")
    axes.bar([x + 0.2 for x in places], credit, 0.38, color=BLUE, label="advantage Â")
    axes.plot(places, expected, "o-", color=GREEN, lw=1.5, ms=4, label="V before the token")
    axes.axhline(0, color=GREY, lw=0.8)
    axes.set_xticks(places, words, rotation=30, ha="right", fontsize=9)
    axes.set_ylabel("units of the score", fontsize=9)
    axes.legend(loc="upper left", frameon=False, fontsize=9)
    return figure


def most_changed(rollout: TextRollout) -> int:
    """The answer of at most `MOST` tokens in which the critic's value moved the most from one token to the next."""
    mask, value = rollout.responses.mask, rollout.value
    both = mask[:, 1:] & mask[:, :-1]
    jump = torch.where(both, (value[:, 1:] - value[:, :-1]).abs(), 0.0).amax(-1)
    return int(torch.where(mask.sum(-1) <= MOST, jump, -1.0).argmax())


def spoiled_critic(rollout: TextRollout, reward: Tensor, *, lam: float, noise: float, draws: int = 20) -> float:
    """Variance that independent noise of standard deviation ``noise`` in V adds to the advantages, over valid tokens.

    An advantage is linear in V, so the noise goes through GAE alone: new at every token, mean over ``draws``.
    """
    mask, cfg = rollout.responses.mask, PPOConfig(lam=lam)
    clean = advantages(rollout, reward, cfg)[0]
    found = []
    for draw in range(draws):
        shake = torch.randn(mask.shape, generator=seeding.generator("spoiled critic", draw)) * noise
        spoiled = replace(rollout, value=select(rollout.value + shake, mask))
        found.append(float(masked_var(advantages(spoiled, reward, cfg)[0] - clean, mask)))
    return sum(found) / draws
