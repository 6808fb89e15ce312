"""Ops on steps: returns, ratios, objectives, the critic."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from cases.tools import aggregate, everything, op, per_step
from ppo_lab.core import distributions, importance, kl, masking, objectives, returns, values

RULES = {"paper": "double_or_halve", "x1.5_at_2": "step_1_5", "proportional": "proportional"}


# --- returns, gae ----------------------------------------------------------------------------------------------------


def flags(rewards: Tensor, terminated: Tensor | None, truncated: Tensor | None) -> dict[str, Tensor]:
    none = torch.zeros(rewards.shape, dtype=torch.bool)
    terminated = none if terminated is None else terminated
    return {"terminated": terminated, "ended": terminated | (none if truncated is None else truncated)}


@op
def td_errors(*, rewards, values, next_values, gamma, terminated=None, truncated=None):
    terminated = flags(rewards, terminated, truncated)["terminated"]
    return {"td_errors": returns.td_errors(rewards, values, next_values, terminated=terminated, gamma=gamma)}


@op
def discounted_returns(*, rewards, next_values, gamma, values=None, terminated=None, truncated=None, mask=None):
    cuts = flags(rewards, terminated, truncated)
    return {"returns": returns.discounted_returns(rewards, next_values, **cuts, gamma=gamma, mask=mask)}


@op
def n_step_returns(*, rewards, next_values, gamma, n, values=None, terminated=None, truncated=None):
    cuts, zero = flags(rewards, terminated, truncated), torch.zeros_like(rewards)
    return {"returns": returns.n_step_advantages(rewards, zero, next_values, **cuts, gamma=gamma, n=n)}


@op
def gae(*, rewards, values, next_values, gamma, lam, terminated=None, truncated=None, mask=None):
    cuts = flags(rewards, terminated, truncated)
    advantages = returns.gae(rewards, values, next_values, **cuts, gamma=gamma, lam=lam, mask=mask)
    return {"advantages": advantages, "returns": masking.select(advantages + values, mask)}


@op
def gae_masked(*, rewards, values, gamma, lam, mask=None):
    mask = everything(rewards, mask)
    last, ahead = masking.last_step(mask), returns.next_values(values, mask)
    advantages = returns.gae(rewards, values, ahead, terminated=last, ended=last, gamma=gamma, lam=lam, mask=mask)
    return {"advantages": advantages, "returns": masking.select(advantages + values, mask)}


@op
def discounted_returns_masked(*, rewards, gamma, mask=None):
    mask = everything(rewards, mask)
    last, zero = masking.last_step(mask), torch.zeros_like(rewards)
    return {"returns": returns.discounted_returns(rewards, zero, terminated=last, ended=last, gamma=gamma, mask=mask)}


# --- ratios, objectives, critic --------------------------------------------------------------------------------------


@op
def importance_ratio(*, logp_new, logp_old, mask=None):
    ratio = importance.importance_weights(importance.log_ratio(logp_new, logp_old, mask))
    return {"ratio": masking.select(ratio, mask)}


@op
def ess(*, log_ratio, mask=None):
    mask = everything(log_ratio, mask)
    size = importance.effective_sample_size(log_ratio, mask)
    return {"ess": size, "ess_fraction": size / mask.sum().clamp(min=1)}


@op
def sequence_ratio(*, logp_new, logp_old, mask=None, mode="sum"):
    reduce = {"sum": masking.masked_sum, "mean": masking.masked_mean}[mode]
    log_ratio = importance.log_ratio(logp_new, logp_old, mask)
    return {"ratio": importance.importance_weights(reduce(log_ratio, mask, dim=-1))}


@op
def ppo_clip_loss(
    *, logp_new, logp_old, advantages, clip_low, clip_high, mask=None, agg="token_mean", const=None, dual_clip=math.inf
):
    mask = everything(logp_new, mask)
    log_ratio = importance.log_ratio(logp_new, logp_old, mask)
    advantage, clip = masking.select(per_step(advantages, logp_new), mask), (clip_low, clip_high)
    terms = objectives.clipped_surrogate(log_ratio, advantage, clip=clip, dual_clip=dual_clip)
    return {
        "loss": -aggregate(terms, mask, agg, const),
        "clip_frac_out_of_range": objectives.clip_fraction(log_ratio, mask, clip=clip),
        "clip_frac_active": objectives.active_clip_fraction(log_ratio, advantage, mask, clip=clip),
    }


@op
def clip_fraction(*, logp_new, logp_old, eps, advantages=None, mask=None):
    log_ratio = importance.log_ratio(logp_new, logp_old, mask)
    advantage = masking.select(per_step(0.0 if advantages is None else advantages, logp_new), mask)
    return {
        "out_of_range": objectives.clip_fraction(log_ratio, mask, clip=eps),
        "active": objectives.active_clip_fraction(log_ratio, advantage, mask, clip=eps),
    }


@op
def ppo_kl_loss(*, logits_new, logits_old, actions, advantages, beta, mask=None):
    mask = everything(actions, mask)
    new, old = (masking.select(x, mask[..., None]) for x in (logits_new, logits_old))
    action = masking.select(actions, mask)
    logp, old_logp = (distributions.categorical_logp(x, action) for x in (new, old))
    exact = masking.select(kl.categorical_kl(old, new), mask)
    advantage = masking.select(per_step(advantages, logp), mask)
    terms = objectives.kl_penalized(importance.log_ratio(logp, old_logp, mask), advantage, exact, beta=beta)
    return {"loss": -aggregate(terms, mask, "token_mean", None), "mean_kl": masking.masked_mean(exact, mask)}


@op
def adaptive_beta(
    *, rule, beta0, target, kls, n_steps=None, horizon=None, beta_min=-math.inf, beta_max=math.inf
):
    settings = {"target": target, "rule": RULES[rule], "n_steps": n_steps, "horizon": horizon}
    betas = [beta0]
    for measured in kls:
        betas.append(kl.next_beta(betas[-1], measured, **settings, bounds=(beta_min, beta_max)))
    return {"betas": betas[1:]}


@op
def value_loss(*, values_new, returns, values_old=None, mask=None, clip=None):
    mask = everything(values_new, mask)
    value, target = masking.select(values_new, mask), masking.select(returns, mask)
    if clip is None:
        return {"loss": aggregate(values.value_error(value, target), mask, "token_mean", None), "clip_frac": 0.0}
    old = masking.select(values_old, mask)
    terms = values.clipped_value_error(value, old, target, clip=clip)
    fraction = values.value_clip_fraction(value, old, target, mask, clip=clip)
    return {"loss": aggregate(terms, mask, "token_mean", None), "clip_frac": fraction}


@op
def explained_variance(*, y_pred, y_true, mask=None):
    return {"explained_variance": values.explained_variance(y_pred, y_true, mask)}
