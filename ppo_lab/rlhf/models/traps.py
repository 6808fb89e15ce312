"""Heads that real code has got wrong. Nothing here acts unless `ppo_lab.faults` plants it; see notebook 08."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ppo_lab import faults, seeding


def value_states(states: Tensor, valid: Tensor) -> Tensor:
    r"""What the value head reads, ``(B, T, D)``: the states as they are, or under two faults one vector an answer.

    ``value_pooled_mean``: the mean of the answer's states. ``value_pooled_attention``: their mean weighted by
    :math:`\mathrm{softmax}(h_t^\top h_{last} / \sqrt{D})`, as a summary token attends to what it has read. Either has
    read the end of the answer before it judges the beginning.

    Args:
        states: ``(B, T, D)``, from which each token of an answer is predicted. valid: ``(B, T)`` bool.
    """
    if faults.active("value_pooled_mean"):
        weight = valid.to(states.dtype)
    elif faults.active("value_pooled_attention"):
        last = states[torch.arange(len(states)), (valid.sum(-1) - 1).clamp(min=0)]
        fit = torch.einsum("btd,bd->bt", states, last) / states.shape[-1] ** 0.5
        weight = fit.masked_fill(~valid, -torch.inf).softmax(-1).nan_to_num()  # an empty answer: 0
    else:
        return states
    weight = weight / weight.sum(-1, keepdim=True).clamp(min=torch.finfo(weight.dtype).tiny)
    return torch.einsum("bt,btd->bd", weight, states)[:, None].expand_as(states)


def learned_temperature() -> nn.Parameter | None:
    """log τ as one more parameter of the policy, under the fault ``temperature_learned``; else None."""
    return nn.Parameter(torch.zeros(())) if faults.active("temperature_learned") else None


def redraw_output(policy: nn.Module) -> None:
    """Under the fault ``policy_head_redrawn`` a new output layer, as libraries draw one where they find no weights."""
    if not faults.active("policy_head_redrawn"):
        return
    old = policy.get_output_embeddings()  # type: ignore[operator]
    new = nn.Linear(old.in_features, old.out_features, bias=False)
    with torch.no_grad():
        new.weight.copy_(0.02 * torch.randn(new.weight.shape, generator=seeding.generator("policy head redrawn")))
    policy.set_output_embeddings(new)  # type: ignore[operator]
