"""Notebook 01: REINFORCE judged by exact numbers: bandits, many seeds at once, and one run of the real trainer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ppo_lab import seeding
from ppo_lab.config.ppo import PPOConfig
from ppo_lab.core.groups import centered_advantages, rloo_advantages
from ppo_lab.core.masking import masked_sum, select
from ppo_lab.core.objectives import reinforce
from ppo_lab.core.returns import discounted_returns
from ppo_lab.exact.agent import Progress, TabularActorCritic, sample, train
from ppo_lab.exact.mdp import MDP
from ppo_lab.learners.plain import PlainLearner

PLAIN = PPOConfig(objective="reinforce", epochs=1, minibatches=1, lam=1.0, value_coef=0.0, value_clip=None,
                  standardize="none")  # fmt: skip

WEIGHTS = {"none": lambda score: score, "batch mean": centered_advantages, "leave-one-out": rloo_advantages}


def ascend(
    reward: Tensor,
    *,
    seeds: Sequence[int],
    rate: float,
    batch: int,
    steps: int,
    offset: float = 0.0,
    baseline: str = "none",
    reuse: int = 1,
    logits: Tensor | None = None,
) -> Tensor:
    """Learning curves of REINFORCE in the exact J, (seeds, steps + 1); all settings of a seed see the same noise.

    Args:
        reward: what each arm pays, (K,).
        seeds: one run each.
        rate: α of plain gradient ascent.
        batch: samples a gradient.
        steps: gradient steps.
        offset: added to every reward that the learner sees; J is without it.
        baseline: "none", "batch mean" or "leave-one-out".
        reuse: gradient steps on one batch before the next is drawn.
        logits: (K,) where all start; None: undecided.
    """
    noise = torch.stack([
        torch.rand(steps, batch, generator=seeding.generator("reinforce", seed), dtype=torch.float64) for seed in seeds
    ])  # fmt: skip
    start = torch.zeros(len(reward), dtype=torch.float64) if logits is None else logits
    table = start.repeat(len(seeds), 1).requires_grad_()
    curve, action = [table.detach().softmax(-1) @ reward], torch.empty(0)
    for t in range(steps):
        if t % reuse == 0:
            cumulative = table.detach().softmax(-1).cumsum(-1)
            action = (noise[:, t, :, None] >= cumulative[:, None] / cumulative[:, None, -1:]).sum(-1)
        logp = table.log_softmax(-1).gather(-1, action)
        weight = WEIGHTS[baseline](reward[action] + offset)
        objective = reinforce(logp, weight).mean(-1).sum()  # each seed has its own row: no mixing
        (gradient,) = torch.autograd.grad(objective, table)
        table = (table.detach() + rate * gradient).requires_grad_()
        curve.append(table.detach().softmax(-1) @ reward)
    return torch.stack(curve, dim=-1)


def sweep(reward: Tensor, rates: Sequence[float], **options: Any) -> Tensor:
    """The final J of `ascend` at each rate, (seeds, rates)."""
    return torch.stack([ascend(reward, rate=rate, **options)[:, -1] for rate in rates], dim=-1)


def episode_gradients(
    mdp: MDP, logits: Tensor, *, episodes: int, seed: int, baselines: Mapping[str, Tensor] | None = None
) -> dict[str, Tensor]:
    r"""Policy gradients of single episodes, (episodes, S, A), with weights that have the same mean.

    ``whole`` is the sequence form, :math:`R \nabla \log p(\text{episode})`; ``to go`` weights each step by what
    followed it; ``baselines`` adds ``to go`` less a number a state, (S,), under the name of each. The discount is 1,
    and every episode must terminate within 200 steps.
    """
    probs = logits.softmax(-1)
    seen = sample(mdp, probs, episodes=episodes, steps=200, seed=seed, after_end="mask")
    if bool(seen.mask[:, -1].any()):
        raise ValueError("every episode must terminate within 200 steps, got one that goes on; use a shorter world")
    score = torch.nn.functional.one_hot(seen.action, mdp.actions) - probs[seen.obs]  # d log pi / d its row of logits
    flags = {"terminated": seen.terminated, "ended": seen.ended, "mask": seen.mask}
    to_go = discounted_returns(seen.reward, torch.zeros_like(seen.reward), **flags, gamma=1.0)
    whole = masked_sum(seen.reward, seen.mask, dim=-1)[:, None].expand_as(to_go)
    place = torch.nn.functional.one_hot(seen.obs, mdp.states).double()
    weights = {"whole": whole, "to go": to_go}
    weights |= {name: to_go - table[seen.obs] for name, table in (baselines or {}).items()}
    return {
        name: torch.einsum("bts,bta->bsa", place, score * select(weight, seen.mask)[..., None])
        for name, weight in weights.items()
    }


def doors_run(mdp: MDP, seed: int, *, iterations: int = 100) -> list[Progress]:
    """REINFORCE by the real trainer: no critic, no discount, one step a rollout of 16 rows of 32 steps."""
    learner = PlainLearner(TabularActorCritic(mdp), actor_rate=0.05, critic_rate=0.0, device="cpu")
    return [*train(learner, mdp, PLAIN, episodes=16, steps=32, iterations=iterations, seed=seed)]
