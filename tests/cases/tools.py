"""From a case of the numeric case files to tensors, to one op, to its outputs and gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from ppo_lab.core import masking

BOOLS = {"mask", "terminated", "truncated", "eos_present"}
INTEGERS = {"actions", "lengths"}
PLAIN = {"group_ids", "steps", "kls", "improvements", "n", "c", "indices", "score_clip"}
REDUCTIONS = {
    "token_mean": "token_mean",
    "seq_mean_token_mean": "sequence_mean",
    "seq_mean_token_sum": "sequence_sum",
    "constant": "fixed_length",
}
OPS: dict[str, Callable[..., dict[str, Any]]] = {}


def op(function: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    OPS[function.__name__] = function
    return function


def tensors(inputs: Mapping[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    """Inputs as the functions want them; an optional one that is null counts as absent."""
    found = {}
    for name, x in inputs.items():
        if name in BOOLS and x is not None:
            found[name] = torch.tensor(x).bool()
        elif name in INTEGERS:
            found[name] = torch.tensor(x)
        elif isinstance(x, list) and name not in PLAIN:
            found[name] = torch.tensor(x, dtype=dtype)
        elif x is not None:
            found[name] = x
    return found


def evaluate(case: Mapping[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    """Outputs of a case in ``dtype``, gradients of its loss (or mean) included."""
    inputs = tensors(case["inputs"], dtype)
    wanted = [name.removeprefix("grad:") for name in case["expected"] if name.startswith("grad:")]
    for name in wanted:
        inputs[name].requires_grad_()
    out = OPS[case["op"]](**inputs)
    if wanted:
        total = out["loss" if "loss" in out else "mean"]
        grads = torch.autograd.grad(total, [inputs[name] for name in wanted], allow_unused=True, materialize_grads=True)
        out |= {f"grad:{name}": grad for name, grad in zip(wanted, grads, strict=True)}
    return {name: x.detach().double().numpy() if isinstance(x, Tensor) else x for name, x in out.items()}


def everything(x: Tensor, mask: Tensor | None) -> Tensor:
    return torch.ones(x.shape, dtype=torch.bool) if mask is None else mask


def per_step(x: Tensor | float, like: Tensor) -> Tensor:
    """One number, one a row, or one a step -> one a step."""
    x = torch.as_tensor(x, dtype=like.dtype)
    return (x[..., None] if 0 < x.ndim < like.ndim else x).expand(like.shape)


def aggregate(terms: Tensor, mask: Tensor, agg: str, const: float | None) -> Tensor:
    return (terms * masking.step_weights(mask, REDUCTIONS[agg], length=const, dtype=terms.dtype)).sum()
