"""Which parameters follow the actor's rate and which the critic's."""

from __future__ import annotations

from torch import nn


def actor_and_critic(module: nn.Module, *, critic: tuple[str, ...]) -> dict[str, list[tuple[str, nn.Parameter]]]:
    """Trained parameters, each once, as `PlainLearner` wants them from ``parameter_groups()``.

    Args:
        module: actor and critic in one.
        critic: how names of the critic's parameters begin. All others are the actor's, and so is what both share, if
            the module names the actor first.

    >>> module = nn.ModuleDict({"policy": nn.Linear(1, 1, bias=False), "value": nn.Linear(1, 1, bias=False)})
    >>> {name: [p for p, _ in group] for name, group in actor_and_critic(module, critic=("value.",)).items()}
    {'actor': ['policy.weight'], 'critic': ['value.weight']}
    """
    groups: dict[str, list[tuple[str, nn.Parameter]]] = {"actor": [], "critic": []}
    for name, parameter in module.named_parameters():  # a shared tensor is listed once
        if parameter.requires_grad:
            groups["critic" if name.startswith(critic) else "actor"].append((name, parameter))
    return groups
