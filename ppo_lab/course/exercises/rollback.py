"""Transfer exercise of notebook 04: a clip that pulls back. Judged by laws, as nothing in the package answers it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ppo_lab.core.objectives import clipped_surrogate, surrogate
from ppo_lab.course.exercises.exercise import Case, Exercise, Law, Wrong
from ppo_lab.course.exercises.toys import Toys

wrong = Wrong()


def _parts(case: Case) -> tuple[Tensor, Tensor, Tensor, Tensor, float]:
    """Ratio, advantage, the clipped term, where it is silent, the slope."""
    x, advantage = case.arguments["log_ratio"], case.arguments["advantage"]
    clip = case.options["clip"]
    r, term = x.exp(), clipped_surrogate(x, advantage, clip=clip)
    silent = ((advantage > 0) & (r > 1 + clip)) | ((advantage < 0) & (r < 1 - clip))
    return r, advantage, term, silent, case.options["slope"]


def _close(a: Tensor, b: Tensor) -> bool:
    return torch.allclose(a, b, rtol=1e-6, atol=1e-6)


def _everywhere(holds: Callable[[Case, Tensor], bool]) -> Callable[[Sequence[Case], Sequence[Tensor]], bool]:
    """A law about single cases."""
    return lambda cases, values: all(holds(case, x) for case, x in zip(cases, values, strict=True))


def _inside(case: Case, x: Tensor) -> bool:
    r, advantage, _, _, _ = _parts(case)
    inside = (r - 1).abs() <= case.options["clip"]
    return _close(x[inside], (r * advantage)[inside])


def _wrong_side(case: Case, x: Tensor) -> bool:
    r, advantage, _, silent, _ = _parts(case)
    stray = ~silent & ((r - 1).abs() > case.options["clip"])
    return _close(x[stray], (r * advantage)[stray])


def _beyond(case: Case, x: Tensor) -> bool:
    r, advantage, _, silent, slope = _parts(case)
    bound = torch.where(advantage > 0, 1 + case.options["clip"], 1 - case.options["clip"])
    lost = (bound * advantage - x)[silent]
    return _close(lost, (slope * (r - bound).abs() * advantage.abs())[silent])


LAWS = (
    Law("There is one number a step, (B, T).", _everywhere(lambda c, x: x.shape == c.arguments["log_ratio"].shape)),
    Law("With a slope of 0 it is the clipped term.", _everywhere(lambda c, x: c.options["slope"] != 0
                                                                or _close(x, _parts(c)[2]))),
    Law("Inside the band it is r A.", _everywhere(_inside)),
    Law("A step that strayed the wrong way (A > 0 below the band, A < 0 above it) is still r A.",
        _everywhere(_wrong_side)),
    Law("A silenced step loses slope · |A| for each unit of ratio beyond the edge of the band.", _everywhere(_beyond)),
)  # fmt: skip


@wrong("slope on every step")
def everywhere(log_ratio: Tensor, advantage: Tensor, *, clip: float, slope: float) -> Tensor:
    """Inside the band as well."""
    return clipped_surrogate(log_ratio, advantage, clip=clip) - slope * (log_ratio.exp() - 1).abs() * advantage.abs()


@wrong("slope on both sides")
def both_sides(log_ratio: Tensor, advantage: Tensor, *, clip: float, slope: float) -> Tensor:
    """Strays are pushed further out or punished twice."""
    r = log_ratio.exp()
    return clipped_surrogate(log_ratio, advantage, clip=clip) - slope * (r - r.clamp(1 - clip, 1 + clip)) * advantage


@wrong("turned the wrong way")
def uphill(log_ratio: Tensor, advantage: Tensor, *, clip: float, slope: float) -> Tensor:
    """It goes on paying, a little less."""
    term = clipped_surrogate(log_ratio, advantage, clip=clip)
    return term + slope * (surrogate(log_ratio, advantage) - term)


@wrong("advantage left out")
def without_advantage(log_ratio: Tensor, advantage: Tensor, *, clip: float, slope: float) -> Tensor:
    """Every step loses the same."""
    term = clipped_surrogate(log_ratio, advantage, clip=clip)
    silent = term < surrogate(log_ratio, advantage)
    return term - slope * silent * (log_ratio.exp() - 1).abs().sub(clip)


@wrong("minimum left out")
def no_minimum(log_ratio: Tensor, advantage: Tensor, *, clip: float, slope: float) -> Tensor:
    """The plain clip, with a slope."""
    r = log_ratio.exp()
    bounded = r.clamp(1 - clip, 1 + clip)
    return bounded * advantage - slope * (r - bounded) * advantage


@wrong("above the band only")
def above_only(log_ratio: Tensor, advantage: Tensor, *, clip: float, slope: float) -> Tensor:
    """Bad actions are not pulled back."""
    term = clipped_surrogate(log_ratio, advantage, clip=clip)
    return term - slope * (surrogate(log_ratio, advantage) - term) * (advantage > 0)


@wrong("averaged")
def averaged(log_ratio: Tensor, advantage: Tensor, *, clip: float, slope: float) -> Tensor:
    """One number."""
    term = clipped_surrogate(log_ratio, advantage, clip=clip)
    return (term - slope * (surrogate(log_ratio, advantage) - term)).mean()


def cases(seed: int) -> Sequence[Case]:
    """Ratios left of, in and right of the band under either sign; a slope, and none."""
    toys = Toys("rollback", seed)
    places = torch.tensor([[-0.6, 0.05, 0.6], [-0.7, 0.02, 0.9]], dtype=torch.float64)
    signs = torch.tensor([[1.0], [-1.0]], dtype=torch.float64)

    def steps() -> dict[str, Tensor]:
        noise = toys.normal(2, 3).tanh() * 0.02
        return {"log_ratio": places + noise, "advantage": signs * toys.away(2, 3).abs()}

    return (Case("a slope", steps(), {"clip": 0.2, "slope": 0.3}), Case("steep", steps(), {"clip": 0.3, "slope": 1.5}),
            Case("no slope", steps(), {"clip": 0.2, "slope": 0.0}))  # fmt: skip


ROLLBACK = Exercise(
    name="rollback",
    notebook="04_clipping",
    minutes=10,
    lines=3,
    heading="rollback(log_ratio, advantage, *, clip, slope)",
    task="A silent step is not pulled back (Wang et al. 2019). Give it a slope: where the minimum is flat (A > 0 above "
    "the band, A < 0 below it), lose slope · |A| for each unit of ratio beyond the edge. Everything else stays as it "
    "is. Shape (B, T).",
    laws=LAWS,
    cases=cases,
    hints=(
        "Which steps are silent? Those whose clipped term lies below r A.",
        "How far below? By |A| for each unit of ratio beyond the edge.",
        "So the clipped term and r A are all you need.",
    ),
    mutants=tuple(wrong),
)
