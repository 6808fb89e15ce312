"""Transfer exercise of notebook 02: a baseline in general. Something of known mean is taken off, as much as helps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ppo_lab.course.exercises.exercise import Case, Exercise, Law, Wrong
from ppo_lab.course.exercises.toys import Toys

wrong = Wrong()


def slope(x: Tensor, z: Tensor) -> Tensor:
    """Least squares of x on z."""
    return ((x - x.mean()) * (z - z.mean())).sum() / (z - z.mean()).square().sum()


@wrong("z ignored")
def ignored(x: Tensor, z: Tensor) -> Tensor:
    """Mean of x."""
    return x.mean()


@wrong("all of z taken off")
def coefficient_one(x: Tensor, z: Tensor) -> Tensor:
    """c = 1."""
    return (x - z).mean()


@wrong("added")
def added(x: Tensor, z: Tensor) -> Tensor:
    """Sign."""
    return x.mean() + slope(x, z) * z.mean()


@wrong("one number a sample")
def not_averaged(x: Tensor, z: Tensor) -> Tensor:
    """(N,)."""
    return x - slope(x, z) * z


@wrong("divided by the spread, not by the variance")
def by_spread(x: Tensor, z: Tensor) -> Tensor:
    """Cov / std."""
    return x.mean() - slope(x, z) * z.std() * z.mean()


@wrong("paired with another sample's z")
def shifted(x: Tensor, z: Tensor) -> Tensor:
    """Rows do not match."""
    return x.mean() - slope(x, z.roll(1)) * z.mean()


@wrong("a part of x's mean taken for slope")
def not_centred(x: Tensor, z: Tensor) -> Tensor:
    """Raw moments."""
    return x.mean() - (x * z).sum() / z.square().sum() * z.mean()


@wrong("scaled")
def scaled(x: Tensor, z: Tensor) -> Tensor:
    """Another unit."""
    return (x.mean() - slope(x, z) * z.mean()) / x.std()


def cases(seed: int) -> Sequence[Case]:
    """Samples; then rescaled, moved, in another order, without noise of their own, and with a z that averages to 0."""
    toys = Toys("control_variate", seed)
    z, own = 0.5 + toys.away(8), toys.away(8)
    x = 2.0 + 1.5 * z + 0.3 * own
    order = torch.tensor([3, 1, 7, 0, 5, 2, 6, 4])
    even = torch.cat([z[:4], -z[:4]])
    return (
        Case("samples", {"x": x, "z": z}),
        Case("z in another unit", {"x": x, "z": 7 * z}),
        Case("x moved by 5", {"x": x + 5, "z": z}),
        Case("another order", {"x": x[order], "z": z[order]}),
        Case("all of the noise is z's", {"x": 2.0 + 1.5 * z, "z": z}),
        Case("z averages to its mean", {"x": x, "z": even}),
    )


def law(text: str, holds: Callable[[Sequence[Case], Sequence[Tensor]], object]) -> Law:
    """A law; results of the wrong shape obey none but the first."""
    return Law(text, lambda cases, values: bool(holds(cases, values)))


def near(a: Tensor | float, b: Tensor | float) -> bool:
    """Equal to rounding, any shapes."""
    a, b = torch.as_tensor(a, dtype=torch.float64), torch.as_tensor(b, dtype=torch.float64)
    return torch.allclose(a, b.expand(a.shape), rtol=1e-6, atol=1e-6)


LAWS = (
    law("It is one number.", lambda cases, v: all(x.ndim == 0 for x in v)),
    law("The unit of z does not matter.", lambda cases, v: near(v[0], v[1])),
    law("If every x is 5 higher, so is the result.", lambda cases, v: near(v[0] + 5, v[2])),
    law("The order of the samples does not matter.", lambda cases, v: near(v[0].mean(), v[3].mean())),
    law("Where x = 2 + 1.5 z without noise of its own, the result is 2 exactly.", lambda cases, v: near(v[4], 2.0)),
    law("Where z happens to average to 0, the result is the plain mean of x.",
        lambda cases, v: near(v[5].mean(), cases[5].arguments["x"].mean())),
)  # fmt: skip

CONTROL_VARIATE = Exercise(
    name="control_variate",
    notebook="02_baselines",
    minutes=12,
    lines=3,
    heading="control_variate(x, z)",
    task="x (N,) are samples whose mean you want. z (N,) was measured beside each, and its true mean is known to be 0. "
    "Return the mean of x − c z, a number, with the c for which the sample variance of x − c z is least.",
    laws=LAWS,
    cases=cases,
    hints=(
        "Which line through the points (z, x) leaves least variance?",
        "c is the covariance of x and z divided by the variance of z.",
        "Centre both with their sample means for c; then take off c times the mean of z.",
    ),
    mutants=tuple(wrong),
)
