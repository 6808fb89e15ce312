"""What padding holds changes nothing: no value, no gradient, to the last bit. For every function that takes a mask."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable

import torch
from material import MASK, coin, gradient, normal, same
from torch import Tensor

from ppo_lab.core import (
    distributions,
    groups,
    importance,
    kl,
    masking,
    objectives,
    returns,
    values,
)
from ppo_lab.core.masking import last_step, select, step_weights
from ppo_lab.rlhf import rewards

Masked = Callable[..., Tensor]
GARBAGE = (1e6, -1e6, math.nan, math.inf, -math.inf)
LAST = {"terminated": last_step(MASK), "ended": last_step(MASK)}


def flagged(function: Masked, **knobs) -> Masked:
    """Returns and advantages with flags that are garbage in padding as well."""

    def call(m: Tensor, *x: Tensor) -> Tensor:
        flags = coin(*m.shape, p=0.3, seed=int(m.sum()) + torch.isnan(x[0]).any().item())
        cuts = {name: torch.where(m, flag, flags) for name, flag in LAST.items()}
        return function(*x, **cuts, **knobs, mask=m)

    return call


# (number of tensors, the function with the mask in front): every function of core and rlhf.rewards with a mask
TAKES_MASK: dict[str, tuple[int, Masked]] = {
    "select": (1, lambda m, x: select(x, m)),
    "masked_sum": (1, lambda m, x: masking.masked_sum(x, m, dim=-1)),
    "masked_count": (1, lambda m, x: masking.masked_count(x, m)),
    "masked_mean": (1, lambda m, x: masking.masked_mean(x, m)),
    "centered": (1, lambda m, x: masking.centered(x, m)),
    "masked_var": (1, lambda m, x: masking.masked_var(x, m, ddof=1)),
    "standardize": (1, lambda m, x: masking.standardize(x, m)),
    "rescale": (1, lambda m, x: masking.rescale(x, m)),
    "next_values": (1, lambda m, x: returns.next_values(x, m)),
    "discounted_returns": (2, flagged(returns.discounted_returns, gamma=0.9)),
    "gae": (3, flagged(returns.gae, gamma=0.9, lam=0.8)),
    "log_ratio": (2, lambda m, x, y: importance.log_ratio(x, y, m)),
    "effective_sample_size": (1, lambda m, x: importance.effective_sample_size(x, m)),
    "clip_fraction": (1, lambda m, x: objectives.clip_fraction(x, m, clip=0.2)),
    "active_clip_fraction": (2, lambda m, x, a: objectives.active_clip_fraction(x, a, m, clip=0.2)),
    "value_clip_fraction": (3, lambda m, x, y, z: values.value_clip_fraction(x, y, z, m, clip=0.2)),
    "explained_variance": (2, lambda m, x, y: values.explained_variance(x, y, m)),
    "rloo_advantages": (1, lambda m, x: groups.rloo_advantages(x, m)),
    "centered_advantages": (1, lambda m, x: groups.centered_advantages(x, m)),
    "grpo_advantages": (1, lambda m, x: groups.grpo_advantages(x, m, eps=1e-4)),
    "reinforce_pp_advantages": (1, lambda m, x: groups.reinforce_pp_advantages(x, m, gamma=0.9)),
    "token_rewards": (2, lambda m, x, y: rewards.token_rewards(torch.ones(6), x, y, m, beta=0.1, estimator="k3")),
}
MASK_ONLY = {"last_step", "step_weights"}  # no other tensor that could hold garbage


def loss(terms: Tensor, m: Tensor) -> Tensor:
    return -(terms * step_weights(m, "sequence_mean", dtype=terms.dtype)).sum()


def penalised(m: Tensor, x: Tensor, y: Tensor, a: Tensor) -> Tensor:
    old_kl = kl.k3(select(y, m), select(x, m))
    return loss(objectives.kl_penalized(importance.log_ratio(x, y, m), select(a, m), old_kl, beta=1), m)


# functions a step, on selected inputs, down to a loss
ON_SELECTED: dict[str, tuple[int, Masked]] = {
    "clipped": (3, lambda m, x, y, a: loss(
        objectives.clipped_surrogate(importance.log_ratio(x, y, m), select(a, m), clip=0.2, dual_clip=3), m)),
    "surrogate": (3, lambda m, x, y, a: loss(objectives.surrogate(importance.log_ratio(x, y, m), select(a, m)), m)),
    "penalised": (3, penalised),
    "reinforce": (2, lambda m, x, a: loss(objectives.reinforce(select(x, m), select(a, m)), m)),
    "value": (2, lambda m, x, y: loss(values.value_error(select(x, m), select(y, m)), m)),
    "clipped value": (3, lambda m, x, y, z: loss(
        values.clipped_value_error(select(x, m), select(y, m), select(z, m), clip=0.2), m)),
    "k1": (2, lambda m, x, y: loss(kl.k1(select(x, m), select(y, m)), m)),
    "k2": (2, lambda m, x, y: loss(kl.k2(select(x, m), select(y, m)), m)),
    "k3": (2, lambda m, x, y: loss(kl.k3(select(x, m), select(y, m)), m)),
    "entropy": (2, lambda m, x, y: loss(distributions.entropy(select(torch.stack([x, y], -1), m[..., None])), m)),
    "exact kl": (2, lambda m, x, y: loss(kl.categorical_kl(*(
        select(torch.stack(pair, -1), m[..., None]) for pair in ((x, y), (y, x)))), m)),
}  # fmt: skip


def outcome(function: Masked, leaves: list[Tensor]) -> list[Tensor]:
    """Value and, where there is one, gradients of a random projection of it."""
    out = function(MASK, *leaves)
    if not out.requires_grad:
        return [out]
    probe = normal(*out.shape, seed=99).to(out.dtype)
    return [out.detach(), *gradient((out * probe).sum(), *leaves)]


def leaves(n: int, padding: float) -> list[Tensor]:
    return [torch.where(MASK, normal(*MASK.shape, seed=s), padding).requires_grad_() for s in range(n)]


def test_padding_changes_no_value_and_no_gradient() -> None:
    for name, (n, function) in {**TAKES_MASK, **ON_SELECTED}.items():
        clean = outcome(function, leaves(n, 0.0))
        assert all(x.isfinite().all() for x in clean), name
        for garbage in GARBAGE:
            dirty = outcome(function, leaves(n, garbage))
            assert all(map(torch.equal, clean, dirty)), (name, garbage)


def test_results_and_gradients_are_0_in_padding() -> None:
    for name, (n, function) in {**TAKES_MASK, **ON_SELECTED}.items():
        for x in outcome(function, leaves(n, 1e6)):
            assert x.shape != MASK.shape or not x[~MASK].any(), name


def test_every_function_with_a_mask_is_listed() -> None:
    modules = (masking, returns, importance, objectives, values, distributions, kl, groups, rewards)
    found = {
        name
        for module in modules
        for name, f in inspect.getmembers(module, inspect.isfunction)
        if "mask" in inspect.signature(f).parameters and f.__module__ == module.__name__ and name[0] != "_"
    }
    assert found == TAKES_MASK.keys() | MASK_ONLY


def test_nothing_valid_gives_0() -> None:
    nothing, x = torch.zeros(2, 3, dtype=torch.bool), torch.full((2, 3), torch.nan, dtype=torch.float64)
    for name, (n, function) in {**TAKES_MASK, **ON_SELECTED}.items():
        if name not in ("gae", "discounted_returns", "token_rewards", "explained_variance"):
            inputs = [x.clone().requires_grad_() for _ in range(n)]
            out = function(nothing, *inputs)
            grads = gradient(out.sum(), *inputs) if out.requires_grad else ()
            assert not any(y.any() for y in (out, *grads)), name
    assert values.explained_variance(x, x, nothing).isnan()
    assert not returns.gae(x, x, x, terminated=nothing, ended=nothing, gamma=1, lam=1, mask=nothing).any()
    assert not rewards.token_rewards(x[:, 0], x, x, nothing, beta=0.1).any()
    for reduction in masking.REDUCTIONS:
        length = 3 if reduction == "fixed_length" else None
        assert not step_weights(nothing, reduction, length=length).any()


def test_a_full_mask_is_no_mask() -> None:
    full = torch.ones(4, 5, dtype=torch.bool)
    x, y, z = (normal(4, 5, seed=s) for s in range(3))
    flags = {"terminated": coin(4, 5, p=0.2), "ended": coin(4, 5, p=0.4, seed=1)}
    pairs = {
        "sum": [masking.masked_sum(x, m) for m in (full, None)],
        "count": [masking.masked_count(x, m) for m in (full, None)],
        "mean": [masking.masked_mean(x, m, dim=0) for m in (full, None)],
        "var": [masking.masked_var(x, m, dim=-1, ddof=1) for m in (full, None)],
        "standardize": [masking.standardize(x, m) for m in (full, None)],
        "rescale": [masking.rescale(x, m) for m in (full, None)],
        "returns": [returns.discounted_returns(x, y, **flags, gamma=0.9, mask=m) for m in (full, None)],
        "gae": [returns.gae(x, y, z, **flags, gamma=0.9, lam=0.9, mask=m) for m in (full, None)],
        "log_ratio": [importance.log_ratio(x, y, m) for m in (full, None)],
        "ess": [importance.effective_sample_size(x, m) for m in (full, None)],
        "fraction": [objectives.clip_fraction(x, m, clip=0.2) for m in (full, None)],
        "active": [objectives.active_clip_fraction(x, y, m, clip=0.2) for m in (full, None)],
        "value": [values.value_clip_fraction(x, y, z, m, clip=0.2) for m in (full, None)],
        "explained": [values.explained_variance(x, y, m) for m in (full, None)],
        "rloo": [groups.rloo_advantages(x, m) for m in (full, None)],
        "centered": [groups.centered_advantages(x, m) for m in (full, None)],
        "grpo": [groups.grpo_advantages(x, m, eps=0.1) for m in (full, None)],
    }
    for name, (masked, plain) in pairs.items():
        assert torch.equal(masked, plain), name


def test_rows_may_be_permuted() -> None:
    """A permutation of the batch permutes what is a row's, and leaves what is the batch's."""
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    for name, (n, function) in TAKES_MASK.items():
        if name not in ("gae", "discounted_returns"):
            x = [normal(*MASK.shape, seed=s) for s in range(n)]
            out, moved = function(MASK, *x), function(MASK[order], *(y[order] for y in x))
            assert same(moved, out[order] if out.ndim else out), name


def test_half_precision_is_computed_in_float32() -> None:
    for half in (torch.bfloat16, torch.float16):
        for name, (n, function) in {**TAKES_MASK, **ON_SELECTED}.items():
            x = [normal(*MASK.shape, seed=s, dtype=torch.float32).to(half) for s in range(n)]
            found, wide = function(MASK, *x), function(MASK, *(y.float() for y in x))
            if name == "select":
                assert found.dtype == half and torch.equal(found.float(), wide)
            else:
                assert found.dtype == torch.float32 and torch.equal(found, wide), (name, half)
