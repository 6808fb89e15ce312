"""Exercises of notebook 08: log-probs without an off-by-one, the mask of an answer, the price of leaving."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ppo_lab.core.masking import last_step, length_mask, select
from ppo_lab.course.exercises.exercise import Case, Exercise, Wrong
from ppo_lab.course.exercises.toys import MASK, Toys, spoiled
from ppo_lab.rlhf.logprobs import token_logprobs
from ppo_lab.rlhf.rewards import token_rewards

gathering = Wrong()


def answer_logps(logits: Tensor, tokens: Tensor, *, start: int) -> Tensor:
    """log π of the tokens from ``start`` on, each read where it is predicted."""
    return token_logprobs(logits[:, start - 1 : -1], tokens[:, start:])


@gathering("The logits at a token's own place predict the next one. A token is predicted one place earlier.")
def not_shifted(logits: Tensor, tokens: Tensor, *, start: int) -> Tensor:
    """Logits at t for the token at t."""
    return token_logprobs(logits[:, start:], tokens[:, start:])


@gathering("Shifted the wrong way, or twice: you read two places before the token.")
def shifted_twice(logits: Tensor, tokens: Tensor, *, start: int) -> Tensor:
    """Logits at t − 2."""
    return token_logprobs(logits[:, start - 2 : -2], tokens[:, start:])


@gathering("These are raw logits. A log-prob also subtracts the log of the sum over the whole vocabulary.")
def raw_logits(logits: Tensor, tokens: Tensor, *, start: int) -> Tensor:
    """Never normalised."""
    return logits[:, start - 1 : -1].gather(-1, tokens[:, start:, None])[..., 0]


@gathering("These are probabilities. Their logarithm is asked for: products of many of them underflow.")
def probabilities(logits: Tensor, tokens: Tensor, *, start: int) -> Tensor:
    """exp of the right answer."""
    return answer_logps(logits, tokens, start=start).exp()


@gathering("You normalise over time. The softmax runs over the vocabulary, the last dimension.")
def over_time(logits: Tensor, tokens: Tensor, *, start: int) -> Tensor:
    """Softmax along dimension 1."""
    return logits.log_softmax(1)[:, start - 1 : -1].gather(-1, tokens[:, start:, None])[..., 0]


@gathering("You take the likeliest token's log-prob. Asked for is that of the token which was sampled.")
def of_the_best(logits: Tensor, tokens: Tensor, *, start: int) -> Tensor:
    """Max in place of gather."""
    return logits.log_softmax(-1)[:, start - 1 : -1].amax(-1)


@gathering("The first token of the answer is missing: the last place of the prompt predicts it.")
def one_short(logits: Tensor, tokens: Tensor, *, start: int) -> Tensor:
    """From the second token on."""
    return answer_logps(logits, tokens, start=start)[:, 1:]


@gathering("One number a token is asked for, (B, L − start); you sum over the answer.")
def summed(logits: Tensor, tokens: Tensor, *, start: int) -> Tensor:
    """Sequence log-prob."""
    return answer_logps(logits, tokens, start=start).sum(-1)


def gather_cases(seed: int) -> Sequence[Case]:
    """Two prompts of three tokens with four tokens of answer, five words."""
    toys = Toys("answer_logps", seed)
    logits = toys.normal(2, 7, 5, scale=2.0)
    tokens = (toys.away(2, 7).abs() * 1000).long() % 5
    return (Case("two answers", {"logits": logits, "tokens": tokens}, {"start": 3}),)


ANSWER_LOGPS = Exercise(
    name="answer_logps",
    notebook="08_language_as_mdp",
    minutes=8,
    lines=3,
    task="logits (B, L, V) come from the tokens (B, L); the prompt is the first start tokens. Return log π of every "
    "token of the answer, (B, L − start): log-softmax over the vocabulary, read where the token is predicted.",
    answer="""\
def answer_logps(logits, tokens, *, start):
    predicting = logits[:, start - 1 : -1].log_softmax(-1)
    answer = tokens[:, start:, None]
    return predicting.gather(-1, answer)[..., 0]
""",
    reference=answer_logps,
    parts=(token_logprobs,),
    cases=gather_cases,
    hints=(
        "Which row of logits knew nothing of token t yet, but all before it?",
        "The first token of the answer stands at start and is predicted at start − 1; the last row predicts nothing.",
        "log_softmax over the last dimension, then gather with tokens[..., None].",
    ),
    mutants=tuple(gathering),
)

# --- the mask of an answer -------------------------------------------------------------------------------------------

masking = Wrong()


def response_mask(response: Tensor, *, stop: int) -> Tensor:
    """True up to and including the first stop token; all True where there is none."""
    found = response == stop
    length = torch.where(found.any(-1), found.int().argmax(-1) + 1, response.shape[-1])
    return length_mask(length, steps=response.shape[-1])


@masking("The stop token itself is missing. It was chosen by the policy like any other, and it carries the score.")
def without_the_stop(response: Tensor, *, stop: int) -> Tensor:
    """Up to, not including."""
    return (response == stop).cumsum(-1) == 0


@masking("You mask by the id. Where padding has the id of the stop token, the real one vanishes with it.")
def by_id(response: Tensor, *, stop: int) -> Tensor:
    """ids != pad."""
    return response != stop


@masking("Everything counts, what was generated after the end as well.")
def everything(response: Tensor, *, stop: int) -> Tensor:
    """No mask."""
    return torch.ones_like(response, dtype=torch.bool)


@masking("You look for the last stop token. What comes after the first one is no part of the answer.")
def to_the_last(response: Tensor, *, stop: int) -> Tensor:
    """Up to the last stop token."""
    after = (response == stop).flip(-1).cumsum(-1).flip(-1) > 0
    return after | ~(response == stop).any(-1, keepdim=True)


@masking("One token too many: the one after the stop token does not count.")
def one_more(response: Tensor, *, stop: int) -> Tensor:
    """Length + 1."""
    mask = response_mask(response, stop=stop)
    return mask | torch.cat([mask[:, :1], mask[:, :-1]], dim=-1)


@masking("An answer that ran into the cap has no stop token, and it counts as a whole; yours is empty.")
def empty_without_stop(response: Tensor, *, stop: int) -> Tensor:
    """Length argmax + 1 of an all-False row, taken at its word."""
    return response_mask(response, stop=stop) & (response == stop).any(-1, keepdim=True)


@masking("Turned round: True means that the token counts.")
def turned_round(response: Tensor, *, stop: int) -> Tensor:
    """~mask."""
    return ~response_mask(response, stop=stop)


def mask_cases(seed: int) -> Sequence[Case]:
    """An end in the middle, text after the end, an end at once; padding has the id of the stop token. Then no end."""
    words = 3 + (Toys("response_mask", seed).away(5, 6).abs() * 1000).long() % 7
    words[0, 3:] = 2
    words[1, 1], words[1, 4] = 2, 2
    words[2, :] = 2
    words[4, 4] = 2
    return (Case("answers that stop", {"response": words[:3]}, {"stop": 2}),
            Case("one runs into the cap", {"response": words[3:] + 4}, {"stop": 6}))  # fmt: skip


RESPONSE_MASK = Exercise(
    name="response_mask",
    notebook="08_language_as_mdp",
    minutes=6,
    lines=2,
    task="Return a bool mask (B, T): True for every token of the answer up to and including its first stop token, all "
    "True where there is none. Padding may have the id of the stop token.",
    answer="""\
def response_mask(response, *, stop):
    stops = (response == stop).int()
    return stops.cumsum(dim=1) - stops == 0
""",
    reference=response_mask,
    parts=(length_mask,),
    cases=mask_cases,
    hints=(
        "A token counts if no stop token came before it.",
        "cumsum counts the stop tokens up to a place, itself included: the first one must still count.",
        "The count without the token's own: cumsum minus itself. Compare it with 0.",
    ),
    mutants=tuple(masking),
)

# --- the price of leaving --------------------------------------------------------------------------------------------

pricing = Wrong()


def kl_rewards(logp: Tensor, ref_logp: Tensor, mask: Tensor, *, beta: float) -> Tensor:
    """−β (log π − log π_ref) on each token that counts, 0 elsewhere."""
    return token_rewards(torch.zeros_like(logp[:, 0]), logp, ref_logp, mask, beta=beta)


@pricing("The sign is wrong: this pays the policy for leaving the reference.")
def paid_for_leaving(logp: Tensor, ref_logp: Tensor, mask: Tensor, *, beta: float) -> Tensor:
    """+β."""
    return -kl_rewards(logp, ref_logp, mask, beta=beta)


@pricing("That is a quotient of probabilities. The log-ratio is a difference, and only its sum is the answer's KL.")
def ratio(logp: Tensor, ref_logp: Tensor, mask: Tensor, *, beta: float) -> Tensor:
    """π/π_ref."""
    return select(-beta * (logp - ref_logp).exp(), mask)


@pricing("β is missing.")
def beta_forgotten(logp: Tensor, ref_logp: Tensor, mask: Tensor, *, beta: float) -> Tensor:
    """β = 1."""
    return kl_rewards(logp, ref_logp, mask, beta=1.0)


@pricing("Multiplying by the mask lets NaN through: 0 × NaN is NaN. Select instead.")
def multiplied(logp: Tensor, ref_logp: Tensor, mask: Tensor, *, beta: float) -> Tensor:
    """times mask."""
    return -beta * (logp - ref_logp) * mask


@pricing("Padding pays as well. Nobody chose it: it must earn exactly 0.")
def unmasked(logp: Tensor, ref_logp: Tensor, mask: Tensor, *, beta: float) -> Tensor:
    """No mask."""
    return -beta * (logp - ref_logp)


@pricing("The whole price stands on the last token. Each token is charged for its own step away.")
def all_at_the_end(logp: Tensor, ref_logp: Tensor, mask: Tensor, *, beta: float) -> Tensor:
    """Right sum, wrong place."""
    total = kl_rewards(logp, ref_logp, mask, beta=beta).sum(-1, keepdim=True)
    return select(total.expand(mask.shape), last_step(mask))


@pricing("Never positive? Yours is a square or an absolute value. One token may be cheaper than free; the sum counts.")
def never_positive(logp: Tensor, ref_logp: Tensor, mask: Tensor, *, beta: float) -> Tensor:
    """−β |log-ratio|."""
    return -kl_rewards(logp, ref_logp, mask, beta=beta).abs()


def price_cases(seed: int) -> Sequence[Case]:
    """Padding and a hole; then NaN where nothing counts."""
    toys = Toys("kl_rewards", seed)
    logp = toys.logp(2, 6)
    ref_logp = logp + toys.away(2, 6, most=1.0)
    plain = {"logp": logp, "ref_logp": ref_logp, "mask": MASK}
    nonsense = {**plain, "logp": spoiled(logp, MASK), "ref_logp": spoiled(ref_logp, MASK, by=1e6)}
    return Case("two answers", plain, {"beta": 0.1}), Case("NaN in the padding", nonsense, {"beta": 0.5})


KL_REWARDS = Exercise(
    name="kl_rewards",
    notebook="08_language_as_mdp",
    minutes=5,
    lines=1,
    task="Return what each token pays for leaving the reference, (B, T): −β (log π − log π_ref) where the mask is "
    "True, exactly 0 elsewhere.",
    answer="def kl_rewards(logp, ref_logp, mask, *, beta):\n"
    "    return torch.where(mask, -beta * (logp - ref_logp), 0.0)\n",
    reference=kl_rewards,
    parts=(token_rewards,),
    cases=price_cases,
    hints=(
        "A token that became likelier than under the reference pays; one that became rarer earns.",
        "Difference of logs, times β, with a minus.",
        "torch.where(mask, price, 0.0) selects before NaN can spread.",
    ),
    mutants=tuple(pricing),
)
