"""The four lights of a control run: identities that a healthy one keeps at every step. A red one is a bug."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from ppo_lab.control.collect import Collected
from ppo_lab.control.steps import credit
from ppo_lab.course.lights import Light
from ppo_lab.records import ControlMetrics

if TYPE_CHECKING:
    from ppo_lab.control.train import Run


def control_lights(run: Run, step: ControlMetrics) -> tuple[Light, ...]:
    """The four lights of the step that was just taken, from its rollout and its update."""
    assert run.last is not None, "take a step of the run first"
    return (
        Light("ratio = 1 in the first minibatch", step.update.first_ratio_error,
              "old and new log-probs are taken in two ways"),
        Light("only true ends have no future", ends_error(run, run.last),
              "a time limit, or the rollout's own end, is taken for a termination"),
        Light("log π belongs to the stored action", stored_error(run, run.last),
              "the action was changed after its log-prob was taken, as by clipping"),
        Light("0 ≤ H ≤ ln A" if not run.actions.gaussian else "H = Σ ln σ + ½ ln 2πe", entropy_error(run, run.last),
              "log-probs are not normalised"),
    )  # fmt: skip


def ends_error(run: Run, last: Collected) -> float:
    """Terminations too many or too few, against the episodes that the environment ended; plus what leaks past an end.

    What stands behind a termination must not matter: advantages may not change when it is nonsense.
    """
    rollout = last.rollout
    dead = int((rollout.terminated & rollout.mask).sum())
    wrong = abs(dead - int((~last.episodes.truncated).sum()))
    spoiled = replace(rollout, next_value=rollout.next_value.masked_fill(rollout.terminated, torch.nan))
    cfg = run.config
    plain, other = (credit(r, cfg.ppo, cfg.advantage)[0][rollout.mask] for r in (rollout, spoiled))
    leak = float((plain - other).abs().max())
    return wrong + (leak if math.isfinite(leak) else math.inf)


def stored_error(run: Run, last: Collected) -> float:
    """Largest gap between the stored log π and that of the stored action under the stored head, nats."""
    rollout = last.rollout
    return float((run.actions.logp(last.head, rollout.action) - rollout.logp)[rollout.mask].abs().max())


def entropy_error(run: Run, last: Collected) -> float:
    """How far H lies outside of [0, ln A]; of a Gaussian, from its closed form, nats a number."""
    mask = last.rollout.mask
    entropy = run.actions.entropy(last.head)[mask]
    if run.actions.gaussian:
        log_std = last.head.chunk(2, -1)[1][mask]
        return float((entropy - (log_std + 0.5 * math.log(2 * math.pi * math.e)).sum(-1)).abs().max())
    return float(torch.maximum(-entropy, entropy - math.log(run.actions.outputs)).clamp(min=0).max())
