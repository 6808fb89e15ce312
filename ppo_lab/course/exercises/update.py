"""Exercise: the loss of one PPO update, from log-probabilities to one number with the right gradient."""

from __future__ import annotations

import torch
from torch import Tensor

from ppo_lab.core.importance import log_ratio
from ppo_lab.core.masking import masked_mean, masked_sum, select, step_weights
from ppo_lab.core.objectives import clipped_surrogate, surrogate
from ppo_lab.course.exercises.exercise import Case, Exercise, Wrong
from ppo_lab.course.exercises.toys import MASK, Toys, spoiled

wrong = Wrong()


def ppo_loss(logp: Tensor, old_logp: Tensor, advantage: Tensor, mask: Tensor, *, clip: float) -> Tensor:
    """Clipped loss of one minibatch, mean over valid tokens; what `ppo_lab.update` minimises for the policy."""
    ratio = log_ratio(logp, old_logp, mask)
    terms = clipped_surrogate(ratio, select(advantage, mask), clip=clip)
    return -(terms * step_weights(mask, dtype=terms.dtype)).sum()


def _parts(logp: Tensor, old_logp: Tensor, advantage: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Ratio and advantage at the tokens that count, 1 and 0 elsewhere."""
    return log_ratio(logp, old_logp, mask).exp(), select(advantage, mask)


@wrong("The sign: an optimizer minimises, and the surrogate is to be maximised.")
def sign(logp: Tensor, old_logp: Tensor, advantage: Tensor, mask: Tensor, *, clip: float) -> Tensor:
    """Objective in place of loss."""
    return -ppo_loss(logp, old_logp, advantage, mask, clip=clip)


@wrong("Nothing is clipped: this is r A alone, and nothing holds the policy back when the batch is used again.")
def no_clip(logp: Tensor, old_logp: Tensor, advantage: Tensor, mask: Tensor, *, clip: float) -> Tensor:
    """Unconstrained surrogate."""
    return -masked_mean(surrogate(log_ratio(logp, old_logp, mask), select(advantage, mask)), mask)


@wrong("You clip but take no minimum, so a token that moved the wrong way has no gradient to bring it back.")
def no_minimum(logp: Tensor, old_logp: Tensor, advantage: Tensor, mask: Tensor, *, clip: float) -> Tensor:
    """clip(r) A alone."""
    r, a = _parts(logp, old_logp, advantage, mask)
    return -masked_mean(r.clamp(1 - clip, 1 + clip) * a, mask)


@wrong("You take the larger of the two. PPO is pessimistic: the smaller.")
def maximum(logp: Tensor, old_logp: Tensor, advantage: Tensor, mask: Tensor, *, clip: float) -> Tensor:
    """max for min."""
    r, a = _parts(logp, old_logp, advantage, mask)
    return -masked_mean(torch.maximum(r * a, r.clamp(1 - clip, 1 + clip) * a), mask)


@wrong("You clip from above only: a bad token below 1 − ε is pushed down for ever.")
def one_sided(logp: Tensor, old_logp: Tensor, advantage: Tensor, mask: Tensor, *, clip: float) -> Tensor:
    """min(r, 1 + ε)."""
    r, a = _parts(logp, old_logp, advantage, mask)
    return -masked_mean(torch.minimum(r * a, r.clamp(max=1 + clip) * a), mask)


@wrong("The ratio is upside down: new over old, so log π − log π_old.")
def upside_down(logp: Tensor, old_logp: Tensor, advantage: Tensor, mask: Tensor, *, clip: float) -> Tensor:
    """old / new."""
    return ppo_loss(old_logp, logp, advantage, mask, clip=clip)


@wrong("The log-ratio is clipped to ±ε. The band is on the ratio: 1 − ε to 1 + ε.")
def band_in_logs(logp: Tensor, old_logp: Tensor, advantage: Tensor, mask: Tensor, *, clip: float) -> Tensor:
    """Band e^{±ε}."""
    x, a = log_ratio(logp, old_logp, mask), select(advantage, mask)
    return -masked_mean(torch.minimum(x.exp() * a, x.clamp(-clip, clip).exp() * a), mask)


@wrong("The ratio is a difference of logs, not yet a ratio: exp is missing.")
def no_exponential(logp: Tensor, old_logp: Tensor, advantage: Tensor, mask: Tensor, *, clip: float) -> Tensor:
    """log r in place of r."""
    x, a = log_ratio(logp, old_logp, mask), select(advantage, mask)
    return -masked_mean(torch.minimum(x * a, x.clamp(1 - clip, 1 + clip) * a), mask)


@wrong("You divide by all tokens. Padding is in the denominator, so short answers learn less.")
def divided_by_all(logp: Tensor, old_logp: Tensor, advantage: Tensor, mask: Tensor, *, clip: float) -> Tensor:
    """Sum over valid tokens, mean over all."""
    return ppo_loss(logp, old_logp, advantage, mask, clip=clip) * mask.sum() / mask.numel()


@wrong("Each answer is averaged first, then the answers: a token mean counts every token alike.")
def mean_of_means(logp: Tensor, old_logp: Tensor, advantage: Tensor, mask: Tensor, *, clip: float) -> Tensor:
    """sequence_mean."""
    terms = clipped_surrogate(log_ratio(logp, old_logp, mask), select(advantage, mask), clip=clip)
    return -(terms * step_weights(mask, "sequence_mean", dtype=terms.dtype)).sum()


@wrong("That is the sum: the step would grow with the batch and the length of the answers.")
def summed(logp: Tensor, old_logp: Tensor, advantage: Tensor, mask: Tensor, *, clip: float) -> Tensor:
    """Never divided."""
    terms = clipped_surrogate(log_ratio(logp, old_logp, mask), select(advantage, mask), clip=clip)
    return -masked_sum(terms, mask)


@wrong("The loss has the right value and no gradient: logp was detached, or turned into numbers on the way.")
def detached(logp: Tensor, old_logp: Tensor, advantage: Tensor, mask: Tensor, *, clip: float) -> Tensor:
    """No graph."""
    return ppo_loss(logp.detach(), old_logp, advantage, mask, clip=clip)


@wrong("You mask at the very end. The value is right, but a NaN in the padding has already reached the gradient.")
def masked_too_late(logp: Tensor, old_logp: Tensor, advantage: Tensor, mask: Tensor, *, clip: float) -> Tensor:
    """Value right, gradient NaN."""
    r = (logp - old_logp).exp()
    terms = torch.minimum(r * advantage, r.clamp(1 - clip, 1 + clip) * advantage)
    return -torch.where(mask, terms, 0.0).sum() / mask.sum()


@wrong("You multiply by the mask: 0 × NaN is NaN. Pick the tokens that count before the arithmetic.")
def multiplied(logp: Tensor, old_logp: Tensor, advantage: Tensor, mask: Tensor, *, clip: float) -> Tensor:
    """Value NaN."""
    r = (logp - old_logp).exp()
    terms = torch.minimum(r * advantage, r.clamp(1 - clip, 1 + clip) * advantage)
    return -(terms * mask).sum() / mask.sum()


def cases(seed: int) -> tuple[Case, ...]:
    """Ratios on both sides of the band with advantages of both signs, on every seed; then NaN in the padding."""
    toys = Toys("ppo_loss", seed)
    old = toys.logp(2, 6)
    moves = torch.tensor([[0.5, -0.5, 0.5, -0.5, 0.3, 0.3], [0.1, -0.4, 0.9, 0.6, -0.6, 0.05]], dtype=torch.float64)
    signs = torch.tensor([[1, 1, -1, -1, 1, 1], [1, -1, 1, 1, 1, -1]], dtype=torch.float64)
    new = old + moves + toys.normal(2, 6, scale=0.01)
    advantage = signs * toys.away(2, 6).abs()
    plain = {"logp": new, "old_logp": old, "advantage": advantage, "mask": MASK}
    nonsense = {**plain, "logp": spoiled(new, MASK, by=-torch.inf), "old_logp": spoiled(old, MASK, by=-torch.inf)}
    return Case("one minibatch", plain, {"clip": 0.2}), Case("−∞ in the padding", nonsense, {"clip": 0.2})


PPO_LOSS = Exercise(
    name="ppo_loss",
    notebook="10_four_model_rlhf",
    minutes=12,
    lines=4,
    task="Return the loss of one minibatch: minus the mean, over the tokens that count, of min(r A, clip(r, 1 − ε, "
    "1 + ε) A). Its gradient must be right as well, whatever stands in the padding.",
    answer="""\
def ppo_loss(logp, old_logp, advantage, mask, *, clip):
    r = (logp[mask] - old_logp[mask]).exp()
    A = advantage[mask]
    terms = torch.minimum(r * A, r.clamp(1 - clip, 1 + clip) * A)
    return -terms.mean()
""",
    reference=ppo_loss,
    parts=(clipped_surrogate,),
    cases=cases,
    gradient_of=("logp",),
    hints=(
        "Pick what counts first, logp[mask], then padding can hold anything.",
        "The ratio is exp(log π − log π_old); the band is around ratio 1.",
        "torch.minimum of the two products, then the mean, then the sign.",
    ),
    mutants=tuple(wrong),
)
