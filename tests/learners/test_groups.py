"""Parameters by group: each trained one once, the shared ones with the actor, the same rule for every actor-critic."""

from __future__ import annotations

from learners.modules import Tied, TwoHeads
from torch import nn

from ppo_lab.exact.language import make_language
from ppo_lab.exact.tabular import TabularActorCritic
from ppo_lab.learners.groups import actor_and_critic


def names(module: nn.Module, *critic: str) -> dict[str, list[str]]:
    groups = actor_and_critic(module, critic=critic)
    found = {group: [name for name, _ in pairs] for group, pairs in groups.items()}
    known = dict(module.named_parameters(remove_duplicate=False))
    assert all(known[name] is p for pairs in groups.values() for name, p in pairs)
    return found


def test_frozen_ones_are_left_out_and_a_shared_trunk_is_the_actors() -> None:
    layers = {part: [f"{part}.weight", f"{part}.bias"] for part in ("trunk", "policy", "value")}
    assert names(TwoHeads(), "value.") == {"actor": layers["trunk"] + layers["policy"], "critic": layers["value"]}
    assert names(Tied(), "value.") == {
        "actor": ["embed.weight", "trunk.weight", "trunk.bias"], "critic": ["value.head.weight", "value.head.bias"]
    }  # fmt: skip


def test_tables_are_grouped_by_the_same_rule() -> None:
    groups = TabularActorCritic(make_language(0)).parameter_groups()
    assert {k: [name for name, _ in v] for k, v in groups.items()} == {"actor": ["policy.logits"], "critic": ["value"]}
    frozen = TabularActorCritic(make_language(0))
    frozen.value.requires_grad_(False)
    assert frozen.parameter_groups()["critic"] == []


def test_a_tensor_that_both_use_is_trained_once() -> None:
    module = nn.ModuleDict({"policy": nn.Linear(2, 2), "critic": nn.Linear(2, 2)})
    module["critic"].weight = module["policy"].weight
    assert names(module, "critic.") == {"actor": ["policy.weight", "policy.bias"], "critic": ["critic.bias"]}
