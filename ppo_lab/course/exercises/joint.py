"""Transfer exercise of notebook 01: several choices in one step, and the one log-probability that they share."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ppo_lab.core.distributions import categorical_logp
from ppo_lab.course.exercises.exercise import Case, Exercise, Law, Wrong
from ppo_lab.course.exercises.toys import Toys

PAIRS = torch.cartesian_prod(torch.arange(3), torch.arange(3))[None]  # (1, 9, 2): everything that two choices can do

wrong = Wrong()


@wrong("one number a choice")
def not_joined(logits: Tensor, action: Tensor) -> Tensor:
    """No sum."""
    return categorical_logp(logits, action)


@wrong("mean of the choices")
def averaged(logits: Tensor, action: Tensor) -> Tensor:
    """mean."""
    return categorical_logp(logits, action).mean(-1)


@wrong("probabilities added")
def probabilities_added(logits: Tensor, action: Tensor) -> Tensor:
    """log Σ π."""
    return categorical_logp(logits, action).exp().sum(-1).log()


@wrong("logits added, not normalised")
def logits_added(logits: Tensor, action: Tensor) -> Tensor:
    """Σ z."""
    return logits.gather(-1, action[..., None])[..., 0].sum(-1)


@wrong("only the first choice")
def first_only(logits: Tensor, action: Tensor) -> Tensor:
    """choice 0."""
    return categorical_logp(logits, action)[..., 0]


@wrong("normalised over choices and options together")
def one_softmax(logits: Tensor, action: Tensor) -> Tensor:
    """One big softmax."""
    flat = logits.flatten(-2).log_softmax(-1).unflatten(-1, logits.shape[-2:])
    return flat.gather(-1, action[..., None])[..., 0].sum(-1)


@wrong("probabilities multiplied, no log")
def no_log(logits: Tensor, action: Tensor) -> Tensor:
    """Π π."""
    return categorical_logp(logits, action).exp().prod(-1)


def cases(seed: int) -> Sequence[Case]:
    """Two choices of three; all logits of one moved; a third choice that is certain; a single choice."""
    toys = Toys("joint_log_prob", seed)
    two = toys.away(1, 1, 2, 3).expand(1, 9, 2, 3).clone()
    moved = two + torch.tensor([5.0, 0.0], dtype=torch.float64)[:, None]
    sure = torch.tensor([1000.0, 0.0, 0.0], dtype=torch.float64).expand(1, 9, 1, 3)
    third = torch.cat([PAIRS, torch.zeros(1, 9, 1, dtype=torch.long)], dim=-1)
    return (
        Case("two choices", {"logits": two, "action": PAIRS}),
        Case("two choices, one row of logits moved", {"logits": moved, "action": PAIRS}),
        Case("a third that is certain", {"logits": torch.cat([two, sure], dim=-2), "action": third}),
        Case("one choice", {"logits": two[..., :1, :], "action": PAIRS[..., :1]}),
    )


def near(a: Tensor, b: Tensor) -> bool:
    """Equal shapes and numbers."""
    return a.shape == b.shape and torch.allclose(a, b, rtol=1e-6, atol=1e-6)


def law(text: str, holds: Callable[[Sequence[Tensor]], object]) -> Law:
    """A law about the results alone."""
    return Law(text, lambda cases, values: bool(holds(values)))


LAWS = (
    law("There is one number a step, (B, T).", lambda v: all(x.shape == (1, 9) for x in v)),
    law("Over everything that can be done in a step the probabilities sum to 1.",
        lambda v: near(v[0].exp().sum(), torch.ones((), dtype=torch.float64))),
    law("No log-probability is above 0.", lambda v: all((x <= 1e-9).all() for x in v)),
    law("Adding a number to all logits of one choice changes nothing.", lambda v: near(v[0], v[1])),
    law("A choice that is certain changes nothing.", lambda v: near(v[0], v[2])),
)  # fmt: skip

JOINT_LOG_PROB = Exercise(
    name="joint_log_prob",
    notebook="01_reinforce",
    minutes=8,
    lines=2,
    heading="joint_log_prob(logits, action)",
    task="A robot makes C choices at once in every step, independently: logits (B, T, C, K), action (B, T, C). "
    "REINFORCE wants one log π a step, of all choices together, (B, T).",
    laws=LAWS,
    cases=cases,
    hints=(
        "With what probability do two independent choices come out like this?",
        "The log of a product is a sum.",
        "You have written log_prob for one choice a step; it works along the last axis whatever comes before.",
    ),
    mutants=tuple(wrong),
)
