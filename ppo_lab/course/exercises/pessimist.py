"""Exercise of notebook 12: a pessimistic ensemble."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ppo_lab.core.averages import ensemble_score
from ppo_lab.course.exercises.exercise import Case, Exercise, Wrong
from ppo_lab.course.exercises.hacking import NOTEBOOK
from ppo_lab.course.exercises.toys import Toys

pessimist = Wrong()


def pessimistic_score(scores: Tensor, *, k: float) -> Tensor:
    """Mean less k deviations over the members."""
    return ensemble_score(scores, rule="mean_minus_std", k=k)


@pessimist("You add the deviation: what the members disagree on is paid extra. That is curiosity, not caution.")
def optimist(scores: Tensor, *, k: float) -> Tensor:
    """+k."""
    return scores.mean(0) + k * scores.std(0, correction=0)


@pessimist("Mean and deviation run over the answers. The members are the rows: reduce over the first dimension.")
def over_answers(scores: Tensor, *, k: float) -> Tensor:
    """dim −1."""
    return scores.mean(-1) - k * scores.std(-1, correction=0)


@pessimist("The divisor is M − 1. With few members that is another k; here the deviation has divisor M.")
def sample_deviation(scores: Tensor, *, k: float) -> Tensor:
    """correction=1."""
    return scores.mean(0) - k * scores.std(0)


@pessimist("You subtract the variance: its unit is score², so the same k bites more where scores are large.")
def variance(scores: Tensor, *, k: float) -> Tensor:
    """σ² for σ."""
    return scores.mean(0) - k * scores.var(0, correction=0)


@pessimist("That is the lowest member, whatever k is: the rule called min.")
def the_lowest(scores: Tensor, *, k: float) -> Tensor:
    """min."""
    return scores.amin(0)


@pessimist("You divide the deviation by √M, as for the error of a mean. How far members are apart is asked, not that.")
def standard_error(scores: Tensor, *, k: float) -> Tensor:
    """σ/√M."""
    return scores.mean(0) - k * scores.std(0, correction=0) / len(scores) ** 0.5


@pessimist("k is missing: it says how much a doubt costs.")
def without_k(scores: Tensor, *, k: float) -> Tensor:
    """k = 1."""
    return scores.mean(0) - scores.std(0, correction=0)


@pessimist("The deviation is one number for all answers. Each answer has its own: it is there to tell them apart.")
def one_for_all(scores: Tensor, *, k: float) -> Tensor:
    """Mean σ."""
    return scores.mean(0) - k * scores.std(0, correction=0).mean()


def pessimist_cases(seed: int) -> Sequence[Case]:
    """Three members, four answers."""
    toys = Toys("pessimistic_score", seed)
    return [Case(name, {"scores": toys.away(3, 4)}, {"k": k}) for name, k in (("k = 1", 1.0), ("k = 0.5", 0.5))]


PESSIMISTIC_SCORE = Exercise(
    name="pessimistic_score",
    notebook=NOTEBOOK,
    minutes=5,
    lines=2,
    task="Several reward models score the same answers: scores (M, B), a row a member, all in one unit. Return mean "
    "− k·σ of each answer, (B,): σ is the deviation over the members, divisor M.",
    answer="""\
def pessimistic_score(scores, *, k):
    spread = scores.std(dim=0, correction=0)
    return scores.mean(dim=0) - k * spread
""",
    reference=pessimistic_score,
    parts=(ensemble_score,),
    cases=pessimist_cases,
    hints=(
        "What should an answer cost on which the members disagree?",
        "Both mean and deviation go over dim=0.",
        "torch's std divides by M − 1 unless you say correction=0.",
    ),
    mutants=tuple(pessimist),
)
