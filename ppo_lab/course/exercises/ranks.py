"""Exercises of notebook 17: statistics of all ranks from sums, and (transfer) what averaging over ranks gets wrong."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ppo_lab.course.exercises.exercise import Case, Exercise, Law, Wrong
from ppo_lab.course.exercises.toys import Toys
from ppo_lab.scale.batch import pooled_moments

wrong, wrong_factor = Wrong(), Wrong()


@wrong("The mean of the ranks' means: a value on a rank with few values counts more. Add sums first, then divide.")
def mean_of_means(count: Tensor, total: Tensor, square: Tensor) -> Tensor:
    """Every rank alike."""
    right = pooled_moments(count, total, square)
    return torch.stack([(total / count.clamp_min(1)).mean(), right[1]])


@wrong("A mean of the ranks' deviations misses how far the ranks' means lie apart.")
def mean_of_deviations(count: Tensor, total: Tensor, square: Tensor) -> Tensor:
    """Within ranks only."""
    n = count.clamp_min(1)
    within = (square / n - (total / n).square()).clamp_min(0).sqrt()
    return torch.stack([total.sum() / count.sum(), (within * count).sum() / count.sum()])


@wrong("That is the variance: the deviation is its root.")
def not_rooted(count: Tensor, total: Tensor, square: Tensor) -> Tensor:
    """σ²."""
    right = pooled_moments(count, total, square)
    return torch.stack([right[0], right[1].square()])


@wrong("The mean has not been taken off: the mean of squares is not the variance.")
def raw_square(count: Tensor, total: Tensor, square: Tensor) -> Tensor:
    """√(Σq/n)."""
    return torch.stack([total.sum() / count.sum(), (square.sum() / count.sum()).sqrt()])


@wrong("N − 1 is for an estimate from a sample. Standardising divides by the deviation of the values there are: N.")
def one_less(count: Tensor, total: Tensor, square: Tensor) -> Tensor:
    """ddof 1."""
    n = count.sum()
    right = pooled_moments(count, total, square)
    return torch.stack([right[0], right[1] * (n / (n - 1)).sqrt()])


@wrong("You divide by the number of ranks, not by the number of values.")
def over_ranks(count: Tensor, total: Tensor, square: Tensor) -> Tensor:
    """W in place of n."""
    return pooled_moments(torch.ones_like(count), total, square)


@wrong("Only rank 0's values are in it. Every rank must come to the same numbers, so all sums are needed.")
def rank_zero_only(count: Tensor, total: Tensor, square: Tensor) -> Tensor:
    """The first rank."""
    return pooled_moments(count[:1], total[:1], square[:1])


def moment_cases(seed: int) -> Sequence[Case]:
    """Ranks of unequal size whose values lie apart; one rank alone; a rank without values."""
    toys = Toys("rank_moments", seed)
    values = [toys.normal(n) + shift for n, shift in ((5, 2.0), (2, -1.0), (3, 0.5))]

    def case(name: str, parts: list[Tensor]) -> Case:
        sums = [(float(len(x)), float(x.sum()), float(x.square().sum())) for x in parts]
        count, total, square = (torch.tensor(column, dtype=torch.float64) for column in zip(*sums, strict=True))
        return Case(name, {"count": count, "total": total, "square": square})

    return (case("one rank", values[:1]), case("three ranks", values), case("an empty rank", [*values, values[0][:0]]))


RANK_MOMENTS = Exercise(
    name="rank_moments",
    notebook="17_zero3_multi_gpu",
    minutes=10,
    lines=4,
    task="Each of W ranks has sent three sums (W,): how many values it holds, their sum, the sum of their squares. "
    "Return mean and deviation (over N) of all values as one tensor (2,). A rank may hold none.",
    answer="""
def rank_moments(count, total, square):
    n = count.sum()
    mean = total.sum() / n
    variance = square.sum() / n - mean ** 2
    return torch.stack([mean, variance.sqrt()])
""",
    reference=pooled_moments,
    cases=moment_cases,
    hints=(
        "What may be added over ranks: means, or sums?",
        "Variance is the mean of squares less the square of the mean.",
        "Put both numbers together with torch.stack.",
    ),
    mutants=tuple(wrong),
)

# --- transfer --------------------------------------------------------------------------------------------------------


@wrong_factor("That is how much the rank counts too much. The factor makes up for it: turn it round.")
def turned_round(tokens: Tensor) -> Tensor:
    """mean / n."""
    return tokens.mean() / tokens.clamp_min(1)


@wrong_factor("The share alone: the average over ranks has divided by W already.")
def share_alone(tokens: Tensor) -> Tensor:
    """n/Σn."""
    return tokens / tokens.sum()


@wrong_factor("Measured by the longest rank, the whole gradient becomes too small.")
def by_the_longest(tokens: Tensor) -> Tensor:
    """n/max n."""
    return tokens / tokens.max()


@wrong_factor("An empty rank is given a token it does not have.")
def never_empty(tokens: Tensor) -> Tensor:
    """At least one token."""
    n = tokens.clamp_min(1)
    return len(n) * n / n.sum()


@wrong_factor("The root would be right for noise; a mean wants proportion.")
def rooted(tokens: Tensor) -> Tensor:
    """√n, scaled to W."""
    root = tokens.sqrt()
    return len(root) * root / root.sum()


@wrong_factor("A fixed number of tokens is no measure: only shares matter.")
def against_a_constant(tokens: Tensor) -> Tensor:
    """Mostly right, but drawn to 1 by a constant."""
    return len(tokens) * (tokens + 0.01 * (tokens > 0)) / (tokens.sum() + 0.01 * (tokens > 0).sum())


@wrong_factor("With no factor a token on a short rank counts more.")
def no_factor(tokens: Tensor) -> Tensor:
    """1."""
    return torch.ones_like(tokens)


def _at(cases: Sequence[Case], values: Sequence[Tensor], name: str) -> tuple[Tensor, Tensor]:
    i = [case.name for case in cases].index(name)
    tokens = cases[i].arguments["tokens"]
    if values[i].shape != tokens.shape:
        raise ValueError("one factor a rank")
    return tokens, values[i]


def _equal(cases: Sequence[Case], values: Sequence[Tensor]) -> bool:
    return bool(torch.allclose(_at(cases, values, "equal ranks")[1], torch.ones(4, dtype=torch.float64)))


def _whole(cases: Sequence[Case], values: Sequence[Tensor]) -> bool:
    _, factor = _at(cases, values, "unequal ranks")
    return abs(float(factor.sum()) - len(factor)) < 1e-9


def _empty(cases: Sequence[Case], values: Sequence[Tensor]) -> bool:
    tokens, factor = _at(cases, values, "an empty rank")
    return bool((factor[tokens == 0] == 0).all())


def _proportional(cases: Sequence[Case], values: Sequence[Tensor]) -> bool:
    tokens, factor = _at(cases, values, "unequal ranks")
    return bool(torch.allclose(factor / factor[0], tokens / tokens[0], rtol=1e-9))


def _scale_free(cases: Sequence[Case], values: Sequence[Tensor]) -> bool:
    small, large = (_at(cases, values, name)[1] for name in ("unequal ranks", "ten times as many"))
    return bool(torch.allclose(small, large, rtol=1e-9))


def factor_cases(seed: int) -> Sequence[Case]:
    """Equal, unequal, ten times as many, and one empty."""
    toys = Toys("loss_factor", seed)
    tokens = (5 + 40 * toys.away(4).abs()).round()
    tokens[1] += 7
    lists = {"equal ranks": torch.full_like(tokens, float(tokens[0])), "unequal ranks": tokens,
             "ten times as many": 10 * tokens, "an empty rank": tokens * torch.tensor([1, 0, 1, 1])}  # fmt: skip
    return tuple(Case(name, {"tokens": x.double()}) for name, x in lists.items())


LOSS_FACTOR = Exercise(
    name="loss_factor",
    notebook="17_zero3_multi_gpu",
    minutes=10,
    lines=2,
    heading="loss_factor(tokens)",
    task="Many trainers let each rank take the mean over its own tokens, and then average gradients over the W ranks. "
    "With unequal token counts (W,) that is not the mean over all tokens. Return the factor (W,) by which each rank "
    "must multiply its loss to make it so.",
    laws=(
        Law("Ranks with equally many tokens need no factor: 1 each.", _equal),
        Law("The factors of all ranks add up to W.", _whole),
        Law("A rank without tokens has no say: its factor is 0.", _empty),
        Law("Twice the tokens, twice the factor.", _proportional),
        Law("Ten times as many tokens on every rank change nothing.", _scale_free),
    ),
    cases=factor_cases,
    hints=(
        "What does one token weigh now: 1/W times 1/n_r. What should it weigh?",
        "One over all tokens. Divide what should be by what is.",
        "A rank's number of tokens against the average rank's.",
    ),
    mutants=tuple(wrong_factor),
)
