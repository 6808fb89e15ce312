"""TRPO's steps: the natural gradient from products with the Fisher matrix, never the matrix itself.

``apply(v)`` stands for "the matrix times v" (vectors are flat, (D,)): a second backward pass gives it in the memory of
a few gradients, where the matrix would need D².
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ppo_lab.core._checks import check_range
from ppo_lab.core.masking import upcast

Product = Callable[[Tensor], Tensor]


def conjugate_gradient(apply: Product, b: Tensor, *, iters: int) -> Tensor:
    """Solve ``apply(x) = b`` for a symmetric positive matrix by ``iters`` conjugate-gradient steps from 0, or fewer.

    D steps are exact but for rounding; TRPO takes 10 and lives with the rest. It stops early where the residual is as
    small as rounding, or where the matrix turns out not to be positive along the search direction.
    Source: Hestenes & Stiefel 1952; Shewchuk 1994, app. B2.

    >>> conjugate_gradient(lambda v: torch.tensor([2.0, 4.0]) * v, torch.tensor([2.0, 2.0]), iters=2)
    tensor([1.0000, 0.5000])
    """
    check_range("iters", iters, 0, math.inf, fix="10 is usual")
    b = upcast(b)
    x, residual, direction = torch.zeros_like(b), b, b
    size = residual @ residual
    smallest = torch.finfo(b.dtype).eps ** 2 * size
    for _ in range(iters):
        image = apply(direction)
        curvature = direction @ image
        if not (size > smallest and curvature > 0):
            break
        step = size / curvature
        x = x + step * direction
        residual = residual - step * image
        before, size = size, residual @ residual
        direction = residual + size / before * direction
    return x


def categorical_fisher_product(logits: Tensor, v: Tensor, *, damping: float = 0.0) -> Tensor:
    r"""Fisher matrix of a softmax times v: mean over rows of :math:`(\mathrm{diag}(p) - p p^\top) v`, plus damping · v.

    The Fisher matrix is the Hessian of KL(old‖new) with respect to the logits, at new = old. (..., K), (K,) -> (K,).
    Source: Kakade 2001, A natural policy gradient.

    >>> categorical_fisher_product(torch.zeros(2), torch.tensor([1.0, 0.0]))
    tensor([ 0.2500, -0.2500])
    """
    if v.shape != logits.shape[-1:]:
        raise ValueError(f"v must be {tuple(logits.shape[-1:])}, one number a logit, got {tuple(v.shape)}; flatten it")
    p, v = upcast(logits).softmax(-1), upcast(v)
    product = p * (v - (p * v).sum(-1, keepdim=True))
    return product.reshape(-1, len(v)).mean(0) + damping * v


def natural_step(apply: Product, g: Tensor, *, delta: float, damping: float = 0.0, iters: int = 10) -> Tensor:
    r"""Largest step along :math:`x = (F + \mathrm{damping} \cdot I)^{-1} g` that keeps the quadratic KL at ``delta``.

    The step is :math:`\sqrt{2 \delta / x^\top g}\ x`: without damping :math:`\frac12 s^\top F s = \delta` exactly,
    with it less. Raising ``delta`` takes larger steps; raising ``damping`` makes them smaller and more like the plain
    gradient's.

    Args:
        apply: F times a vector, undamped.
        g: gradient of the surrogate, (D,); 0 gives a step of 0.
        delta: trust region in nats, 0.01 to 0.05.
        damping: added to F's diagonal; 0.1 is usual with sampled F.
        iters: conjugate-gradient steps.

    Source: Schulman et al. 2015, TRPO, app. C.

    >>> natural_step(lambda v: 2 * v, torch.tensor([3.0, 4.0]), delta=0.01)
    tensor([0.0600, 0.0800])
    """
    check_range("delta", delta, 0, math.inf, fix="0.01 nats is usual")
    check_range("damping", damping, 0, math.inf, fix="0.1 is usual")
    g = upcast(g)
    x = conjugate_gradient(lambda v: apply(v) + damping * v, g, iters=iters)
    slope = x @ g
    scale = torch.where(slope > 0, 2 * delta / torch.where(slope > 0, slope, 1), 0).sqrt()
    return scale * x


def accept_step(kls: Sequence[float], improvements: Sequence[float], *, delta: float) -> int | None:
    """Backtracking line search: the first candidate with a finite KL ≤ ``delta`` and a real improvement, or None.

    Candidate j is the full step times 0.5^j; ``kls`` and ``improvements`` were measured there. None means: do not step.
    Source: Schulman et al. 2015, TRPO, app. C.

    >>> accept_step([0.03, 0.009, 0.004], [0.2, 0.1, 0.05], delta=0.01)
    1
    >>> accept_step([0.03], [0.2], delta=0.01) is None
    True
    """
    for j, (kl, improvement) in enumerate(zip(kls, improvements, strict=True)):
        if math.isfinite(kl) and kl <= delta and improvement > 0:
            return j
    return None


def next_delta(delta: float, gained: float, promised: float, *, bounds: tuple[float, float] = (1e-4, 0.1)) -> float:
    r"""Trust region for the next step, from what the last one kept of its promise, :math:`gained / promised`.

    ×2 above three quarters, ÷2 below a quarter. What was gained has to be measured apart from the samples that promised
    it, or the promise judges itself.

    Args:
        delta: region of the last step, nats.
        gained, promised: actual and predicted improvement, same unit; nothing promised leaves ``delta`` as it is.
        bounds: the region stays within these.

    Source: Nocedal & Wright 2006, Numerical optimization, algorithm 4.1.

    >>> next_delta(0.01, 0.9, 1.0), next_delta(0.01, 0.5, 1.0), next_delta(0.01, -0.1, 1.0)
    (0.02, 0.01, 0.005)
    """
    check_range("gained", gained, -math.inf, math.inf, fix="find where the return became NaN")
    check_range("bounds[1]", bounds[1], bounds[0], math.inf, fix="give (low, high)")
    kept = gained / promised if promised > 0 else 0.5
    factor = 2.0 if kept > 0.75 else 0.5 if kept < 0.25 else 1.0
    return min(max(delta * factor, bounds[0]), bounds[1])
