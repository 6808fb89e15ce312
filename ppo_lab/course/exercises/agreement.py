"""Exercise of notebook 09: do two raters agree more than by chance?"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ppo_lab.course.exercises.exercise import Case, Exercise, Wrong
from ppo_lab.course.exercises.toys import Toys
from ppo_lab.rlhf.reward_model.labels import cohens_kappa

agreeing = Wrong()


def kappa(a: Tensor, b: Tensor) -> float:
    """Cohen's κ of two bool labels a pair."""
    return cohens_kappa(a, b)


def _chance(a: Tensor, b: Tensor) -> tuple[float, float]:
    """(observed agreement, agreement by chance)."""
    p, q = float(a.double().mean()), float(b.double().mean())
    return float((a == b).double().mean()), p * q + (1 - p) * (1 - q)


@agreeing("This is the share of equal labels. Two coins agree on half of the pairs: take away what chance gives.")
def plain_agreement(a: Tensor, b: Tensor) -> float:
    """p_o."""
    return _chance(a, b)[0]


@agreeing("You take chance to be ½. Raters who both mostly say yes agree more often than that by chance.")
def chance_is_a_half(a: Tensor, b: Tensor) -> float:
    """2 p_o − 1."""
    return 2 * _chance(a, b)[0] - 1


@agreeing("Two raters can also agree on False by chance: add (1 − p)(1 − q).")
def only_true_by_chance(a: Tensor, b: Tensor) -> float:
    """p_e = p q."""
    chance = float(a.double().mean() * b.double().mean())
    return (_chance(a, b)[0] - chance) / (1 - chance)


@agreeing("You subtract chance but do not divide: perfect agreement must give 1.")
def not_divided(a: Tensor, b: Tensor) -> float:
    """p_o − p_e."""
    observed, chance = _chance(a, b)
    return observed - chance


@agreeing("Divide by 1 − p_e, the most that can be had beyond chance, not by p_e.")
def divided_by_chance(a: Tensor, b: Tensor) -> float:
    """(p_o − p_e) / p_e."""
    observed, chance = _chance(a, b)
    return (observed - chance) / chance


@agreeing("Chance comes from both raters' shares; yours uses the first one's twice.")
def one_rater_twice(a: Tensor, b: Tensor) -> float:
    """p² + (1 − p)²."""
    p, observed = float(a.double().mean()), _chance(a, b)[0]
    chance = p * p + (1 - p) * (1 - p)
    return (observed - chance) / (1 - chance)


@agreeing("Both False is agreement too; you count the pairs on which both say True.")
def both_true(a: Tensor, b: Tensor) -> float:
    """p_o = share of a & b."""
    chance = _chance(a, b)[1]
    return (float((a & b).double().mean()) - chance) / (1 - chance)


def kappa_cases(seed: int) -> Sequence[Case]:
    """Two raters who say True half of the time, then two who say it nine times in ten and six in ten."""
    toys = Toys("kappa", seed)
    order = toys.normal(40).argsort()
    half = torch.arange(40) < 20
    other = half.clone()
    other[torch.tensor([1, 7, 22, 39])] ^= True  # each takes two Trues for False, and two the other way
    often = torch.arange(40) < 36
    seldom = often & (torch.arange(40) >= 10 + int(toys.away(1).abs() * 4))
    seldom[38] = True
    return (Case("raters in balance", {"a": half[order], "b": other[order]}),
            Case("raters who like to say yes", {"a": often[order], "b": seldom[order]}))  # fmt: skip


KAPPA = Exercise(
    name="kappa",
    notebook="09_sft_and_reward_model",
    minutes=6,
    lines=4,
    task="Two raters label the same N pairs, a and b (N,) bool. Return Cohen's κ, one number: (p_o − p_e) / (1 − p_e). "
    "p_o is the share of equal labels; p_e is the share two raters would agree on by chance, each keeping its own "
    "share of True.",
    answer="""\
def kappa(a, b):
    p, q = a.double().mean(), b.double().mean()
    observed = (a == b).double().mean()
    chance = p * q + (1 - p) * (1 - q)
    return (observed - chance) / (1 - chance)
""",
    reference=kappa,
    parts=(cohens_kappa,),
    cases=kappa_cases,
    hints=(
        "How often do two coins agree? And two coins that both show True nine times in ten?",
        "By chance both say True with p·q, and both say False with (1 − p)(1 − q).",
        "(a == b).double().mean() for p_o; then the formula.",
    ),
    mutants=tuple(agreeing),
)
