"""What the page on KL estimators says of answers with more than one token, against enumeration."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from ppo_lab.core import kl
from ppo_lab.core.masking import masked_sum
from ppo_lab.course.docs import kl as page
from ppo_lab.exact.language import Language, make_language

ROOT = Path(__file__).resolve().parent.parent
TEXT = page.kl_estimators(ROOT)


def policy(world: Language) -> Tensor:
    return (0.5 * world.ref_logits.flip(0)).requires_grad_()


def ratios(world: Language, logits: Tensor) -> tuple[Tensor, Tensor]:
    """log π and log π_ref of each token of each answer, (S, T)."""
    prefix = world.walk(world.sequence)[:, :-1].clamp(min=0)
    logp, ref = (x.log_softmax(-1)[prefix, world.sequence] for x in (logits, world.ref_logits))
    return logp, ref


def in_loss(world: Language, *, whole: bool) -> Tensor:
    """Expected gradient of k2 in the loss: of each token, or of the answer's summed log-ratio."""
    logits = policy(world)
    logp, ref = ratios(world, logits)
    share = masked_sum(logp, world.mask, dim=-1).exp().detach()
    d = masked_sum(kl.k1(logp, ref), world.mask, dim=-1)
    term = d.square() / 2 if whole else masked_sum(kl.k2(logp, ref), world.mask, dim=-1)
    return torch.autograd.grad((share * term).sum(), logits)[0]


def of_the_sequence(world: Language) -> Tensor:
    """∇KL(π‖π_ref) of whole answers."""
    logits = policy(world)
    logp = world.logp_of(logits)
    return torch.autograd.grad((logp.exp() * (logp - world.ref_logp)).sum(), logits)[0]


@pytest.mark.parametrize("length", [1, 2, 3])
def test_k2_in_the_loss_is_the_kl_of_a_token_and_not_of_an_answer(length: int) -> None:
    world = make_language(1, tokens=3, length=length, stop=True)
    truth = of_the_sequence(world)
    assert (in_loss(world, whole=True) - truth).abs().max() < 1e-12
    gap = (in_loss(world, whole=False) - truth).abs().max()
    assert gap < 1e-12 if length == 1 else gap > 0.01


def test_the_page_and_the_docstring_say_so() -> None:
    for name in ("k2", "exact"):
        first = next(line for line in TEXT.splitlines() if line.startswith(f"| {name} |"))
        assert "**per token**" in first and "**yes**" not in first
    assert "not to\nπ* ∝ π_ref exp(R/β)" in TEXT and "Tang & Munos 2025" in TEXT
    assert "Tang & Munos 2025" in (kl.k2.__doc__ or "") and "another policy than π*" in (kl.__doc__ or "")


@pytest.mark.parametrize("beta", page.BETAS)
def test_the_numbers_on_the_page(beta: float) -> None:
    one, two, four = (page.where_the_loss_ends(n, beta) for n in page.LENGTHS)
    assert one.kl_to_optimum < 1e-12 and min(two.kl_to_optimum, four.kl_to_optimum) > 0.01
    assert f"| 4 | {beta:g} | {four.kl_to_optimum:.3f} | {four.regret:.1%} |" in TEXT
