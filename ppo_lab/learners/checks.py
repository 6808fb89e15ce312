"""What every learner asks of its module, its settings and the state it is to load."""

from __future__ import annotations

import math
from collections.abc import Mapping

from torch import Tensor, nn

from ppo_lab.learners.states import outline


def check_settings(
    actor_rate: float,
    critic_rate: float,
    max_norm: float | None,
    mixed_precision: str,
    *,
    known: tuple[str, ...] = ("no", "bf16"),
) -> None:
    """Rates, norm and precision in range."""
    for name, rate in (("actor_rate", actor_rate), ("critic_rate", critic_rate)):
        if not 0 <= rate < math.inf:
            raise ValueError(f"{name} must be finite and at least 0, got {rate}; 1e-5 … 1e-3 are usual")
    if max_norm is not None and not max_norm > 0:
        raise ValueError(f"max_norm must be above 0, got {max_norm}; use 1.0, or None not to clip")
    if mixed_precision not in known:
        raise ValueError(f"mixed_precision must be {' or '.join(map(repr, known))}, got {mixed_precision!r}; use bf16")


def check_checkpointing(module: nn.Module) -> None:
    """Refuse checkpointing that would silently not act."""
    found = [name for name, part in module.named_modules() if getattr(part, "gradient_checkpointing", False)]
    if found:
        raise ValueError(
            "gradient checkpointing of transformers must be off (it acts in training mode only, and forward() runs in "
            f"evaluation mode), got it on in {found[0]}; use recompute_blocks of ppo_lab.rlhf.models.recompute"
        )


def checked_groups(module: nn.Module) -> dict[str, list[tuple[str, nn.Parameter]]]:
    """``parameter_groups()`` of the module, every trained parameter once."""
    given = module.parameter_groups()  # type: ignore[operator]
    if set(given) != {"actor", "critic"}:
        raise ValueError(f"parameter_groups() needs the keys actor and critic, got {sorted(given)}; one may be empty")
    groups = {name: list(given[name]) for name in ("actor", "critic")}
    known = dict(module.named_parameters(remove_duplicate=False))
    seen: dict[int, str] = {}
    for name, p in groups["actor"] + groups["critic"]:
        if name not in known or known[name] is not p:
            raise ValueError(f"parameter_groups() must use names of named_parameters(), got {name!r}; use those names")
        if not p.requires_grad:
            raise ValueError(f"parameter_groups() must hold trained parameters only, got frozen {name}; leave it out")
        if id(p) in seen:
            raise ValueError(f"parameter_groups() must list a parameter once, got {name} = {seen[id(p)]}; drop one")
        seen[id(p)] = name
    forgotten = [name for name, p in module.named_parameters() if p.requires_grad and id(p) not in seen]
    if forgotten:
        raise ValueError(f"parameter_groups() leaves out {forgotten}; add them to a group or set requires_grad=False")
    return groups


def freeze(name: str, model: nn.Module, trained: dict[str, nn.Parameter]) -> nn.Module:
    """The model without gradients and dropout. It may share frozen parameters with the trained module, no others."""
    theirs = {id(p) for p in model.parameters()}
    shared = [parameter for parameter, p in trained.items() if id(p) in theirs]
    if shared:
        raise ValueError(f"frozen model {name} must not share the trained {shared[0]}; give it a copy (copy.deepcopy)")
    return model.eval().requires_grad_(False)


def check_state(given: Mapping[str, Tensor], mine: dict[str, Tensor]) -> None:
    """Every tensor that ``mine`` names, of its shape and dtype, and no other; none is read for it."""
    state = outline(given)
    same = "load a checkpoint of the model that the config describes"
    for name, x in mine.items():
        if name not in state:
            raise ValueError(f"state lacks {name} {tuple(x.shape)}; {same}")
        got = state[name]
        if got.shape != x.shape or got.dtype != x.dtype:
            raise ValueError(
                f"{name} must be {x.dtype} {tuple(x.shape)}, got {got.dtype} {tuple(got.shape)}; {same}"
            )
    extra = sorted(set(state) - set(mine))
    if extra:
        raise ValueError(f"state holds {extra[0]} ({len(extra)} unknown in all), which the module lacks; {same}")
