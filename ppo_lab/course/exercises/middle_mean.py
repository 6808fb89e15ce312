"""Transfer exercise of notebook 07: a mean that a lucky or a lost run cannot move. Judged by laws."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ppo_lab.course.exercises.exercise import Case, Exercise, Law, Wrong
from ppo_lab.course.exercises.toys import Toys

wrong = Wrong()
NAMES = (
    "eight runs",
    "in another order",
    "all 3 higher",
    "the worst run lost",
    "third of eight 0.1 higher",
    "four runs",
)


def cases(seed: int) -> Sequence[Case]:
    """Eight runs and four changes of them; then four runs."""
    toys = Toys("middle_mean", seed)
    steps = torch.arange(8, dtype=torch.float64) + 0.3 * toys.normal(8).tanh()  # ranks keep their gaps
    mixed = torch.tensor([3, 6, 0, 7, 2, 5, 1, 4])
    lost, raised = steps.clone(), steps.clone()
    lost[0], raised[2] = -1000.0, steps[2] + 0.1
    given = (steps[mixed], steps[mixed.flip(0).roll(3)], steps[mixed] + 3, lost[mixed], raised[mixed],
             steps[torch.tensor([2, 0, 3, 1])])  # fmt: skip
    return tuple(Case(name, {"score": x}) for name, x in zip(NAMES, given, strict=True))


def _close(a: Tensor, b: Tensor | float) -> bool:
    return torch.allclose(a, torch.as_tensor(b, dtype=a.dtype), rtol=1e-6, atol=1e-6)


def _against_first(place: int, by: float) -> Callable[[Sequence[Case], Sequence[Tensor]], bool]:
    """The result of that case is the first one's and ``by`` more."""
    return lambda cases, values: _close(values[place], values[0] + by)


def _four(cases: Sequence[Case], values: Sequence[Tensor]) -> bool:
    return _close(values[5], cases[5].arguments["score"].sort().values[1:3].mean())


LAWS = (
    Law("There is one number for all runs.", lambda cases, values: all(x.shape == () for x in values)),
    Law("The order of the runs does not matter.", _against_first(1, 0.0)),
    Law("If all scores are 3 higher, so is the result.", _against_first(2, 3.0)),
    Law("A run that is lost altogether changes nothing where it was the worst already.", _against_first(3, 0.0)),
    Law("Half of the runs speak: if the third of eight is 0.1 higher, the result is 0.025 higher.",
        _against_first(4, 0.025)),
    Law("Of four runs it is the mean of the middle two.", _four),
)  # fmt: skip


@wrong("plain mean")
def plain_mean(score: Tensor) -> Tensor:
    """A lost run drags it down."""
    return score.mean()


@wrong("median")
def median(score: Tensor) -> Tensor:
    """Two of eight speak."""
    ordered, half = score.sort().values, len(score) // 2
    return ordered[half - 1 : half + 1].mean()


@wrong("best and worst left out")
def ends_out(score: Tensor) -> Tensor:
    """Six of eight speak."""
    return score.sort().values[1:-1].mean()


@wrong("middle of the list")
def unsorted(score: Tensor) -> Tensor:
    """Not sorted."""
    return score[len(score) // 4 : -(len(score) // 4)].mean()


@wrong("upper half")
def upper_half(score: Tensor) -> Tensor:
    """The best runs."""
    return score.sort().values[len(score) // 2 :].mean()


@wrong("middle of the range")
def midrange(score: Tensor) -> Tensor:
    """Ends only."""
    return (score.amin() + score.amax()) / 2


@wrong("quartiles averaged")
def quartiles(score: Tensor) -> Tensor:
    """Two numbers of the distribution."""
    return score.quantile(torch.tensor([0.25, 0.75], dtype=score.dtype)).mean()


@wrong("one number a run")
def not_reduced(score: Tensor) -> Tensor:
    """The middle half itself."""
    return score.sort().values[len(score) // 4 : -(len(score) // 4)]


@wrong("standardised")
def standardised(score: Tensor) -> Tensor:
    """The scale is lost."""
    return ((score - score.mean()) / score.std()).sort().values[len(score) // 4 : -(len(score) // 4)].mean()


MIDDLE_MEAN = Exercise(
    name="middle_mean",
    notebook="07_what_matters",
    minutes=8,
    lines=3,
    heading="middle_mean(score)",
    task="score is (runs,), a multiple of four. Return the interquartile mean (Agarwal et al. 2021): the mean of the "
    "middle half of the runs, after the best and the worst quarter are set aside.",
    laws=LAWS,
    cases=cases,
    hints=(
        "Which runs are the middle half? They have to be in order first.",
        "A quarter is len(score) // 4 runs.",
        "A slice from there to as far from the end; then its mean.",
    ),
    mutants=tuple(wrong),
)
