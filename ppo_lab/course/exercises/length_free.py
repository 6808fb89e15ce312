"""Transfer exercise of notebook 11: take out of a score what length explains; judged by laws, with no answer here."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ppo_lab.course.exercises.exercise import Case, Exercise, Law, Wrong
from ppo_lab.course.exercises.toys import Toys

wrong = Wrong()


def _near(a: Tensor, b: Tensor) -> bool:
    return torch.allclose(a, b, rtol=1e-6, atol=1e-6)


def _each(holds: Callable[..., object]) -> Callable[[Sequence[Case], Sequence[Tensor]], bool]:
    """A law about score, length and answer of single cases."""
    return lambda cases, values: all(bool(holds(*case.arguments.values(), x)) for case, x in
                                     zip(cases, values, strict=True))  # fmt: skip


def _centred(x: Tensor) -> Tensor:
    return x - x.mean()


def _only_length(score: Tensor, length: Tensor, x: Tensor) -> bool:
    """What was taken off is a multiple of the centred length."""
    off, direction = score - x, _centred(length)
    size = direction.square().sum()
    if size == 0:
        return _near(off, torch.zeros_like(off))
    return _near(off, direction * (off @ direction) / size)


LAWS = (
    Law("There is one score an answer, (B,), and all are finite.",
        _each(lambda s, n, x: x.shape == s.shape and x.isfinite().all())),
    Law("The mean score stays what it was.", _each(lambda s, n, x: _near(x.mean(), s.mean()))),
    Law("What is left does not go with length: Σ (score − mean)(L − mean) is 0.",
        _each(lambda s, n, x: abs(float(_centred(x) @ _centred(n))) < 1e-6 * max(1.0, float(n.square().sum())))),
    Law("Only a multiple of L − mean(L) was taken off, so answers of one length keep their differences.",
        _each(_only_length)),
    Law("Where all answers have one length, nothing changes.",
        _each(lambda s, n, x: bool(_centred(n).abs().max() > 0) or _near(x, s))),
)  # fmt: skip


@wrong("divided by the length")
def divided(score: Tensor, length: Tensor) -> Tensor:
    """The trap: score / L."""
    return score / length


@wrong("mean lost")
def mean_lost(score: Tensor, length: Tensor) -> Tensor:
    """Residuals without the mean."""
    away = _centred(length)
    return _centred(score) - away * (score @ away) / away.square().sum().clamp(min=1e-12)


@wrong("line through the origin")
def through_origin(score: Tensor, length: Tensor) -> Tensor:
    """No intercept."""
    slope = (score @ length) / (length @ length)
    return score - slope * _centred(length)


@wrong("added instead of taken off")
def added(score: Tensor, length: Tensor) -> Tensor:
    """Twice the trend."""
    away = _centred(length)
    return score + away * (score @ away) / away.square().sum().clamp(min=1e-12)


@wrong("correlation for slope")
def correlation(score: Tensor, length: Tensor) -> Tensor:
    """cov / (std std), not cov / var."""
    away, s = _centred(length), _centred(score)
    return score - away * (s @ away) / (away.norm() * s.norm()).clamp(min=1e-12)


@wrong("one too many in the variance")
def mixed_denominators(score: Tensor, length: Tensor) -> Tensor:
    """Covariance over n, variance over n − 1."""
    away, n = _centred(length), len(length)
    return score - away * (score @ away) / n / (away.square().sum() / (n - 1)).clamp(min=1e-12)


@wrong("NaN where all have one length")
def zero_by_zero(score: Tensor, length: Tensor) -> Tensor:
    """0 / 0."""
    away = _centred(length)
    return score - away * (score @ away) / away.square().sum()


@wrong("price a token, made up")
def fixed_price(score: Tensor, length: Tensor) -> Tensor:
    """A slope that was not measured."""
    return score - 0.01 * _centred(length)


def cases(seed: int) -> Sequence[Case]:
    """Answers whose score goes with length, one that is nothing but length, and answers of one length."""
    toys = Toys("length_free", seed)
    length = torch.tensor([3.0, 5.0, 8.0, 9.0, 14.0, 21.0], dtype=torch.float64)
    slope = 0.1 + 0.05 * float(toys.normal(1).tanh())
    noisy, same = toys.away(6) + slope * length, toys.away(6)
    return (
        Case("six answers", {"score": noisy, "length": length}, {}),
        Case("nothing but length", {"score": 0.5 - slope * length, "length": length}, {}),
        Case("all of one length", {"score": same, "length": torch.full((6,), 7.0, dtype=torch.float64)}, {}),
    )


LENGTH_FREE = Exercise(
    name="length_free",
    notebook="11_kl_and_length",
    minutes=12,
    lines=4,
    heading="length_free(score, length)",
    task="A reward model may like length for its own sake. Take that out: fit a straight line score ≈ a + c·L by least "
    "squares over the batch, and return the scores minus c·(L − mean L), shape (B,). Where all answers have one length "
    "there is no slope: return the scores as they are.",
    laws=LAWS,
    cases=cases,
    hints=(
        "The slope of a least-squares line is covariance over variance.",
        "Centre the length first: away = length − length.mean().",
        "With all lengths equal the variance is 0; decide what to do before you divide.",
    ),
    mutants=tuple(wrong),
)
