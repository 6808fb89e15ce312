"""Exercises of notebook 03: the ratio in log space, how many samples are left, and an estimate of the KL."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ppo_lab.core.importance import effective_sample_size, log_ratio
from ppo_lab.core.kl import k1, k2, k3
from ppo_lab.core.masking import select
from ppo_lab.course.exercises.exercise import Case, Exercise, Wrong
from ppo_lab.course.exercises.toys import MASK, Toys, spoiled

ratio = Wrong()


@ratio("Turned round: the new policy is the numerator, so its log-probability comes first.")
def turned_round(logp: Tensor, old_logp: Tensor, mask: Tensor) -> Tensor:
    """log π_old − log π."""
    return -log_ratio(logp, old_logp, mask)


@ratio("That is the ratio. Its logarithm is asked for: no exp yet.")
def exponentiated(logp: Tensor, old_logp: Tensor, mask: Tensor) -> Tensor:
    """exp too early."""
    return log_ratio(logp, old_logp, mask).exp()


@ratio("A quotient of two probabilities is 0/0 once both underflow. Subtract the logs and never leave log space.")
def quotient(logp: Tensor, old_logp: Tensor, mask: Tensor) -> Tensor:
    """log(p / q)."""
    return (select(logp, mask).exp() / select(old_logp, mask).exp()).log()


@ratio("You divide the log-probabilities. The log of a quotient is a difference of logs.")
def divided(logp: Tensor, old_logp: Tensor, mask: Tensor) -> Tensor:
    """log p / log q."""
    return torch.where(mask, logp / old_logp, 0.0)


@ratio("Padding still holds what stood there. Where the mask is False the log-ratio is 0: the ratio is 1.")
def mask_dropped(logp: Tensor, old_logp: Tensor, mask: Tensor) -> Tensor:
    """No mask."""
    return logp - old_logp


@ratio("You multiply by the mask, and 0 × NaN is NaN: choose with torch.where, or select before you subtract.")
def multiplied(logp: Tensor, old_logp: Tensor, mask: Tensor) -> Tensor:
    """The line that most code has."""
    return (logp - old_logp) * mask


@ratio("Padding gets a 1. A ratio of 1 has the logarithm 0.")
def padded_with_one(logp: Tensor, old_logp: Tensor, mask: Tensor) -> Tensor:
    """1 for 0."""
    return log_ratio(logp, old_logp, mask).masked_fill(~mask, 1.0)


@ratio("The values are right, but no gradient reaches the new policy: something was detached on the way.")
def detached(logp: Tensor, old_logp: Tensor, mask: Tensor) -> Tensor:
    """No graph."""
    return log_ratio(logp.detach(), old_logp, mask)


@ratio("You sum over the steps. One number a step is asked for.")
def summed(logp: Tensor, old_logp: Tensor, mask: Tensor) -> Tensor:
    """The sequence's."""
    return log_ratio(logp, old_logp, mask).sum(-1)


def ratio_cases(seed: int) -> Sequence[Case]:
    """Plain numbers; log-probs so small that the probabilities are 0; NaN in the padding."""
    toys = Toys("log_ratio", seed)
    logp = toys.logp(2, 6)
    old = logp + toys.away(2, 6)
    tiny = logp - 900
    return (
        Case("log-probs", {"logp": logp, "old_logp": old, "mask": MASK}),
        Case("tiny probabilities", {"logp": tiny, "old_logp": tiny + toys.away(2, 6), "mask": MASK}),
        Case("NaN in the padding", {"logp": spoiled(logp, MASK), "old_logp": spoiled(old, MASK), "mask": MASK}),
    )


LOG_RATIO = Exercise(
    name="log_ratio",
    notebook="03_importance_sampling",
    minutes=6,
    lines=1,
    task="Return the log of the ratio π/π_old for every step, shape (B, T), and 0 where mask is False. Probabilities "
    "may be too small for a float; padding may hold NaN.",
    answer="def log_ratio(logp, old_logp, mask):\n    return torch.where(mask, logp - old_logp, 0.0)\n",
    reference=log_ratio,
    parts=(select,),
    cases=ratio_cases,
    gradient_of=("logp",),
    hints=(
        "What is the logarithm of a quotient?",
        "Padding may hold NaN, and NaN times 0 is NaN. How else can you put a 0 there?",
        "torch.where(mask, a, b) takes a where mask is True.",
    ),
    mutants=tuple(ratio),
)

# --- effective sample size -------------------------------------------------------------------------------------------

size = Wrong()


@size("That is its share of N. The number of samples is asked for.")
def as_a_share(log_ratio: Tensor) -> Tensor:
    """ESS / N."""
    return effective_sample_size(log_ratio) / log_ratio.numel()


@size("Turned upside down: the square of the sum goes above, the sum of the squares below.")
def upside_down(log_ratio: Tensor) -> Tensor:
    """1 / ESS."""
    return 1 / effective_sample_size(log_ratio)


@size("exp overflows where a log-ratio is large. Take the largest one off first: the result does not change.")
def overflows(log_ratio: Tensor) -> Tensor:
    """Weights as they are."""
    w = log_ratio.exp()
    return w.sum().square() / w.square().sum()


@size("exp is missing: these are log-ratios, and weights are ratios.")
def no_exponential(log_ratio: Tensor) -> Tensor:
    """Of the logs."""
    return log_ratio.sum().square() / log_ratio.square().sum()


@size("The square of the sum is asked for, you square before you sum on both sides.")
def squares_only(log_ratio: Tensor) -> Tensor:
    """Always 1."""
    w = (log_ratio - log_ratio.max()).exp()
    return w.square().sum() / w.square().sum()


@size("You forgot to square the weights below.")
def not_squared(log_ratio: Tensor) -> Tensor:
    """Σ w for Σ w²."""
    w = log_ratio.exp()
    return w.sum().square() / w.sum()


@size("You forgot to square the sum above.")
def sum_not_squared(log_ratio: Tensor) -> Tensor:
    """Σ w / Σ w²."""
    w = (log_ratio - log_ratio.max()).exp()
    return w.sum() / w.square().sum()


@size("That is one over the largest normalised weight: close, but it looks at a single sample.")
def by_the_largest(log_ratio: Tensor) -> Tensor:
    """1 / max w̄."""
    return 1 / log_ratio.softmax(-1).max()


def size_cases(seed: int) -> Sequence[Case]:
    """Some spread; and log-ratios whose exp overflows."""
    toys = Toys("effective_sample_size", seed)
    x = toys.away(8)
    return Case("eight samples", {"log_ratio": x}), Case("large log-ratios", {"log_ratio": 900 + toys.away(8)})


SAMPLE_SIZE = Exercise(
    name="effective_sample_size",
    notebook="03_importance_sampling",
    minutes=8,
    lines=2,
    task="Return (Σ w)² / Σ w² for the weights w = exp(log_ratio), shape (N,): one number. It must not overflow.",
    answer="""\
def effective_sample_size(log_ratio):
    w = (log_ratio - log_ratio.max()).exp()
    return w.sum() ** 2 / (w ** 2).sum()
""",
    reference=effective_sample_size,
    cases=size_cases,
    hints=(
        "All weights times the same number: does the result change?",
        "So you may subtract the largest log-ratio before you take exp.",
        "Then no weight is above 1.",
    ),
    mutants=tuple(size),
)

# --- k3 --------------------------------------------------------------------------------------------------------------

third = Wrong()


@third("That is k1: unbiased too, but of either sign, and noisy.")
def first(logp: Tensor, ref_logp: Tensor) -> Tensor:
    """k1."""
    return k1(logp, ref_logp)


@third("That is k2: never negative, but biased.")
def second(logp: Tensor, ref_logp: Tensor) -> Tensor:
    """k2."""
    return k2(logp, ref_logp)


@third("Turned round: the samples are π's, so D is log π − log π_ref, and it is −D that is exponentiated.")
def swapped(logp: Tensor, ref_logp: Tensor) -> Tensor:
    """k3 of the other order."""
    return k3(ref_logp, logp)


@third("The sign in exp: E[e^{−D}] is 1 under samples of π, E[e^{D}] is not, so yours is biased.")
def wrong_sign(logp: Tensor, ref_logp: Tensor) -> Tensor:
    """e^D − 1 + D."""
    d = k1(logp, ref_logp)
    return torch.expm1(d) + d


@third("D is missing at the end: e^{−D} − 1 averages to 0, whatever the policies are.")
def no_difference(logp: Tensor, ref_logp: Tensor) -> Tensor:
    """e^{−D} − 1."""
    return torch.expm1(-k1(logp, ref_logp))


@third("The − 1 is missing: for equal policies an estimate of the KL must be 0.")
def no_one(logp: Tensor, ref_logp: Tensor) -> Tensor:
    """e^{−D} + D."""
    return k3(logp, ref_logp) + 1


@third("You average. One number a step is asked for.")
def averaged(logp: Tensor, ref_logp: Tensor) -> Tensor:
    """Mean."""
    return k3(logp, ref_logp).mean()


@third("That is the size of D: never negative, but no estimate of the KL.")
def absolute(logp: Tensor, ref_logp: Tensor) -> Tensor:
    """|k1|."""
    return k1(logp, ref_logp).abs()


def third_cases(seed: int) -> Sequence[Case]:
    """Two rows, D of either sign."""
    toys = Toys("k3", seed)
    logp = toys.logp(2, 4)
    return (Case("D of either sign", {"logp": logp, "ref_logp": logp + toys.away(2, 4)}),)


K3 = Exercise(
    name="k3",
    notebook="03_importance_sampling",
    minutes=6,
    lines=2,
    task="Return e^{−D} − 1 + D for every step, D = log π − log π_ref: an estimate of KL(π‖π_ref) from samples of π, "
    "here the policy that sampled (above: π_old). Shape (B, T).",
    answer="def k3(logp, ref_logp):\n    D = logp - ref_logp\n    return torch.exp(-D) - 1 + D\n",
    reference=k3,
    parts=(k1,),
    cases=third_cases,
    gradient_of=("logp",),
    hints=(
        "First D, with the policy that was sampled from in front.",
        "Which sign makes E[exp(± D)] equal to 1, under samples of π?",
        "If both policies agree, every step must give exactly 0.",
    ),
    mutants=tuple(third),
)
