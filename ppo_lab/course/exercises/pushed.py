"""Exercise of notebook 11: the share of tokens that the update pushes down, by length of their answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ppo_lab.core.masking import masked_mean
from ppo_lab.course.exercises.exercise import Case, Exercise, Wrong
from ppo_lab.course.exercises.toys import Toys, spoiled
from ppo_lab.rlhf.lengths import bucket_mean, buckets_of

sorted_ = Wrong()


def pushed_down(advantage: Tensor, mask: Tensor, *, cap: int) -> Tensor:
    """Share of tokens with Â < 0 in the first, second and last third of the cap, (3,)."""
    bucket = buckets_of(mask.sum(-1), cap=cap)
    return torch.tensor(bucket_mean((advantage < 0).double(), mask, bucket), dtype=torch.float64)


def _shares(advantage: Tensor, mask: Tensor, bucket: Tensor) -> Tensor:
    found = bucket_mean((advantage < 0).double(), mask, bucket)
    return torch.tensor([float("nan") if x is None else x for x in found], dtype=torch.float64)


@sorted_("You average the shares of answers. A token is a token: long answers of a third weigh more than short ones.")
def answers_weigh_alike(advantage: Tensor, mask: Tensor, *, cap: int) -> Tensor:
    """Mean of row means."""
    share = masked_mean((advantage < 0).double(), mask, dim=-1)
    bucket = buckets_of(mask.sum(-1), cap=cap)
    return torch.stack([share[bucket == i].mean() for i in range(3)])


@sorted_("Padding is in the count. Only tokens where the mask is True may be counted, above and below.")
def padding_counts(advantage: Tensor, mask: Tensor, *, cap: int) -> Tensor:
    """Mean over the whole rectangle."""
    bucket = buckets_of(mask.sum(-1), cap=cap)
    return _shares(advantage, torch.ones_like(mask), bucket)


@sorted_("The thirds are those of the width of this batch. They must be thirds of the cap, or they move every step.")
def thirds_of_width(advantage: Tensor, mask: Tensor, *, cap: int) -> Tensor:
    """T in place of the cap."""
    return _shares(advantage, mask, buckets_of(mask.sum(-1), cap=mask.shape[-1]))


@sorted_("An answer of exactly a third of the cap belongs to the first third: longer than, not at least.")
def edges_belong_up(advantage: Tensor, mask: Tensor, *, cap: int) -> Tensor:
    """>= at the edges."""
    length = mask.sum(-1)
    return _shares(advantage, mask, (3 * length >= cap).long() + (3 * length >= 2 * cap).long())


@sorted_("That is the mean advantage. Asked is the share of tokens that are pushed down, Â < 0.")
def mean_advantage(advantage: Tensor, mask: Tensor, *, cap: int) -> Tensor:
    """Mean of Â."""
    found = bucket_mean(advantage, mask, buckets_of(mask.sum(-1), cap=cap))
    return torch.tensor(found, dtype=torch.float64)


@sorted_("You count the tokens that are pushed up. Â < 0 is down.")
def pushed_up(advantage: Tensor, mask: Tensor, *, cap: int) -> Tensor:
    """Â > 0."""
    return 1 - pushed_down(advantage, mask, cap=cap)


@sorted_("You divide by all tokens of the batch. Each third is a share of its own tokens.")
def of_all_tokens(advantage: Tensor, mask: Tensor, *, cap: int) -> Tensor:
    """One denominator."""
    bucket = buckets_of(mask.sum(-1), cap=cap)
    down = ((advantage < 0) & mask).sum(-1).double()
    return torch.stack([down[bucket == i].sum() / mask.sum() for i in range(3)])


@sorted_("The first and the last third have changed places.")
def turned_round(advantage: Tensor, mask: Tensor, *, cap: int) -> Tensor:
    """Long first."""
    return pushed_down(advantage, mask, cap=cap).flip(0)


def pushed_cases(seed: int) -> Sequence[Case]:
    """Nine answers of 1 to 9 tokens under a cap of 9, one with a hole; then a cap that nobody reaches."""
    toys = Toys("pushed_down", seed)
    lengths = torch.tensor([1, 2, 3, 4, 5, 6, 7, 8, 9])
    mask = torch.arange(9) < lengths[:, None]
    mask[5, 0] = False  # five tokens that end in the sixth column
    signs: Callable[[], Tensor] = lambda: toys.away(9, 9) - 0.4 * (lengths[:, None] > 6)  # noqa: E731
    first, second = signs(), signs()
    return (
        Case("all lengths", {"advantage": spoiled(first, mask, by=-1e6), "mask": mask}, {"cap": 9}),
        Case("a wide cap", {"advantage": spoiled(second, mask), "mask": mask}, {"cap": 12}),
    )


PUSHED_DOWN = Exercise(
    name="pushed_down",
    notebook="11_kl_and_length",
    minutes=10,
    lines=5,
    task="Sort the answers by length L (tokens where the mask is True) into thirds of the cap: up to cap/3, up to "
    "2·cap/3, longer. Return for each third the share of its tokens with Â < 0, shape (3,). No third is empty.",
    answer="""\
def pushed_down(advantage, mask, *, cap):
    length = mask.sum(dim=1)
    third = (3 * length > cap).long() + (3 * length > 2 * cap).long()
    down = ((advantage < 0) & mask).sum(dim=1).double()
    tokens = torch.stack([length[third == i].sum() for i in range(3)])
    return torch.stack([down[third == i].sum() for i in range(3)]) / tokens
""",
    reference=pushed_down,
    parts=(buckets_of, bucket_mean),
    cases=pushed_cases,
    hints=(
        "Give each answer a number 0, 1 or 2. Two comparisons added do it.",
        "Count tokens, not answers: sum what is negative, sum the lengths, divide at the end.",
        "(advantage < 0) & mask keeps padding out.",
    ),
    mutants=tuple(sorted_),
)
