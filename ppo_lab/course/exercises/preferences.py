"""Exercises of notebook 09: the loss of a preference, the token a score is read from."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from ppo_lab.core.masking import last_step
from ppo_lab.core.preferences import bradley_terry_loss, score_centering
from ppo_lab.course.exercises.exercise import Case, Exercise, Wrong
from ppo_lab.course.exercises.toys import Toys

losing = Wrong()


def preference_loss(chosen: Tensor, rejected: Tensor, *, margin: float, center: float) -> Tensor:
    """−log σ(r_w − r_l − m) + c (r_w + r_l)², one term a pair."""
    return bradley_terry_loss(chosen, rejected, margin=margin) + center * score_centering(chosen, rejected)


@losing("Turned round: this loss falls when the rejected answer scores higher.")
def turned_round(chosen: Tensor, rejected: Tensor, *, margin: float, center: float) -> Tensor:
    """−log σ(r_l − r_w − m)."""
    return preference_loss(rejected, chosen, margin=margin, center=center)


@losing("The logarithm is missing: −σ is no likelihood, and its slope vanishes where the model is most wrong.")
def no_logarithm(chosen: Tensor, rejected: Tensor, *, margin: float, center: float) -> Tensor:
    """−σ(…)."""
    return -torch.sigmoid(chosen - rejected - margin) + center * score_centering(chosen, rejected)


@losing("A sign is wrong: minus log σ is to be minimised, so it is never negative.")
def minus_forgotten(chosen: Tensor, rejected: Tensor, *, margin: float, center: float) -> Tensor:
    """log σ."""
    return logsigmoid(chosen - rejected - margin) + center * score_centering(chosen, rejected)


@losing("The margin is subtracted from the difference: a pair must be that much apart before its loss gets small.")
def margin_added(chosen: Tensor, rejected: Tensor, *, margin: float, center: float) -> Tensor:
    """+ m."""
    return preference_loss(chosen, rejected, margin=-margin, center=center)


@losing("The margin is missing.")
def margin_forgotten(chosen: Tensor, rejected: Tensor, *, margin: float, center: float) -> Tensor:
    """m = 0."""
    return preference_loss(chosen, rejected, margin=0.0, center=center)


@losing("Centring squares the sum of the two scores. The difference is what the labels speak about: leave it alone.")
def difference_squared(chosen: Tensor, rejected: Tensor, *, margin: float, center: float) -> Tensor:
    """c (r_w − r_l)²."""
    return bradley_terry_loss(chosen, rejected, margin=margin) + center * (chosen - rejected).square()


@losing("The centring term is missing: pairs leave the scores' zero point free.")
def not_centred(chosen: Tensor, rejected: Tensor, *, margin: float, center: float) -> Tensor:
    """c = 0."""
    return bradley_terry_loss(chosen, rejected, margin=margin)


@losing("log(sigmoid(x)) is −inf where σ underflows to 0, and so is its gradient lost. logsigmoid(x) stays finite.")
def naive_logarithm(chosen: Tensor, rejected: Tensor, *, margin: float, center: float) -> Tensor:
    """log of σ."""
    return -torch.sigmoid(chosen - rejected - margin).log() + center * score_centering(chosen, rejected)


@losing("One number a pair is asked for; you average over the pairs.")
def averaged(chosen: Tensor, rejected: Tensor, *, margin: float, center: float) -> Tensor:
    """Mean."""
    return preference_loss(chosen, rejected, margin=margin, center=center).mean()


def loss_cases(seed: int) -> Sequence[Case]:
    """Five pairs; then one that the model has very wrong."""
    toys = Toys("preference_loss", seed)
    chosen, rejected = toys.away(5), toys.away(5)
    far = {"chosen": torch.cat([chosen[:2], torch.tensor([-450.0]).double()]),
           "rejected": torch.cat([rejected[:2], torch.tensor([450.0]).double()])}  # fmt: skip
    return (Case("five pairs", {"chosen": chosen, "rejected": rejected}, {"margin": 0.4, "center": 0.1}),
            Case("one very wrong", far, {"margin": 0.2, "center": 0.05}))  # fmt: skip


PREFERENCE_LOSS = Exercise(
    name="preference_loss",
    notebook="09_sft_and_reward_model",
    minutes=7,
    lines=3,
    task="chosen and rejected (N,) are scores r_w and r_l. Return one loss a pair, (N,): −log σ(r_w − r_l − margin), "
    "plus center · (r_w + r_l)². It must stay finite where a score is wrong by hundreds.",
    answer="""\
def preference_loss(chosen, rejected, *, margin, center):
    gap = chosen - rejected - margin
    loss = -torch.nn.functional.logsigmoid(gap)
    return loss + center * (chosen + rejected) ** 2
""",
    reference=preference_loss,
    parts=(bradley_terry_loss, score_centering),
    cases=loss_cases,
    gradient_of=("chosen", "rejected"),
    hints=(
        "The loss is small when the chosen answer leads by more than the margin.",
        "The centring term is 0 where the two scores are opposite.",
        "torch.nn.functional.logsigmoid does not underflow.",
    ),
    mutants=tuple(losing),
)

# --- where the score is ----------------------------------------------------------------------------------------------

reading = Wrong()


def last_token_score(scores: Tensor, tokens: Tensor, attention: Tensor) -> Tensor:
    """The score at each row's last token that counts."""
    return scores[last_step(attention)]


@reading("The last column is padding in every row but the longest: the score then depends on the batch.")
def last_column(scores: Tensor, tokens: Tensor, attention: Tensor) -> Tensor:
    """[:, -1]."""
    return scores[:, -1]


@reading("You look for ids that differ from the pad id. Where EOS pads, the text's own EOS goes with the padding.")
def by_id(scores: Tensor, tokens: Tensor, attention: Tensor) -> Tensor:
    """Last id that is not the one in the padding."""
    real = tokens != 2
    return scores[torch.arange(len(scores)), (real * torch.arange(scores.shape[1])).argmax(-1)]


@reading("One too far: at the index of the length stands the first pad.")
def first_pad(scores: Tensor, tokens: Tensor, attention: Tensor) -> Tensor:
    """Index length, not length − 1."""
    last = (attention * torch.arange(scores.shape[1])).argmax(-1)
    return scores[torch.arange(len(scores)), (last + 1).clamp(max=scores.shape[1] - 1)]


@reading(
    "Length − 1 is right where padding is on the right. One row here is padded on the left, and ends in column L − 1."
)
def length_less_one(scores: Tensor, tokens: Tensor, attention: Tensor) -> Tensor:
    """attention.sum − 1."""
    return scores[torch.arange(len(scores)), attention.sum(-1) - 1]


@reading("You read the first token: it has not seen the text yet.")
def first_token(scores: Tensor, tokens: Tensor, attention: Tensor) -> Tensor:
    """argmax of attention."""
    return scores[torch.arange(len(scores)), attention.int().argmax(-1)]


@reading("You average over the text. Only the last token has read all of it.")
def mean_over_text(scores: Tensor, tokens: Tensor, attention: Tensor) -> Tensor:
    """Masked mean."""
    return torch.where(attention, scores, 0.0).sum(-1) / attention.sum(-1)


@reading("You take the highest score in the text, not the last.")
def highest(scores: Tensor, tokens: Tensor, attention: Tensor) -> Tensor:
    """Masked max."""
    return scores.masked_fill(~attention, -torch.inf).amax(-1)


def reading_cases(seed: int) -> Sequence[Case]:
    """Padding on the right: a full row, one with a pad, one with three, one of two tokens. Then one row on the left."""
    toys = Toys("last_token_score", seed)
    attention = torch.arange(6) < torch.tensor([6, 5, 3, 2])[:, None]
    tokens = 3 + (toys.away(4, 6).abs() * 1000).long() % 7

    def texts(name: str, attention: Tensor) -> Case:
        ids = torch.where(attention & ~last_step(attention), tokens, 2)  # each text ends with EOS, and EOS pads
        return Case(name, {"scores": toys.away(4, 6, most=3.0), "tokens": ids, "attention": attention})

    left = attention.clone()
    left[2] = left[2].flip(-1)
    return texts("padding on the right", attention), texts("one row padded on the left", left)


LAST_TOKEN_SCORE = Exercise(
    name="last_token_score",
    notebook="09_sft_and_reward_model",
    minutes=6,
    lines=3,
    task="A score head has been read at every token: scores (B, L). tokens (B, L) are the ids, attention (B, L) is "
    "True on the text and False on padding, which may be on either side. Every text ends with EOS, id 2, and EOS is "
    "also what pads. Return each text's score, (B,): that of its last token.",
    answer="""\
def last_token_score(scores, tokens, attention):
    place = torch.arange(scores.shape[1])
    last = torch.where(attention, place, -1).argmax(-1)
    return scores[torch.arange(len(scores)), last]
""",
    reference=last_token_score,
    parts=(last_step,),
    cases=reading_cases,
    hints=(
        "Which of the three arguments tells text from padding?",
        "The last True of each row. Its index is not always the length less one.",
        "Put −1 where there is no text and the column's number elsewhere, then argmax.",
    ),
    mutants=tuple(reading),
)
