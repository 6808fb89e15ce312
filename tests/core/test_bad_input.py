"""Every refusal names the argument, the rule, the value it got and the fix."""

from __future__ import annotations

import re

import pytest
import torch

from ppo_lab.core import (
    averages,
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
    values,
)
from ppo_lab.evaluate import passk, statistics
from ppo_lab.exact import mdp
from ppo_lab.rlhf import rewards
from ppo_lab.scale import memory

X, ROW, FLAG = torch.zeros(2, 3), torch.zeros(2), torch.zeros(2, 3, dtype=torch.bool)
CUTS = {"terminated": FLAG, "ended": FLAG}
FOUR = (ROW, ROW, ROW, ROW)
BETA = {"beta": 1.0, "target": 0.01, "rule": "step_1_5"}

REFUSED = {
    "a mask of numbers": (lambda: masking.masked_mean(X, X), "mask must be bool .* got torch.float32; use mask.bool"),
    "a mask of rows": (lambda: masking.select(X, FLAG[:, 0]), r"mask must have the shape of x, \(2, 3\).* got \(2,\)"),
    "a mask too long": (lambda: masking.masked_sum(X, FLAG[:, :2]), r"mask must .* got \(2, 2\)"),
    "a last step of numbers": (lambda: masking.last_step(X), "mask must be bool"),
    "ddof": (lambda: masking.masked_var(X, ddof=-1), r"ddof must be in \[0, inf\], got -1; use 0"),
    "eps": (lambda: masking.standardize(X, eps=-1), "eps must be in .* got -1"),
    "reduction": (
        lambda: masking.step_weights(FLAG, "mean"),
        "reduction must be one of .*token_mean, got 'mean'; pick",
    ),
    "no length": (
        lambda: masking.step_weights(FLAG, "fixed_length"),
        "length must be > 0 .* got None for fixed_length",
    ),
    "length 0": (lambda: masking.step_weights(FLAG, "fixed_length", length=0), "length must be > 0 .* got 0"),
    "a length too many": (lambda: masking.step_weights(FLAG, length=3), "length must be .* got 3 for token_mean"),
    "flags of numbers": (
        lambda: returns.gae(X, X, X, terminated=X, ended=FLAG, gamma=1, lam=1),
        "terminated must be bool",
    ),
    "td flags": (lambda: returns.td_errors(X, X, X, terminated=X, gamma=1), "terminated must be bool"),
    "gamma": (
        lambda: returns.gae(X, X, X, **CUTS, gamma=1.5, lam=1),
        r"gamma must be in \[0, 1\], got 1.5; a discount",
    ),
    "gamma of returns": (lambda: returns.discounted_returns(X, X, **CUTS, gamma=-0.1), "gamma must be in"),
    "lam": (lambda: returns.gae(X, X, X, **CUTS, gamma=1, lam=2), r"lam must be in \[0, 1\], got 2; 0 is"),
    "nan": (lambda: returns.gae(X, X, X, **CUTS, gamma=float("nan"), lam=1), "gamma must be in .* got nan"),
    "n": (lambda: returns.n_step_advantages(X, X, X, **CUTS, gamma=1, n=0), "n must be in .* got 0; 1 is"),
    "shapes": (
        lambda: returns.gae(X, X[:, :2], X, **CUTS, gamma=1, lam=1),
        r"value must have .* reward, \(2, 3\), got \(2, 2",
    ),
    "values ahead": (lambda: returns.next_values(X, FLAG[0]), "mask must have the shape of value"),
    "other log-probs": (lambda: importance.log_ratio(X, X[:, :1]), "old_logp must have the shape of logp"),
    "a row of advantages": (
        lambda: objectives.surrogate(X, ROW),
        r"advantage must .* got \(2,\); use advantage\[:, None\]",
    ),
    "a square batch": (lambda: objectives.clipped_surrogate(torch.zeros(2, 2), ROW, clip=0.2), "advantage must"),
    "active": (lambda: objectives.active_clip_fraction(X, ROW, clip=0.2), "advantage must"),
    "reinforce": (lambda: objectives.reinforce(X, ROW), "weight must"),
    "penalty": (lambda: objectives.kl_penalized(X, X, ROW, beta=1), "kl must"),
    "clip": (lambda: objectives.clip_fraction(X, clip=-0.2), r"clip must be in \[0, inf\], got -0.2; 0.2 is usual"),
    "dual clip": (
        lambda: objectives.clipped_surrogate(X, X, clip=0.2, dual_clip=0.5),
        "dual_clip must be .* got 0.5; 3",
    ),
    "value clip": (lambda: values.clipped_value_error(X, X, X, clip=-1), "clip must be in"),
    "targets": (lambda: values.value_error(X, ROW), "target must have the shape of value"),
    "old values": (lambda: values.clipped_value_error(X, ROW, X, clip=1), "old_value must have the shape"),
    "explained": (lambda: values.explained_variance(X, ROW), "target must have the shape"),
    "float actions": (
        lambda: distributions.categorical_logp(X, ROW),
        "action must hold one integer .* got torch.float32",
    ),
    "actions": (
        lambda: distributions.categorical_logp(X, ROW[:1].long()),
        r"action must .* got torch.int64 \(1,\); pass",
    ),
    "gaussian": (lambda: distributions.gaussian_logp(X, X, ROW), "action must have the shape of mean"),
    "logits": (lambda: kl.categorical_kl(X, X[:, :2]), "logits_q must have the shape of logits_p"),
    "means": (lambda: kl.gaussian_kl(X, X, ROW, X), "mean_q must have the shape of mean_p"),
    "reference": (lambda: kl.k3(X, ROW), "ref_logp must have the shape of logp"),
    "rule": (
        lambda: kl.next_beta(kl=0.1, **{**BETA, "rule": "paper"}),
        "rule must be one of double_or_halve, .* got 'paper'",
    ),
    "kl": (lambda: kl.next_beta(kl=float("nan"), **BETA), "kl must be .* got nan; find where"),
    "target": (lambda: kl.next_beta(kl=0.1, **{**BETA, "target": 0}), "target must be > 0, got 0; 0.01 nats"),
    "bounds": (lambda: kl.next_beta(kl=0.1, **BETA, bounds=(2, 1)), r"bounds\[1\] must be in \[2, inf\], got 1; give"),
    "horizon": (
        lambda: kl.next_beta(kl=0.1, **{**BETA, "rule": "proportional"}),
        "horizon and n_steps must be > 0 .* None",
    ),
    "rate": (lambda: kl.next_clip(0.2, 0.1, target=0.01, rate=0), "rate must be > 0, got 0; below 0 the clip would"),
    "kl of a clip": (lambda: kl.next_clip(0.2, float("nan"), target=0.01, rate=1), "kl must be .* got nan; find"),
    "clip bounds": (
        lambda: kl.next_clip(0.2, 0.1, target=0.01, rate=1, bounds=(2, 1)),
        r"bounds\[1\] must be in \[2, inf\], got 1; give",
    ),
    "gained": (lambda: trust_region.next_delta(0.1, float("nan"), 1), "gained must be .* got nan; find"),
    "delta bounds": (lambda: trust_region.next_delta(0.1, 1, 1, bounds=(2, 1)), r"bounds\[1\] must be in \[2, inf\]"),
    "pairs": (lambda: preferences.bradley_terry_loss(ROW, X), "rejected must have the shape of chosen"),
    "margins": (lambda: preferences.bradley_terry_loss(X, X, margin=ROW), "margin must"),
    "smoothing": (lambda: preferences.bradley_terry_loss(X, X, label_smoothing=2), "label_smoothing must be in"),
    "centering": (lambda: preferences.score_centering(ROW, X), "rejected must"),
    "dpo": (lambda: preferences.dpo_loss(ROW, ROW, X, ROW, beta=1), "ref_logp must"),
    "ipo": (lambda: preferences.ipo_loss(*FOUR, beta=0), "beta must be in .* got 0; 0.1 is usual"),
    "grpo eps": (lambda: groups.grpo_advantages(X, eps=-1), "eps must be in"),
    "iters": (lambda: trust_region.conjugate_gradient(lambda v: v, ROW, iters=-1), "iters must be in .* got -1"),
    "delta": (lambda: trust_region.natural_step(lambda v: v, ROW, delta=-1), "delta must be in"),
    "damping": (lambda: trust_region.natural_step(lambda v: v, ROW, delta=1, damping=-1), "damping must be in"),
    "fisher": (lambda: trust_region.categorical_fisher_product(X, ROW), r"v must be \(3,\), .* got \(2,\); flatten"),
    "total": (lambda: schedules.linear_anneal(1, total=0), "total must be in .* got 0"),
    "warmup": (lambda: schedules.warmup_cosine(1, total=5, warmup=6), r"warmup must be in \[0, 5\], got 6; shorten"),
    "start": (lambda: schedules.warmup_cosine(1, total=5, warmup=2, start=-1), "start must be in"),
    "floor": (lambda: schedules.warmup_cosine(1, total=5, warmup=2, floor=2), "floor must be in"),
    "period": (lambda: schedules.periodic_restart(1, period=0), "period must be in"),
    "decay": (lambda: schedules.periodic_restart(1, period=2, decay=2), "decay must be in"),
    "stopped": (lambda: rewards.final_score(ROW, ROW), "stopped must be bool"),
    "stops": (lambda: rewards.final_score(ROW, FLAG), "stopped must have the shape of score"),
    "missing eos": (
        lambda: rewards.final_score(ROW, FLAG[:, 0], missing_eos="drop"),
        "missing_eos must be one of .* 'drop'",
    ),
    "eos penalty": (
        lambda: rewards.final_score(ROW, FLAG[:, 0], penalty=-1),
        "penalty must be .* give it as a positive",
    ),
    "score clip": (
        lambda: rewards.final_score(ROW, FLAG[:, 0], clip=(1, -1)),
        r"clip\[1\] must be in \[1, inf\], got -1",
    ),
    "lengths": (lambda: rewards.length_normalized(ROW, ROW[:1]), "length must have the shape of score"),
    "estimator": (
        lambda: rewards.token_rewards(ROW, X, X, FLAG, beta=1, estimator="k4"),
        "estimator must be .* got 'k4'",
    ),
    "placement": (
        lambda: rewards.token_rewards(ROW, X, X, FLAG, beta=1, placement="first"),
        "placement must be .* 'first'",
    ),
    "scores": (lambda: rewards.token_rewards(X, X, X, FLAG, beta=1), r"score must have the shape of mask\[:, 0\]"),
    "a rule of ensembles": (lambda: averages.ensemble_score(X, rule="median"), "rule must be one of .* got 'median'"),
    "pessimism": (lambda: averages.ensemble_score(X, rule="min", k=-1), r"k must be in \[0, inf\], got -1; 1 is usual"),
    "decay of a mean": (lambda: averages.moving_average(X, X, decay=1.5), r"decay must be in \[0, 1\], got 1.5; 0.9"),
    "averages of rows": (lambda: averages.moving_average(X, ROW, decay=1), "x must have the shape of average"),
    "arms": (lambda: mdp.gradient_moments(ROW, X[0], baseline=0), "reward must have the shape of probs"),
    "more right than drawn": (lambda: passk.pass_at_k(5, 6, k=1), "c must be a whole number ≥ 0 and ≤ 5.* got 6"),
    "k above n": (lambda: passk.pass_at_k(5, 1, k=6), "k must be a whole number ≥ 1 and ≤ 5.* got 6; draw more"),
    "half an answer": (lambda: passk.pass_at_k(5, 1.5, k=1), "c must be a whole number"),
    "no tasks": (lambda: passk.mean_pass_at_k([], [], k=1), "n must hold at least one task"),
    "one run": (
        lambda: statistics.welch_t_test([1.0], [1.0, 2.0]),
        r"a must be a list of at least 2 .* got shape \(1,\)",
    ),
    "a table": (lambda: statistics.cohens_d([1.0, 2.0], [[1.0, 2.0]]), "b must be a list"),
    "alpha": (lambda: statistics.percentile_interval([1.0], alpha=0), r"alpha must be in \(0, 1\), got 0; 0.05"),
    "resamples": (lambda: statistics.bootstrap_ci([1.0], resamples=0, seed=0), "resamples must be ≥ 1, got 0"),
    "stage": (lambda: memory.zero_bytes(1, devices=1, stage=4), "stage must be 0, 1, 2 or 3, got 4; 0 is plain"),
    "devices": (lambda: memory.zero_bytes(1, devices=0, stage=1), "devices must be ≥ 1, got 0"),
    "parameters": (lambda: memory.zero_bytes(-1, devices=1, stage=1), "parameters and optimizer_bytes must .* got -1"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    call, message = REFUSED[name]
    with pytest.raises(ValueError) as error:
        call()
    assert re.search(message, str(error.value)) and "; " in str(error.value), str(error.value)
