"""Transfer exercises: nothing in the package answers them, so they are judged by laws that every right answer obeys."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ppo_lab.core.masking import last_step, masked_sum, select
from ppo_lab.course.exercises.exercise import Case, Exercise, Law, Wrong
from ppo_lab.course.exercises.toys import MASK, Toys, spoiled
from ppo_lab.rlhf.rewards import token_rewards

wrong = Wrong()


def _plain(case: Case) -> Tensor:
    """Rewards without any bonus."""
    score, _, logp, ref_logp, mask = case.arguments.values()
    return token_rewards(score, logp, ref_logp, mask, beta=case.options["beta"])


def _everywhere(holds: Callable[[Case, Tensor], object]) -> Callable[[Sequence[Case], Sequence[Tensor]], bool]:
    """A law about single cases."""
    return lambda cases, values: all(bool(holds(case, x)) for case, x in zip(cases, values, strict=True))


def _sums(case: Case, x: Tensor) -> bool:
    score, stopped, logp, ref_logp, mask = case.arguments.values()
    kl = masked_sum(select(logp, mask) - select(ref_logp, mask), mask, dim=-1)
    bonus = torch.where(stopped, case.options["bonus"], -case.options["bonus"])
    return torch.allclose(x.sum(-1), score - case.options["beta"] * kl + bonus, rtol=1e-6, atol=1e-6)


def _before_the_end(case: Case, x: Tensor) -> bool:
    earlier = case.arguments["mask"] & ~last_step(case.arguments["mask"])
    return torch.allclose(x[earlier], _plain(case)[earlier], rtol=1e-6, atol=1e-6)


LAWS = (
    Law("The rewards have one number a token, (B, T).", _everywhere(lambda c, x: x.shape == c.arguments["mask"].shape)),
    Law("What the mask leaves out earns exactly 0.", _everywhere(lambda c, x: (x[~c.arguments["mask"]] == 0).all())),
    Law("With a bonus of 0 every token earns what it did before.",
        _everywhere(lambda c, x: c.options["bonus"] != 0 or torch.allclose(x, _plain(c), rtol=1e-6, atol=1e-6))),
    Law("Tokens before the last do not know of the bonus.", _everywhere(_before_the_end)),
    Law("A row sums to score − β·KL, plus the bonus if it stopped, minus it if it was cut.", _everywhere(_sums)),
)  # fmt: skip


@wrong("paid for every token")
def everywhere(score: Tensor, stopped: Tensor, logp: Tensor, ref_logp: Tensor, mask: Tensor, *, beta: float,
               bonus: float) -> Tensor:  # fmt: skip
    """Bonus on each token."""
    paid = torch.where(stopped, bonus, -bonus)[:, None].expand(mask.shape)
    return token_rewards(score, logp, ref_logp, mask, beta=beta) + select(paid, mask)


@wrong("no charge for answers that were cut")
def never_charged(score: Tensor, stopped: Tensor, logp: Tensor, ref_logp: Tensor, mask: Tensor, *, beta: float,
                  bonus: float) -> Tensor:  # fmt: skip
    """Bonus only."""
    return token_rewards(score + bonus * stopped, logp, ref_logp, mask, beta=beta)


@wrong("stopped turned round")
def turned_round(score: Tensor, stopped: Tensor, logp: Tensor, ref_logp: Tensor, mask: Tensor, *, beta: float,
                 bonus: float) -> Tensor:  # fmt: skip
    """Charged for stopping."""
    return token_rewards(score - torch.where(stopped, bonus, -bonus), logp, ref_logp, mask, beta=beta)


@wrong("in the last column")
def last_column(score: Tensor, stopped: Tensor, logp: Tensor, ref_logp: Tensor, mask: Tensor, *, beta: float,
                bonus: float) -> Tensor:  # fmt: skip
    """Bonus in the padding of short rows."""
    reward = token_rewards(score, logp, ref_logp, mask, beta=beta)
    return torch.cat([reward[:, :-1], reward[:, -1:] + torch.where(stopped, bonus, -bonus)[:, None]], dim=-1)


@wrong("in place of the score")
def replaces(score: Tensor, stopped: Tensor, logp: Tensor, ref_logp: Tensor, mask: Tensor, *, beta: float,
             bonus: float) -> Tensor:  # fmt: skip
    """Score lost."""
    return token_rewards(torch.where(stopped, bonus, -bonus), logp, ref_logp, mask, beta=beta)


@wrong("one number a row")
def one_a_row(score: Tensor, stopped: Tensor, logp: Tensor, ref_logp: Tensor, mask: Tensor, *, beta: float,
              bonus: float) -> Tensor:  # fmt: skip
    """Summed."""
    paid = score + torch.where(stopped, bonus, -bonus)
    return token_rewards(paid, logp, ref_logp, mask, beta=beta).sum(-1)


def cases(seed: int) -> Sequence[Case]:
    """One answer that stopped and one that was cut, with a bonus and without."""
    toys = Toys("stop_bonus", seed)
    logp = toys.logp(2, 6)
    given = {"score": toys.away(2), "stopped": torch.tensor([True, False]), "logp": logp,
             "ref_logp": logp + toys.away(2, 6), "mask": MASK}  # fmt: skip
    nonsense = {**given, "logp": spoiled(logp, MASK)}
    return Case("a bonus", given, {"beta": 0.1, "bonus": 0.7}), Case("no bonus", nonsense, {"beta": 0.2, "bonus": 0.0})


STOP_BONUS = Exercise(
    name="stop_bonus",
    notebook="10_four_model_rlhf",
    minutes=10,
    lines=2,
    heading="stop_bonus(score, stopped, logp, ref_logp, mask, *, beta, bonus)",
    task="Answers that run into the cap never end. Return token rewards as before, but let the last token that counts "
    "earn bonus as well if the answer stopped by itself, and lose it if it was cut. Shape (B, T).",
    laws=LAWS,
    cases=cases,
    hints=(
        "You have written token rewards already: what changes, and where?",
        "stopped has one entry a row; the bonus belongs to one token a row.",
        "Changing the score before it is placed changes the last token only.",
    ),
    mutants=tuple(wrong),
)
