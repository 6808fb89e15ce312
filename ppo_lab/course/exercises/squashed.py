"""Transfer exercise of notebook 06: log-probability of an action that was squashed into its bounds by tanh."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn.functional import softplus

from ppo_lab.core.distributions import gaussian_logp
from ppo_lab.course.exercises.exercise import Case, Exercise, Law, Wrong
from ppo_lab.course.exercises.toys import Toys

Holds = Callable[[Sequence[Case], Sequence[Tensor]], bool]
wrong = Wrong()


def _correction(u: Tensor) -> Tensor:
    """log(1 − tanh²u), exact also where tanh rounds to 1."""
    return 2 * (math.log(2) - u - softplus(-2 * u))


def _everywhere(
    name: str, holds: Callable[[Case, Tensor], object]
) -> Callable[[Sequence[Case], Sequence[Tensor]], bool]:
    """A law about the case of that name; "" is any."""
    return lambda cases, values: all(
        bool(holds(case, x)) for case, x in zip(cases, values, strict=True) if name in ("", case.name)
    )


def _area(case: Case, x: Tensor) -> bool:
    """The density over a = tanh u, summed over a fine grid of a: u was chosen so that a is evenly spaced."""
    a = case.arguments["u"][:, 0].tanh()
    return abs(float(torch.trapezoid(x.exp(), a)) - 1) < 1e-3  # the grid's own error


def _near_zero(case: Case, x: Tensor) -> bool:
    mean, log_std, u = case.arguments.values()
    return torch.allclose(x, gaussian_logp(mean, log_std, u), atol=1e-6)


def _far(case: Case, x: Tensor) -> bool:
    mean, log_std, u = case.arguments.values()
    return torch.allclose(x, gaussian_logp(mean, log_std, u) - _correction(u).sum(-1), rtol=1e-6)


def _adds(cases: Sequence[Case], values: Sequence[Tensor]) -> bool:
    """The case of two numbers against its two halves, which are cases of their own."""
    by_name = {case.name: x for case, x in zip(cases, values, strict=True)}
    both, first, second = (by_name[name] for name in ("two numbers", "the first alone", "the second alone"))
    return torch.allclose(both, first + second, rtol=1e-6, atol=1e-6)


LAWS = (
    Law("One log-probability a row, (B,).",
        _everywhere("", lambda c, x: x.shape == c.arguments["u"].shape[:1])),
    Law("Near u = 0 tanh does nothing: it is the Gaussian's log-probability.", _everywhere("near 0", _near_zero)),
    Law("Over all actions between −1 and 1 the density adds up to 1.", _everywhere("a grid of actions", _area)),
    Law("Numbers are independent: the log-probability of two is the sum of theirs.", _adds),
    Law("It is finite and right far out as well, where tanh u is 1 in the computer.", _everywhere("far out", _far)),
)  # fmt: skip


@wrong("no correction at all")
def uncorrected(mean: Tensor, log_std: Tensor, u: Tensor) -> Tensor:
    """The Gaussian's."""
    return gaussian_logp(mean, log_std, u)


@wrong("the correction has the wrong sign")
def wrong_sign(mean: Tensor, log_std: Tensor, u: Tensor) -> Tensor:
    """Plus."""
    return gaussian_logp(mean, log_std, u) + _correction(u).sum(-1)


@wrong("log(1 − tanh² u) as written: log 0 far out")
def overflows(mean: Tensor, log_std: Tensor, u: Tensor) -> Tensor:
    """Infinite."""
    return gaussian_logp(mean, log_std, u) - (1 - u.tanh().square()).log().sum(-1)


@wrong("kept finite by a small number, and so wrong far out")
def padded(mean: Tensor, log_std: Tensor, u: Tensor) -> Tensor:
    """+ 1e-6."""
    return gaussian_logp(mean, log_std, u) - (1 - u.tanh().square() + 1e-6).log().sum(-1)


@wrong("the correction is averaged over the numbers")
def averaged(mean: Tensor, log_std: Tensor, u: Tensor) -> Tensor:
    """Mean for sum."""
    return gaussian_logp(mean, log_std, u) - _correction(u).mean(-1)


@wrong("one log-probability a number")
def not_summed(mean: Tensor, log_std: Tensor, u: Tensor) -> Tensor:
    """(B, A)."""
    return gaussian_logp(mean[..., None], log_std[..., None], u[..., None]) - _correction(u)


@wrong("the Gaussian is asked about tanh u")
def of_the_squashed(mean: Tensor, log_std: Tensor, u: Tensor) -> Tensor:
    """log N(tanh u)."""
    return gaussian_logp(mean, log_std, u.tanh()) - _correction(u).sum(-1)


@wrong("log 2 is forgotten in the stable form")
def without_log_two(mean: Tensor, log_std: Tensor, u: Tensor) -> Tensor:
    """A constant off."""
    return gaussian_logp(mean, log_std, u) - 2 * (-u - softplus(-2 * u)).sum(-1)


@wrong("the slope is log(1 − u²)")
def slope_of_u(mean: Tensor, log_std: Tensor, u: Tensor) -> Tensor:
    """tanh forgotten."""
    return gaussian_logp(mean, log_std, u) - (1 - u.clamp(-0.999, 0.999).square()).log().sum(-1)


def cases(seed: int) -> Sequence[Case]:
    """One grid, one point near 0, one far out, and two numbers with their halves."""
    toys = Toys("squashed_logp", seed)
    a = torch.linspace(-0.99999, 0.99999, 20001, dtype=torch.float64)
    grid = {"mean": toys.away(1, 1, most=0.5).expand(len(a), 1), "log_std": torch.full((len(a), 1), -0.4).double(),
            "u": a.atanh()[:, None]}  # fmt: skip
    near = {"mean": toys.away(3, 2), "log_std": 0.3 * toys.normal(3, 2), "u": 1e-5 * toys.away(3, 2)}
    two = {"mean": toys.away(3, 2), "log_std": 0.3 * toys.normal(3, 2), "u": toys.away(3, 2)}
    far = {"mean": toys.away(2, 1), "log_std": toys.away(2, 1), "u": torch.tensor([[25.0], [-25.0]]).double()}

    def half(i: int) -> dict[str, Tensor]:
        return {name: x[:, i : i + 1] for name, x in two.items()}

    return (Case("a grid of actions", grid), Case("near 0", near), Case("two numbers", two),
            Case("the first alone", half(0)), Case("the second alone", half(1)), Case("far out", far))  # fmt: skip


SQUASHED_LOGP = Exercise(
    name="squashed_logp",
    notebook="06_ppo",
    minutes=15,
    lines=3,
    heading="squashed_logp(mean, log_std, u)",
    task="Instead of clipping, squash: sample u from a Gaussian, send a = tanh u. Return log π(a), shape (B,), summed "
    "over an action's numbers, from mean, log_std and u, all (B, A). It must stay right where tanh u is 1 in the "
    "computer.",
    laws=LAWS,
    cases=cases,
    hints=(
        "Probability mass is kept: density times width. Where tanh is flat, much u falls into little a.",
        "The slope of tanh is 1 − tanh² u; its log is taken off, number by number.",
        "log(1 − tanh² u) = 2 (log 2 − u − softplus(−2u)), which never takes the log of 0.",
    ),
    mutants=tuple(wrong),
)
