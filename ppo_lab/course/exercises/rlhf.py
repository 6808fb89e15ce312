"""Exercises of the RLHF loop: rewards on tokens, and the controller of β. (The update is in `update.py`.)"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from ppo_lab.core import kl as estimators
from ppo_lab.core.kl import next_beta
from ppo_lab.core.masking import last_step, masked_sum, select
from ppo_lab.course.exercises.exercise import Case, Exercise, Wrong
from ppo_lab.course.exercises.toys import MASK, Toys, spoiled
from ppo_lab.rlhf.rewards import token_rewards

wrong = Wrong()


@wrong("The KL term pays the policy for leaving the reference. It is a price: subtract β (log π − log π_ref).")
def sign_of_the_kl(score: Tensor, logp: Tensor, ref_logp: Tensor, mask: Tensor, *, beta: float) -> Tensor:
    """+β (log π − log π_ref)."""
    return token_rewards(score, ref_logp, logp, mask, beta=beta)


@wrong("Every token gets the whole score. The reward model read the finished answer: only the last token earns it.")
def score_on_every_token(score: Tensor, logp: Tensor, ref_logp: Tensor, mask: Tensor, *, beta: float) -> Tensor:
    """Score everywhere."""
    return token_rewards(score * 0, logp, ref_logp, mask, beta=beta) + select(score[:, None].expand(mask.shape), mask)


@wrong("The score sits in the last column: padding, in a short answer. It belongs on the last token that counts.")
def last_column(score: Tensor, logp: Tensor, ref_logp: Tensor, mask: Tensor, *, beta: float) -> Tensor:
    """Score at T − 1."""
    reward = token_rewards(score * 0, logp, ref_logp, mask, beta=beta)
    return torch.cat([reward[:, :-1], reward[:, -1:] + score[:, None]], dim=-1)


@wrong("The score is one place off: it stands where mask.sum() − 1 points, and a mask may have a hole in the middle.")
def counted_not_located(score: Tensor, logp: Tensor, ref_logp: Tensor, mask: Tensor, *, beta: float) -> Tensor:
    """Score at the number of valid tokens − 1."""
    reward = token_rewards(score * 0, logp, ref_logp, mask, beta=beta)
    return reward.scatter_add(-1, mask.sum(-1, keepdim=True) - 1, score[:, None])


@wrong("The score lands on the first padding token, one after the last that counts: nobody is credited with it.")
def one_late(score: Tensor, logp: Tensor, ref_logp: Tensor, mask: Tensor, *, beta: float) -> Tensor:
    """Score one step after the end (lost where the answer fills the row)."""
    late = torch.nn.functional.pad(last_step(mask), (1, 0))[..., :-1]
    return token_rewards(score * 0, logp, ref_logp, mask, beta=beta) + select(score[:, None].expand(mask.shape), late)


@wrong("The last token lost its KL: the score is added to it, not put in its place.")
def score_replaces_kl(score: Tensor, logp: Tensor, ref_logp: Tensor, mask: Tensor, *, beta: float) -> Tensor:
    """Assignment where a sum belongs."""
    return torch.where(last_step(mask), score[:, None], token_rewards(score, logp, ref_logp, mask, beta=beta))


@wrong("The KL of padding is still in it. Padding was never chosen by anybody: it must earn exactly 0.")
def padding_counts(score: Tensor, logp: Tensor, ref_logp: Tensor, mask: Tensor, *, beta: float) -> Tensor:
    """KL without the mask."""
    return select(score[:, None].expand(mask.shape), last_step(mask)) - beta * (logp - ref_logp)


@wrong("The whole KL of the answer sits on its last token. It is known token by token, and so is whose fault it is.")
def kl_at_the_end(score: Tensor, logp: Tensor, ref_logp: Tensor, mask: Tensor, *, beta: float) -> Tensor:
    """Right sum, wrong place."""
    total = score - beta * masked_sum(estimators.k1(select(logp, mask), select(ref_logp, mask)), mask, dim=-1)
    return select(total[:, None].expand(mask.shape), last_step(mask))


@wrong("β is missing: a nat of KL costs 1 whatever the setting.")
def beta_forgotten(score: Tensor, logp: Tensor, ref_logp: Tensor, mask: Tensor, *, beta: float) -> Tensor:
    """β = 1."""
    return token_rewards(score, logp, ref_logp, mask, beta=1.0)


@wrong("You multiply the score by β as well. β is the price of the KL alone.")
def beta_on_both(score: Tensor, logp: Tensor, ref_logp: Tensor, mask: Tensor, *, beta: float) -> Tensor:
    """β (score − KL)."""
    return token_rewards(beta * score, logp, ref_logp, mask, beta=beta)


@wrong("That is a quotient of probabilities, not a difference of logarithms: its sum is not the KL of the answer.")
def ratio_for_difference(score: Tensor, logp: Tensor, ref_logp: Tensor, mask: Tensor, *, beta: float) -> Tensor:
    """π/π_ref − 1 in place of log π − log π_ref."""
    ratio = torch.expm1(select(logp, mask) - select(ref_logp, mask))
    return select(score[:, None].expand(mask.shape), last_step(mask)) - beta * select(ratio, mask)


@wrong("You divide the KL by the length. Then a long answer pays less a token, and the sum is no longer score − β·KL.")
def kl_averaged(score: Tensor, logp: Tensor, ref_logp: Tensor, mask: Tensor, *, beta: float) -> Tensor:
    """Mean instead of sum over tokens."""
    length = mask.sum(-1, keepdim=True)
    kl = estimators.k1(select(logp, mask), select(ref_logp, mask))
    return select(score[:, None].expand(mask.shape), last_step(mask)) - beta * kl / length


@wrong("You multiply by the mask: 0 × NaN is NaN. Pick the tokens that count before the arithmetic.")
def multiplied(score: Tensor, logp: Tensor, ref_logp: Tensor, mask: Tensor, *, beta: float) -> Tensor:
    """Right wherever padding holds numbers."""
    return select(score[:, None].expand(mask.shape), last_step(mask)) - beta * (logp - ref_logp) * mask


def reward_cases(seed: int) -> Sequence[Case]:
    """Padding, a hole, and nonsense where nothing counts."""
    toys = Toys("token_rewards", seed)
    score, logp = toys.away(2), toys.logp(2, 6)
    ref_logp = logp + toys.away(2, 6, most=1.0)
    plain = {"score": score, "logp": logp, "ref_logp": ref_logp, "mask": MASK}
    nonsense = {**plain, "logp": spoiled(logp, MASK), "ref_logp": spoiled(ref_logp, MASK, by=1e6)}
    return Case("two answers", plain, {"beta": 0.1}), Case("NaN in the padding", nonsense, {"beta": 0.5})


def reward_places(case: Case) -> Mapping[str, Tensor]:
    """Steps that one mistake may share."""
    mask = case.arguments["mask"]
    return {"what the mask leaves out": ~mask, "the last token that counts": last_step(mask)}


TOKEN_REWARDS = Exercise(
    name="token_rewards",
    notebook="10_four_model_rlhf",
    minutes=10,
    lines=4,
    task="Return the reward of every token, shape (B, T): −β (log π − log π_ref) on each token that counts, plus the "
    "score of the answer on the last of them, and exactly 0 where the mask is False. A mask may have holes (tokens "
    "that a tool wrote).",
    answer="""\
def token_rewards(score, logp, ref_logp, mask, *, beta):
    reward = torch.where(mask, -beta * (logp - ref_logp), 0.0)
    steps = torch.arange(mask.shape[1]).expand_as(mask)
    last = torch.where(mask, steps, -1).amax(dim=1)
    return reward + torch.where(steps == last[:, None], score[:, None], 0.0)
""",
    reference=token_rewards,
    parts=(last_step, select),
    cases=reward_cases,
    places=reward_places,
    hints=(
        "There are two parts: a price on every token, and one payment at the end. Write the price first.",
        "torch.where(mask, price, 0.0) selects; multiplying by the mask lets NaN through.",
        "The last token that counts: the largest step number among those where the mask is True.",
    ),
    mutants=tuple(wrong),
)

# --- adaptive β ------------------------------------------------------------------------------------------------------

drift = Wrong()


@drift("The controller runs the wrong way: a KL above its target must raise β, so that leaving costs more.")
def runs_away(beta: float, kl: float, *, target: float, horizon: float, n_steps: float) -> float:
    """Feedback of the wrong sign."""
    return beta * (1 - min(max(kl / target - 1, -0.2), 0.2) * n_steps / horizon)


@drift("The error is not clipped to ±0.2: one strange rollout can throw β far off.")
def not_clipped(beta: float, kl: float, *, target: float, horizon: float, n_steps: float) -> float:
    """No bound on the error."""
    return beta * (1 + (kl / target - 1) * n_steps / horizon)


@drift("You clip only from above. Far below the target β would then fall too fast.")
def clipped_above(beta: float, kl: float, *, target: float, horizon: float, n_steps: float) -> float:
    """One side only."""
    return beta * (1 + min(kl / target - 1, 0.2) * n_steps / horizon)


@drift("The error is a difference in nats, not a share of the target: kl / target − 1.")
def absolute_error(beta: float, kl: float, *, target: float, horizon: float, n_steps: float) -> float:
    """Not divided by the target."""
    return beta * (1 + min(max(kl - target, -0.2), 0.2) * n_steps / horizon)


@drift("You take target / kl. Far above the target this hardly differs from −1, and below it explodes.")
def upside_down(beta: float, kl: float, *, target: float, horizon: float, n_steps: float) -> float:
    """Ratio upside down, sign mended."""
    return beta * (1 + min(max(1 - target / kl, -0.2), 0.2) * n_steps / horizon)


@drift("n_steps and horizon are swapped: a longer horizon must make β slower.")
def swapped(beta: float, kl: float, *, target: float, horizon: float, n_steps: float) -> float:
    """Horizon over steps."""
    return beta * (1 + min(max(kl / target - 1, -0.2), 0.2) * horizon / n_steps)


@drift("n_steps / horizon is missing, so β moves by the whole error at every rollout, however small.")
def no_horizon(beta: float, kl: float, *, target: float, horizon: float, n_steps: float) -> float:
    """The error alone."""
    return beta * (1 + min(max(kl / target - 1, -0.2), 0.2))


@drift("You add to β. It is multiplied, so that it can neither turn negative nor depend on the unit of the score.")
def added(beta: float, kl: float, *, target: float, horizon: float, n_steps: float) -> float:
    """Sum in place of product."""
    return beta + min(max(kl / target - 1, -0.2), 0.2) * n_steps / horizon


@drift("You give back the factor. The new β is the old one times it.")
def factor_only(beta: float, kl: float, *, target: float, horizon: float, n_steps: float) -> float:
    """β left out."""
    return 1 + min(max(kl / target - 1, -0.2), 0.2) * n_steps / horizon


@drift("You clip after multiplying with n_steps / horizon: the bound ±0.2 is on the error itself.")
def clipped_late(beta: float, kl: float, *, target: float, horizon: float, n_steps: float) -> float:
    """Clip of the whole change."""
    return beta * (1 + min(max((kl / target - 1) * n_steps / horizon, -0.2), 0.2))


def adaptive_beta(beta: float, kl: float, *, target: float, horizon: float, n_steps: float) -> float:
    """The proportional rule of `next_beta`."""
    return next_beta(beta, kl, target=target, rule="proportional", horizon=horizon, n_steps=n_steps)


def beta_cases(seed: int) -> Sequence[Case]:
    """KL far above, a little above, a little below and far below its target; then a rollout as long as the horizon."""
    jitter = (0.02 * Toys("adaptive_beta", seed).normal(4).tanh()).tolist()
    common = {"target": 6.0, "horizon": 1000.0, "n_steps": 128.0}
    found = [
        Case(name, {"beta": 0.2 * math.exp(noise), "kl": kl + noise}, common)
        for (name, kl), noise in zip(
            (("KL far above target", 30.0), ("KL a little above target", 6.6),
             ("KL a little below target", 5.4), ("KL far below target", 0.5)),
            jitter, strict=True,
        )
    ]  # fmt: skip
    return *found, Case("a long rollout", {"beta": 0.05, "kl": 6.9}, {**common, "n_steps": 2000.0})


ADAPTIVE_BETA = Exercise(
    name="adaptive_beta",
    notebook="10_four_model_rlhf",
    minutes=6,
    lines=2,
    task="Return the next β: β (1 + clip(KL / target − 1, ±0.2) · n_steps / horizon). All are plain numbers; "
    "n_steps and horizon are counted in answers.",
    answer="""\
def adaptive_beta(beta, kl, *, target, horizon, n_steps):
    error = min(max(kl / target - 1, -0.2), 0.2)
    return beta * (1 + error * n_steps / horizon)
""",
    reference=adaptive_beta,
    parts=(next_beta,),
    cases=beta_cases,
    hints=(
        "Above its target the KL is too cheap: should β rise or fall?",
        "The error is a share of the target, and bounded to ±0.2 before anything else.",
        "A rollout of n_steps answers moves β by error · n_steps / horizon of itself.",
    ),
    mutants=tuple(drift),
)
