"""Exercises of length: a nat's price by length, a score shared by all tokens. (Who is pushed down: `pushed.py`.)"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from ppo_lab.core.masking import last_step, masked_count, select
from ppo_lab.course.exercises.exercise import Case, Exercise, Wrong
from ppo_lab.course.exercises.toys import MASK, Toys, spoiled
from ppo_lab.rlhf.rewards import kl_price, token_rewards

wrong = Wrong()
NOTEBOOK = "11_kl_and_length"


def length_price(logp: Tensor, ref_logp: Tensor, mask: Tensor, *, beta: float, reference_length: float) -> Tensor:
    """The KL part of the token rewards at a price of β L_ref / L."""
    price = kl_price(beta, mask.sum(-1), reference_length=reference_length)
    return token_rewards(torch.zeros_like(price), logp, ref_logp, mask, beta=price)


def _priced(logp: Tensor, ref_logp: Tensor, mask: Tensor, price: Tensor | float) -> Tensor:
    return -price * (select(logp, mask) - select(ref_logp, mask))


@wrong("Every answer pays the same price. β is to be multiplied by L_ref / L, and L differs from row to row.")
def one_price(logp: Tensor, ref_logp: Tensor, mask: Tensor, *, beta: float, reference_length: float) -> Tensor:
    """β as it is."""
    return _priced(logp, ref_logp, mask, beta)


@wrong("The ratio is upside down: long answers now pay more a nat. A long answer must pay less, L_ref / L.")
def upside_down(logp: Tensor, ref_logp: Tensor, mask: Tensor, *, beta: float, reference_length: float) -> Tensor:
    """L / L_ref."""
    return _priced(logp, ref_logp, mask, beta * mask.sum(-1, keepdim=True) / reference_length)


@wrong("L is the width of the batch in your answer: padding counts as text. Count the tokens where the mask is True.")
def padded_length(logp: Tensor, ref_logp: Tensor, mask: Tensor, *, beta: float, reference_length: float) -> Tensor:
    """T in place of L."""
    return _priced(logp, ref_logp, mask, beta * reference_length / mask.shape[-1])


@wrong("You use the mean length of the batch: then all rows pay alike, and the price depends on their company.")
def mean_of_batch(logp: Tensor, ref_logp: Tensor, mask: Tensor, *, beta: float, reference_length: float) -> Tensor:
    """One L for all."""
    return _priced(logp, ref_logp, mask, beta * reference_length / mask.sum(-1).double().mean())


@wrong("L_ref is missing: you charge β times the mean KL, which is far less than before for every answer.")
def no_reference(logp: Tensor, ref_logp: Tensor, mask: Tensor, *, beta: float, reference_length: float) -> Tensor:
    """β / L."""
    return _priced(logp, ref_logp, mask, beta / mask.sum(-1, keepdim=True))


@wrong("The sign is turned round: the policy is paid for leaving the reference.")
def paid_to_leave(logp: Tensor, ref_logp: Tensor, mask: Tensor, *, beta: float, reference_length: float) -> Tensor:
    """A bonus."""
    return -length_price(logp, ref_logp, mask, beta=beta, reference_length=reference_length)


@wrong("The length is the position of the last token. A mask may have holes: count, do not locate.")
def located(logp: Tensor, ref_logp: Tensor, mask: Tensor, *, beta: float, reference_length: float) -> Tensor:
    """Last index + 1."""
    end = (last_step(mask) * torch.arange(1, mask.shape[-1] + 1)).sum(-1, keepdim=True)
    return _priced(logp, ref_logp, mask, beta * reference_length / end)


@wrong("You multiply by the mask: 0 × NaN is NaN. Pick the tokens that count before the arithmetic.")
def multiplied(logp: Tensor, ref_logp: Tensor, mask: Tensor, *, beta: float, reference_length: float) -> Tensor:
    """Right wherever padding holds numbers."""
    return -beta * reference_length / mask.sum(-1, keepdim=True) * (logp - ref_logp) * mask


def price_cases(seed: int) -> Sequence[Case]:
    """Padding, a hole, nonsense where nothing counts."""
    toys = Toys("length_price", seed)
    logp = toys.logp(2, 6)
    plain = {"logp": logp, "ref_logp": logp + toys.away(2, 6), "mask": MASK}
    nonsense = {**plain, "logp": spoiled(logp, MASK)}
    return (Case("two answers", plain, {"beta": 0.1, "reference_length": 3.0}),
            Case("NaN in the padding", nonsense, {"beta": 0.4, "reference_length": 8.0}))  # fmt: skip


def places(case: Case) -> Mapping[str, Tensor]:
    """Steps that one mistake may share."""
    mask = case.arguments["mask"]
    return {"what the mask leaves out": ~mask, "the last token that counts": last_step(mask)}


LENGTH_PRICE = Exercise(
    name="length_price",
    notebook=NOTEBOOK,
    minutes=8,
    lines=3,
    task="Return the KL part of the token rewards, (B, T), when an answer of L tokens pays β · L_ref / L a nat: "
    "−β (L_ref / L)(log π − log π_ref) where the mask is True, exactly 0 elsewhere. L counts the tokens of the row "
    "where the mask is True; reference_length is L_ref.",
    answer="""\
def length_price(logp, ref_logp, mask, *, beta, reference_length):
    price = beta * reference_length / mask.sum(dim=1, keepdim=True)
    gap = torch.where(mask, logp - ref_logp, 0.0)
    return -price * gap
""",
    reference=length_price,
    parts=(kl_price,),
    cases=price_cases,
    places=places,
    hints=(
        "The price is one number a row. Which dimension must it keep to meet (B, T)?",
        "mask.sum(dim=1, keepdim=True) counts the tokens of each row.",
        "torch.where(mask, gap, 0.0) selects; multiplying by the mask lets NaN through.",
    ),
    mutants=tuple(wrong),
)

# --- the score, spread -----------------------------------------------------------------------------------------------

shared = Wrong()


def spread_score(score: Tensor, mask: Tensor) -> Tensor:
    """An equal share on each token that counts."""
    zero = torch.zeros(mask.shape, dtype=score.dtype)
    return token_rewards(score, zero, zero, mask, beta=0.0, placement="spread")


@shared("Every token has the whole score: a row sums to L times the score, and long answers earn more.")
def whole_on_each(score: Tensor, mask: Tensor) -> Tensor:
    """No division."""
    return select(score[:, None].expand(mask.shape), mask)


@shared("You divide by the width, padding included: the row's sum is no longer the score.")
def by_width(score: Tensor, mask: Tensor) -> Tensor:
    """/ T."""
    return select(score[:, None].expand(mask.shape), mask) / mask.shape[-1]


@shared("Padding has a share as well. It was never written: it must earn exactly 0.")
def padding_shares(score: Tensor, mask: Tensor) -> Tensor:
    """/ T on each of T."""
    return score[:, None].expand(mask.shape) / mask.shape[-1]


@shared("That is the score on the last token, as usual. Here all tokens share it.")
def on_the_last(score: Tensor, mask: Tensor) -> Tensor:
    """Not spread."""
    return select(score[:, None].expand(mask.shape), last_step(mask))


@shared("You divide by all tokens of the batch. Each row shares its own score among its own tokens.")
def by_batch(score: Tensor, mask: Tensor) -> Tensor:
    """/ Σ mask."""
    return select(score[:, None].expand(mask.shape), mask) / mask.sum()


@shared("You divide by L twice: the sum is the score per token, which is the trap of this notebook.")
def divided_twice(score: Tensor, mask: Tensor) -> Tensor:
    """score / L²."""
    return spread_score(score, mask) / masked_count(mask.double(), mask, dim=-1, keepdim=True)


@shared("The shares grow towards the end. Equal shares were asked for.")
def growing(score: Tensor, mask: Tensor) -> Tensor:
    """In proportion to the position."""
    place = select(mask.cumsum(-1).to(score.dtype), mask)
    return score[:, None] * place / place.sum(-1, keepdim=True)


def spread_cases(seed: int) -> Sequence[Case]:
    """A row without padding, then two of different lengths."""
    toys = Toys("spread_score", seed)
    full = torch.ones(1, 4, dtype=torch.bool)
    return (Case("one full row", {"score": toys.away(1), "mask": full}, {}),
            Case("two answers", {"score": toys.away(2), "mask": MASK}, {}))  # fmt: skip


SPREAD_SCORE = Exercise(
    name="spread_score",
    notebook=NOTEBOOK,
    minutes=6,
    lines=2,
    task="Return rewards (B, T) that spread each answer's score evenly over its tokens: the row's sum is the score, as "
    "it was, and where the mask is False the reward is exactly 0.",
    answer="""\
def spread_score(score, mask):
    share = score[:, None] / mask.sum(dim=1, keepdim=True)
    return torch.where(mask, share, 0.0)
""",
    reference=spread_score,
    parts=(token_rewards,),
    cases=spread_cases,
    places=places,
    hints=(
        "How many tokens share the score of a row?",
        "score[:, None] turns (B,) into (B, 1), which meets (B, T).",
        "Divide first, then put 0 where the mask is False.",
    ),
    mutants=tuple(shared),
)
