"""First exercise: the mean of what counts. Two minutes, one line, and the trap that every RLHF code once fell into."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ppo_lab.core.masking import masked_count, masked_mean, masked_sum, select
from ppo_lab.course.exercises.exercise import Case, Exercise, Wrong
from ppo_lab.course.exercises.toys import MASK, Toys, spoiled

wrong = Wrong()


@wrong("You average over all tokens, padding included. Padding is no text: leave it out.")
def mask_ignored(x: Tensor, mask: Tensor) -> Tensor:
    """Mean over everything."""
    return x.mean()


@wrong("The sum is right, but you divide by the number of all tokens, so short answers look worse than they are.")
def divided_by_all(x: Tensor, mask: Tensor) -> Tensor:
    """Sum of what counts over the number of all."""
    return masked_sum(x, mask) / x.numel()


@wrong("You multiply by the mask. That hides a 0, but 0 × NaN is NaN: pick the tokens that count first.")
def multiplied(x: Tensor, mask: Tensor) -> Tensor:
    """The line that most code has."""
    return (x * mask).sum() / mask.sum()


@wrong("That is the sum. A mean is divided by the number of tokens that count.")
def summed(x: Tensor, mask: Tensor) -> Tensor:
    """Never divided."""
    return masked_sum(x, mask)


@wrong("You average each row and then the rows, so a token of a short answer weighs more than one of a long answer.")
def mean_of_means(x: Tensor, mask: Tensor) -> Tensor:
    """Every answer weighs the same."""
    return masked_mean(x, mask, dim=-1).mean() if x.ndim > 1 else masked_mean(x, mask)


@wrong("You keep what the mask leaves out. True means: this token counts.")
def inverted(x: Tensor, mask: Tensor) -> Tensor:
    """Mean of the padding."""
    return masked_mean(x, ~mask)


@wrong("You divide by the number of rows: that is the mean sum of an answer, not the mean of a token.")
def divided_by_rows(x: Tensor, mask: Tensor) -> Tensor:
    """Sum of what counts over the number of rows."""
    return masked_sum(x, mask) / x.shape[0]


@wrong("One number is asked for, over all rows together; you give one a row.")
def one_a_row(x: Tensor, mask: Tensor) -> Tensor:
    """Mean of each row."""
    return masked_mean(x, mask, dim=-1)


def cases(seed: int) -> Sequence[Case]:
    """Two answers of different length, then NaN where nothing counts."""
    toys = Toys("masked_mean", seed)
    x = toys.away(2, 6)
    return (
        Case("two answers", {"x": x, "mask": MASK}),
        Case("NaN in the padding", {"x": spoiled(toys.away(2, 6), MASK), "mask": MASK}),
    )


MASKED_MEAN = Exercise(
    name="masked_mean",
    notebook="00_start_here",
    minutes=3,
    lines=1,
    task="Return the mean of the entries of x where mask is True: one number. Padding may hold anything, even NaN.",
    answer="def masked_mean(x, mask):\n    return x[mask].mean()\n",
    reference=masked_mean,
    parts=(masked_sum, masked_count, select),
    cases=cases,
    hints=(
        "How many tokens count? It is not x.numel().",
        "x * mask is NaN wherever x is NaN, whatever the mask says. How can you pick entries instead?",
        "x[mask] is a list of the entries that count.",
    ),
    mutants=tuple(wrong),
)
