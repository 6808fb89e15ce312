"""Transfer exercise of notebook 09: more than two answers, ranked."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import permutations

import torch
from torch import Tensor

from ppo_lab.core.preferences import bradley_terry_loss
from ppo_lab.course.exercises.exercise import Case, Exercise, Law, Wrong
from ppo_lab.course.exercises.toys import Toys

wrong = Wrong()
PAIR, ORDERS, LEVEL, LIFTED, FAR = "two answers", "all orders of four", "no difference", "lifted by seven", "far apart"


def _law(name: str, holds: Callable[[Case, Tensor], object]) -> Callable[[Sequence[Case], Sequence[Tensor]], bool]:
    """A law about the case of that name, where the shape is right."""
    return lambda cases, values: all(
        x.shape == case.arguments["scores"].shape[:1] and bool(holds(case, x))
        for case, x in zip(cases, values, strict=True) if case.name == name
    )  # fmt: skip


def _near(x: Tensor, y: Tensor) -> bool:
    return torch.allclose(x, y.double(), rtol=1e-6, atol=1e-6)


def _lifted(cases: Sequence[Case], values: Sequence[Tensor]) -> bool:
    found = {case.name: x for case, x in zip(cases, values, strict=True)}
    return found[ORDERS].shape == found[LIFTED].shape and _near(found[ORDERS], found[LIFTED])


LAWS = (
    Law("One loss a prompt, (B,).",
        lambda cases, values: all(
            x.shape == c.arguments["scores"].shape[:1] for c, x in zip(cases, values, strict=True))),
    Law("Of two answers it is the loss of a pair, −log σ(r_w − r_l).",
        _law(PAIR, lambda c, x: _near(x, bradley_terry_loss(*c.arguments["scores"].unbind(-1))))),
    Law("The probabilities e^(−loss) of all orders of the same answers add up to 1.",
        _law(ORDERS, lambda c, x: abs(float((-x).exp().sum()) - 1) < 1e-6)),
    Law("Where all scores are equal, every order of K answers has probability 1/K!.",
        _law(LEVEL, lambda c, x: _near(x, torch.tensor(math.lgamma(c.arguments["scores"].shape[-1] + 1)).expand(
            len(x))))),
    Law("Adding the same number to all scores changes nothing.", _lifted),
    Law("It stays finite where scores are hundreds apart.", _law(FAR, lambda c, x: x.isfinite().all())),
)  # fmt: skip


def right(scores: Tensor) -> Tensor:
    """Plackett–Luce; used to derive wrong answers only."""
    return (scores.flip(-1).logcumsumexp(-1).flip(-1) - scores).sum(-1)


@wrong("every pair on its own")
def all_pairs(scores: Tensor) -> Tensor:
    """Sum of the pairs' losses."""
    first, second = torch.triu_indices(scores.shape[-1], scores.shape[-1], 1)
    return bradley_terry_loss(scores[:, first], scores[:, second]).sum(-1)


@wrong("nobody leaves")
def nobody_leaves(scores: Tensor) -> Tensor:
    """Softmax over all answers at each place."""
    return -scores.log_softmax(-1)[:, :-1].sum(-1)


@wrong("only the winner")
def only_the_winner(scores: Tensor) -> Tensor:
    """−log softmax of the first."""
    return -scores.log_softmax(-1)[:, 0]


@wrong("only neighbours")
def only_neighbours(scores: Tensor) -> Tensor:
    """Losses of adjacent pairs."""
    return bradley_terry_loss(scores[:, :-1], scores[:, 1:]).sum(-1)


@wrong("worst first")
def worst_first(scores: Tensor) -> Tensor:
    """Order turned round."""
    return right(scores.flip(-1))


@wrong("averaged over the places")
def averaged(scores: Tensor) -> Tensor:
    """Mean in place of sum."""
    return right(scores) / scores.shape[-1]


@wrong("one number for all")
def one_for_all(scores: Tensor) -> Tensor:
    """Summed over prompts."""
    return right(scores).sum()


@wrong("weights between 0 and 1")
def squashed(scores: Tensor) -> Tensor:
    """σ(score) in place of e^score."""
    return right(torch.nn.functional.logsigmoid(scores))


@wrong("exponentials by hand")
def by_hand(scores: Tensor) -> Tensor:
    """exp overflows, and inf / inf is NaN."""
    weight = scores.exp()
    return -(weight / weight.flip(-1).cumsum(-1).flip(-1)).log().sum(-1)


def cases(seed: int) -> Sequence[Case]:
    """Pairs; all 24 orders of four answers, and the same lifted; equal scores; scores far apart."""
    toys = Toys("ranking_loss", seed)
    four = toys.away(4)
    orders = torch.stack([four[list(order)] for order in permutations(range(4))])
    far = torch.tensor([[800.0, 300.0, -400.0], [-500.0, 0.0, 900.0]]).double()
    given = {PAIR: toys.away(3, 2), ORDERS: orders, LEVEL: torch.full((2, 5), 0.3).double(), LIFTED: orders + 7,
             FAR: far}  # fmt: skip
    return [Case(name, {"scores": scores}) for name, scores in given.items()]


RANKING_LOSS = Exercise(
    name="ranking_loss",
    notebook="09_sft_and_reward_model",
    minutes=12,
    lines=2,
    heading="ranking_loss(scores)",
    task="A rater has ranked K answers to each prompt. scores (B, K) are the model's, the rater's favourite first. The "
    "ranking is a race: each place goes to one of those still left, with probability e^score over the sum of e^score "
    "of those left. Return −log of the ranking's probability, (B,).",
    laws=LAWS,
    cases=cases,
    hints=(
        "The first place is a softmax over all K; the second is one over the K − 1 that are left.",
        "At place i the sum runs over i, i + 1, …, K: a cumulative sum from the end.",
        "logcumsumexp adds in log space from the left; flip before and after.",
    ),
    mutants=tuple(wrong),
)
