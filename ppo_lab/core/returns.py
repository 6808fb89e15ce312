"""Returns and advantages: what happened after each step, and how much better than expected it was.

All tensors are ``(..., T)`` with time last. ``terminated`` marks a step after which there is no future (do not
bootstrap); ``ended`` marks a step whose successor belongs to another episode (do not look across) and includes
``terminated``. An environment cut by its time limit has ended but not terminated. The last valid step always ends. A
response is an episode, so the same functions serve CartPole and tokens; their ``mask`` skips steps (left padding, tool
tokens in the middle, the row of a vector environment's reset): a skipped step is 0 in the result and invisible to
others.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ppo_lab.core._checks import check_bool, check_range, check_shapes
from ppo_lab.core.masking import last_step, select, upcast


def next_values(value: Tensor, mask: Tensor) -> Tensor:
    """Value of the next valid step, 0 after the last and where the mask is False. Shapes (..., T).

    Inside one episode this is the ``next_value`` of all functions below. An environment that was cut needs the value
    of its
    *final observation* instead, which is no column of ``value``.

    >>> next_values(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([True, False, True]))
    tensor([3., 0., 0.])
    """
    check_bool(mask=mask)
    check_shapes(value=value, mask=mask)
    value = select(upcast(value), mask)
    ahead = torch.zeros_like(value[..., 0])
    found = []
    for v, counts in zip(reversed(value.unbind(-1)), reversed(mask.unbind(-1)), strict=True):
        found.append(select(ahead, counts))
        ahead = torch.where(counts, v, ahead)
    return torch.stack(found[::-1], dim=-1)


def td_errors(reward: Tensor, value: Tensor, next_value: Tensor, *, terminated: Tensor, gamma: float) -> Tensor:
    r"""One-step surprise, :math:`\delta_t = r_t + \gamma V(s_{t+1}) - V(s_t)`.

    ``next_value`` is read only where the step did not terminate, so it may hold anything there. Raising ``gamma`` lets
    the future weigh more. Source: Sutton & Barto 2018, eq. 6.5.

    >>> one = torch.ones(3)
    >>> td_errors(one, 2 * one, 2 * one, terminated=torch.tensor([False, False, True]), gamma=0.5)
    tensor([ 0.,  0., -1.])
    """
    check_bool(terminated=terminated)
    check_shapes(reward=reward, value=value, next_value=next_value, terminated=terminated)
    check_range("gamma", gamma, 0, 1, fix="a discount; 1 for language, about 0.99 for control")
    return upcast(reward) + gamma * select(upcast(next_value), ~terminated) - upcast(value)


def discounted_returns(
    reward: Tensor,
    next_value: Tensor,
    *,
    terminated: Tensor,
    ended: Tensor,
    gamma: float,
    mask: Tensor | None = None,
) -> Tensor:
    r"""Reward to go, :math:`G_t = \sum_{j=t}^{e} \gamma^{j-t} r_j + \gamma^{e-t+1} V(s_{e+1})`, e the episode's end.

    The last term stands only where the episode was cut, not where it terminated; elsewhere ``next_value`` is not read.
    Raising ``gamma`` looks further ahead, with more variance. Source: Sutton & Barto 2018, eq. 3.9.

    Args:
        reward, next_value: (..., T).
        terminated, ended: (..., T) bool, see the module's head.
        gamma: discount in [0, 1].
        mask: (..., T) bool, True counts; all steps count if left out.

    >>> last = torch.tensor([False, False, True])
    >>> discounted_returns(torch.ones(3), torch.zeros(3), terminated=last, ended=last, gamma=0.5)
    tensor([1.7500, 1.5000, 1.0000])
    """
    ended = _ends(terminated, ended, mask)
    check_shapes(reward=reward, next_value=next_value, ended=ended)
    check_range("gamma", gamma, 0, 1, fix="a discount; 1 for language, about 0.99 for control")
    bootstrap = select(upcast(next_value), ended & ~terminated)
    return _sum_backwards(upcast(reward) + gamma * bootstrap, gamma, ended, mask)


def n_step_advantages(
    reward: Tensor, value: Tensor, next_value: Tensor, *, terminated: Tensor, ended: Tensor, gamma: float, n: int
) -> Tensor:
    r"""Advantage after n real rewards, :math:`\sum_{j=0}^{n-1} \gamma^j r_{t+j} + \gamma^n V(s_{t+n}) - V(s_t)`.

    An episode that ends sooner bootstraps, or not, at its own end. Raising ``n`` from 1 (the TD error) trades the
    critic's bias for the variance of real rewards. Add ``value`` to get the n-step return. Shapes (..., T).
    Source: Sutton & Barto 2018, eq. 7.1; Mnih et al. 2016 (A3C).

    >>> flags = torch.zeros(3, dtype=torch.bool)
    >>> n_step_advantages(torch.ones(3), torch.zeros(3), torch.ones(3), terminated=flags, ended=flags, gamma=1.0, n=2)
    tensor([3., 3., 2.])
    """
    check_range("n", n, 1, float("inf"), fix="1 is the TD error")
    check_shapes(reward=reward, ended=ended)
    ended = _ends(terminated, ended, None)
    target = td_errors(reward, torch.zeros_like(value), next_value, terminated=terminated, gamma=gamma)
    one_step = target
    for _ in range(min(n, reward.shape[-1]) - 1):
        later = torch.cat([target[..., 1:], target[..., -1:]], dim=-1)
        target = torch.where(ended, one_step, upcast(reward) + gamma * later)
    return target - upcast(value)


def gae(
    reward: Tensor,
    value: Tensor,
    next_value: Tensor,
    *,
    terminated: Tensor,
    ended: Tensor,
    gamma: float,
    lam: float,
    mask: Tensor | None = None,
) -> Tensor:
    r"""Generalised advantage estimate, :math:`\hat A_t = \sum_{l \ge 0} (\gamma\lambda)^l \delta_{t+l}`.

    The sum stops at the end of the episode. Raising ``lam`` from 0 (the TD error: low variance, biased by the critic)
    to 1 (return minus value: unbiased, noisy) looks further ahead. ``mask`` skips steps, as padding or tool tokens:
    a skipped step is 0 in the result and invisible to its neighbours.

    Args:
        reward, value, next_value: ``(..., T)``; ``next_value[t]`` is the value of the state that step ``t`` led to.
        terminated, ended: ``(..., T)`` bool, see the module's head.
        gamma: discount in [0, 1]; 1 for language.
        lam: λ in [0, 1].
        mask: ``(..., T)`` bool, True counts; all steps count if left out.

    Returns:
        Advantages ``(..., T)``. The critic's target is ``gae(...) + value``.

    Source: Schulman et al. 2016, High-dimensional continuous control using GAE, eq. 16.

    >>> last = torch.tensor([False, True])
    >>> gae(torch.tensor([0.0, 1.0]), torch.zeros(2), torch.zeros(2), terminated=last, ended=last, gamma=1.0, lam=0.5)
    tensor([0.5000, 1.0000])
    """
    ended = _ends(terminated, ended, mask)
    check_range("lam", lam, 0, 1, fix="0 is the TD error, 1 is return minus value")
    delta = td_errors(reward, value, next_value, terminated=terminated, gamma=gamma)
    return _sum_backwards(delta, gamma * lam, ended, mask)


def _ends(terminated: Tensor, ended: Tensor, mask: Tensor | None) -> Tensor:
    """Where nothing may be carried over from the next step, said in full; without a mask all steps count."""
    check_bool(terminated=terminated, ended=ended, **({} if mask is None else {"mask": mask}))
    check_shapes(ended=ended, terminated=terminated, **({} if mask is None else {"mask": mask}))
    ends = ended | terminated
    if mask is not None:
        return ends | last_step(mask)
    ends[..., -1:] = True
    return ends


def _sum_backwards(x: Tensor, decay: float, ended: Tensor, mask: Tensor | None) -> Tensor:
    """``y[t] = x[t] + decay * y[next valid t]`` up to the end of the episode; 0 where the mask is False.

    By doubling: ``x[t]`` holds the sum over ``step`` steps, ``weight[t]`` what a step beyond them is worth, ``closed``
    whether the episode is over there. log₂ T passes over whole tensors in place of T over columns, and fewer where all
    episodes are short (Hillis & Steele 1986).
    """
    x, steps = x.clone() if mask is None else select(x, mask), x.shape[-1]
    closed, weight = ended[..., :-1], torch.full_like(x, decay)[..., :-1]
    if mask is not None:  # a step that is skipped ends nothing and costs no decay
        closed, weight = closed & mask[..., :-1], weight.masked_fill(~mask[..., :-1], 1)
    step = 1
    while step < steps and not bool(closed.all()):
        x[..., :-step] += (weight * x[..., step:]).masked_fill_(closed, 0)  # a NaN beyond the end stays there
        closed = closed[..., :-step] | closed[..., step:]
        weight = weight[..., :-step] * weight[..., step:]
        step *= 2
    return select(x, mask)
