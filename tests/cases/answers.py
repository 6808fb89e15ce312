"""Ops on distributions, answers, groups, pairs and runs."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from cases.tools import aggregate, everything, op, per_step
from ppo_lab.core import (
    distributions,
    groups,
    importance,
    kl,
    masking,
    objectives,
    preferences,
    returns,
    schedules,
    trust_region,
)
from ppo_lab.evaluate import passk, statistics
from ppo_lab.exact import mdp
from ppo_lab.rlhf import rewards as text_rewards
from ppo_lab.scale import memory

# --- distributions, statistics over a mask, KL -----------------------------------------------------------------------


@op
def categorical_entropy(*, logits, mask=None):
    mask = everything(logits[..., 0], mask)
    each = masking.select(distributions.entropy(masking.select(logits, mask[..., None])), mask)
    return {"entropy": each, "mean": masking.masked_mean(each, mask)}


@op
def gaussian_entropy(*, log_std):
    return {"entropy": distributions.gaussian_entropy(log_std)}


@op
def masked_mean(*, x, mask=None, axis=None):
    return {"mean": masking.masked_mean(x, mask, dim=axis)}


@op
def masked_var(*, x, mask=None, ddof=0, axis=None):
    return {"var": masking.masked_var(x, mask, dim=axis, ddof=ddof)}


@op
def masked_whiten(*, x, mask=None, ddof=0, eps=1e-8, shift_mean=True):
    return {"out": (masking.standardize if shift_mean else masking.rescale)(x, mask, eps=eps, ddof=ddof)}


@op
def kl_estimators(*, logp, ref_logp, mask=None):
    out = {}
    for name, estimate in (("k1", kl.k1), ("k2", kl.k2), ("k3", kl.k3)):
        leaf = logp.detach().clone().requires_grad_()
        each = masking.select(estimate(masking.select(leaf, mask), masking.select(ref_logp, mask)), mask)
        out[name], (out[f"grad_{name}"],) = each, torch.autograd.grad(each.sum(), leaf)
    return out


@op
def approx_kl(*, logp_new, logp_old, mask=None):
    old, new = masking.select(logp_old, mask), masking.select(logp_new, mask)
    return {name: masking.masked_mean(getattr(kl, name)(old, new), mask) for name in ("k1", "k2", "k3")}


@op
def kl_categorical(*, logits_p, logits_q):
    return {"kl": kl.categorical_kl(logits_p, logits_q)}


@op
def kl_gaussian(*, mu_p, log_std_p, mu_q, log_std_q):
    return {"kl": kl.gaussian_kl(mu_p, log_std_p, mu_q, log_std_q)}


@op
def kl_expectations(*, p, q):
    logp, logq, can = p.log(), q.log(), p > 0
    out = {"exact": kl.categorical_kl(logp, logq)}
    for name in ("k1", "k2", "k3"):
        out[f"E_{name}"] = p @ getattr(kl, name)(masking.select(logp, can), masking.select(logq, can))
    return out


# --- rewards ---------------------------------------------------------------------------------------------------------


@op
def token_rewards(
    *, scores, logp, ref_logp, beta, mask=None, kl_kind="k1", eos_present=None, missing_eos_penalty=0.0, score_clip=None
):
    mask = everything(logp, mask)
    stopped = everything(scores, eos_present)
    score = text_rewards.final_score(
        scores, stopped, clip=score_clip, missing_eos="subtract", penalty=missing_eos_penalty
    )
    each = text_rewards.token_rewards(score, logp, ref_logp, mask, beta=beta, estimator=kl_kind)
    estimates = getattr(kl, kl_kind)(masking.select(logp, mask), masking.select(ref_logp, mask))
    return {"rewards": each, "kl_sum": masking.masked_sum(estimates, mask, dim=-1), "total": each.sum(-1)}


@op
def length_normalised_logp_reward(*, logp, beta, mask=None):
    mask = everything(logp, mask)
    total = beta * masking.masked_sum(logp, mask, dim=-1)
    return {"reward": text_rewards.length_normalized(total, mask.sum(-1))}


@op
def length_normalised_score(*, scores, lengths):
    return {"reward": text_rewards.length_normalized(scores, lengths)}


@op
def bt_loss(*, chosen, rejected, margin=0.0, label_smoothing=0.0, center_coef=0.0):
    terms = preferences.bradley_terry_loss(chosen, rejected, margin=margin, label_smoothing=label_smoothing)
    terms = terms + center_coef * preferences.score_centering(chosen, rejected)
    return {"loss": masking.masked_mean(terms), "accuracy": masking.masked_mean((chosen > rejected).to(terms.dtype))}


# --- groups and pairs ------------------------------------------------------------------------------------------------


def by_group(advantages, rewards: Tensor, group_ids: Sequence) -> Tensor:
    """Apply ``advantages(score, mask)`` to (groups, samples); ids are any labels in any order."""
    members: dict = {}
    for row, label in enumerate(group_ids):
        members.setdefault(label, []).append(row)
    most = max(map(len, members.values()), default=0)
    rows = torch.tensor([m + [m[0]] * (most - len(m)) for m in members.values()]).reshape(-1, most).long()
    mask = torch.tensor([[j < len(m) for j in range(most)] for m in members.values()]).reshape(-1, most).bool()
    out = torch.zeros_like(masking.upcast(rewards))
    out[rows[mask]] = advantages(rewards[rows], mask)[mask]
    return out


@op
def grpo_advantages(*, rewards, group_ids, ddof=1, eps=0.0, scale_std=True):
    def scaled(score, mask):
        return groups.grpo_advantages(score, mask, eps=eps, ddof=ddof)

    return {"advantages": by_group(scaled if scale_std else groups.centered_advantages, rewards, group_ids)}


@op
def rloo_advantages(*, rewards, group_ids):
    return {"advantages": by_group(groups.rloo_advantages, rewards, group_ids)}


@op
def reinforce_pp_advantages(*, token_rewards, gamma, mask=None, ddof=0, eps=1e-8):
    mask = everything(token_rewards, mask)
    last, zero = masking.last_step(mask), torch.zeros_like(token_rewards)
    to_go = returns.discounted_returns(token_rewards, zero, terminated=last, ended=last, gamma=gamma, mask=mask)
    advantages = groups.reinforce_pp_advantages(token_rewards, mask, gamma=gamma, eps=eps, ddof=ddof)
    return {"returns": to_go, "advantages": advantages}


@op
def grpo_loss(
    *, logp_new, logp_old, ref_logp, advantages, clip_low, clip_high, beta, mask=None, agg="token_mean", const=None,
    dual_clip=math.inf,
):  # fmt: skip
    mask = everything(logp_new, mask)
    log_ratio = importance.log_ratio(logp_new, logp_old, mask)
    advantage = masking.select(per_step(advantages, logp_new), mask)
    terms = objectives.clipped_surrogate(log_ratio, advantage, clip=(clip_low, clip_high), dual_clip=dual_clip)
    penalty = kl.k3(masking.select(logp_new, mask), masking.select(ref_logp, mask))
    loss = -aggregate(terms - beta * penalty, mask, agg, const)
    return {"loss": loss, "mean_kl": masking.masked_mean(penalty, mask)}


@op
def dpo_loss(
    *, policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta, label_smoothing=0.0, variant="dpo"
):
    pairs = (policy_chosen, policy_rejected, ref_chosen, ref_rejected)
    if variant == "ipo":
        terms = preferences.ipo_loss(*pairs, beta=beta)
    else:
        terms = preferences.dpo_loss(*pairs, beta=beta, label_smoothing=label_smoothing)
    chosen = preferences.implicit_reward(policy_chosen, ref_chosen, beta=beta)
    rejected = preferences.implicit_reward(policy_rejected, ref_rejected, beta=beta)
    right = (chosen > rejected).to(terms.dtype)
    return {
        "loss": masking.masked_mean(terms),
        "chosen_rewards": chosen,
        "rejected_rewards": rejected,
        "accuracy": masking.masked_mean(right),
    }


# --- TRPO, schedules -------------------------------------------------------------------------------------------------


@op
def conjugate_gradient(*, A, b, iters):
    return {"x": trust_region.conjugate_gradient(lambda v: A @ v, b, iters=iters)}


@op
def natural_step(*, F, g, delta, damping=0.0):
    step = trust_region.natural_step(lambda v: F @ v, g, delta=delta, damping=damping, iters=4 * len(g))
    return {"step": step, "quad_kl": step @ F @ step / 2, "expected_improvement": g @ step}


@op
def fisher_vector_product(*, logits, v, damping=0.0):
    return {"fvp": trust_region.categorical_fisher_product(logits, v, damping=damping)}


@op
def line_search_select(*, kls, improvements, delta):
    j = trust_region.accept_step(kls, improvements, delta=delta)
    return {"index": -1, "scale": 0.0} if j is None else {"index": j, "scale": 0.5**j}


@op
def lr_warmup_cosine(*, base_lr, warmup, total, steps, min_lr=0.0, convention="hf"):
    start = {"hf": 0.0, "nanogpt": 1 / (warmup + 1)}[convention]
    shape = {"total": total, "warmup": warmup, "start": start, "floor": min_lr / base_lr}
    return {"lrs": [base_lr * schedules.warmup_cosine(step, **shape) for step in steps]}


# --- evaluation, exact bandit, memory --------------------------------------------------------------------------------


@op
def pass_at_k(*, n, c, k):
    return {"pass_at_k": passk.pass_at_k(n, c, k=k)}


@op
def pass_at_k_mean(*, n, c, k):
    each = [passk.pass_at_k(n_task, c_task, k=k) for n_task, c_task in zip(n, c, strict=True)]
    return {"per_task": each, "mean": passk.mean_pass_at_k(n, c, k=k)}


@op
def pg_moments(*, probs, rewards, baseline=0.0):
    m = mdp.gradient_moments(probs, rewards, baseline=baseline)
    return {
        "mean_grad": m.mean,
        "trace_var": m.trace_variance,
        "value_baseline": m.value_baseline,
        "optimal_baseline": m.optimal_baseline,
    }


@op
def welch_t(*, a, b):
    return statistics.welch_t_test(a, b)._asdict()


@op
def cohens_d(*, a, b):
    return {"d": statistics.cohens_d(a, b), "hedges_g_approx": statistics.hedges_g(a, b)}


@op
def bootstrap_ci(*, data, indices, alpha):
    means = statistics.bootstrap_statistics(data, indices)
    low, high = statistics.percentile_interval(means, alpha=alpha)
    return {"low": low, "high": high, "boot_mean": means.mean()}


@op
def zero_memory(*, params, dp, stage, k=12):
    size = memory.zero_bytes(params, devices=dp, stage=stage, optimizer_bytes=k)
    return {"bytes": size, "gb": size / 1e9}
