"""Which KL estimator may stand where, with the gradients computed for all to see."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from ppo_lab.core.kl import categorical_kl, k1, k2, k3
from ppo_lab.course.docs.markdown import table
from ppo_lab.exact.language import make_language
from ppo_lab.exact.optimum import Comparison, compare

POLICY, REFERENCE = (0.60, 0.39, 0.01), (0.20, 0.20, 0.60)  # the policy has almost given up the reference's favourite
ESTIMATORS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"k1": k1, "k2": k2, "k3": k3}
NOTHING = 1e-12
LENGTHS, BETAS = (1, 2, 4), (0.1, 0.5)  # of the languages that show where the KL in the loss ends


def logits() -> tuple[Tensor, Tensor]:
    """The policy's, with a gradient, and the reference's."""
    return (torch.tensor(POLICY, dtype=torch.float64).log().requires_grad_(True),
            torch.tensor(REFERENCE, dtype=torch.float64).log())  # fmt: skip


def gradient_of_kl(*, forward: bool = False) -> Tensor:
    """∇KL(π‖π_ref) in the policy's logits, exactly; ``forward``: of KL(π_ref‖π)."""
    policy, reference = logits()
    kl = categorical_kl(reference, policy) if forward else categorical_kl(policy, reference)
    return torch.autograd.grad(kl, policy)[0]


def in_loss(name: str) -> Tensor:
    """E_{y~π} ∇k(log π(y), log π_ref(y)): what a step on the loss does on average, samples held fixed."""
    policy, reference = logits()
    logp = policy.log_softmax(-1)
    return torch.autograd.grad((logp.exp().detach() * ESTIMATORS[name](logp, reference)).sum(), policy)[0]


def in_reward(name: str) -> Tensor:
    """E_{y~π} k ∇log π(y): the push of the policy gradient against −k as a reward, as a gradient to descend."""
    policy, reference = logits()
    logp = policy.log_softmax(-1)
    estimate = ESTIMATORS[name](logp, reference).detach()
    return torch.autograd.grad((logp.exp().detach() * estimate * logp).sum(), policy)[0]


def cosine(a: Tensor, b: Tensor) -> float | None:
    """Of the angle between two gradients; None where one of them vanishes."""
    if min(a.norm(), b.norm()) < NOTHING:
        return None
    return float(a @ b / (a.norm() * b.norm()))


def compared(push: Tensor, truth: Tensor) -> str:
    """In words: how long the push is, and where it points."""
    angle = cosine(push, truth)
    if angle is None:
        return "0"
    return f"{float(push.norm() / truth.norm()):.2f} times as long, cosine {angle:+.2f}".replace("-", "−")


def where_the_loss_ends(length: int, beta: float) -> Comparison:
    """The fixed point of a per-token KL in the loss, held against π*, on a language of 4 tokens and this length."""
    language = make_language(0, length=length)
    logp = language.logp_of(language.myopic_logits(beta))
    return compare(logp, language.ref_logp, language.reward, beta=beta)


def kl_estimators(root: Path) -> str:
    """The page."""
    truth = gradient_of_kl()
    rows = [(name, compared(in_reward(name), truth), compared(in_loss(name), truth)) for name in ESTIMATORS]
    rows.append(("exact", "–", compared(gradient_of_kl(), truth)))
    head = ("estimator", "push from the reward, against ∇KL(π‖π_ref)", "push from the loss, against ∇KL(π‖π_ref)")
    forward = compared(in_loss("k3"), gradient_of_kl(forward=True))
    ends = [(str(n), f"{beta:g}", f"{found.kl_to_optimum:.3f}", f"{found.regret:.1%}")
            for n in LENGTHS for beta in BETAS for found in [where_the_loss_ends(n, beta)]]  # fmt: skip
    return f"""\
# Which KL estimator may stand where

With D = log π(y) − log π_ref(y) of a sampled token: k1 = D, k2 = ½ D², k3 = e^(−D) − 1 + D. "Exact" sums over the whole
vocabulary. All estimate KL(π‖π_ref) from samples of π; as *values* k1 and k3 are unbiased. What counts in training
is the *gradient*, and that depends on where the estimator stands.

{RULES}

## Computed, not quoted

Three tokens, π = {POLICY}, π_ref = {REFERENCE}, expectations over all tokens in float64, gradients in the policy's
logits:

{table(head, rows)}

Against ∇KL(π_ref‖π), k3 in the loss is {forward}. The same numbers are checked by a test, and `ppo_lab.core.kl` holds
the functions.

{SEQUENCES}

{table(("tokens in an answer", "β", "KL(π‖π*), nats", "regret (J* − J) / (J* − J_ref)"), ends)}

{PLACES}"""


RULES = table(
    ("estimator", "in the reward (`kl.placement: reward`)", "in the loss (`kl.placement: loss`)", "in a log"),
    (
        ("k1", "**yes**, the default: unbiased; its sum is the sequence's log-ratio",
         "no: its expected gradient is zero, only noise remains", "yes; may be negative"),
        ("k2", "no: a biased price",
         "**per token**: its expected gradient is that of the token's KL(π‖π_ref); over several tokens another optimum",
         "biased"),
        ("k3", "allowed, and can point the wrong way: it subtracts the gradient of KL(π_ref‖π)",
         "no: its expected gradient is that of the other direction, KL(π_ref‖π)", "yes; never negative"),
        ("exact", "refused: the reward is of one token", "**per token**, like k2 and without sampling noise", "yes"),
    ),
)  # fmt: skip
SEQUENCES = """\
## Over more than one token the loss has another optimum

All of the above is true of one token. In an answer of T > 1 tokens, k2 or the exact KL in the loss charges each token
for its own divergence and not for the divergence that it leads to later: the gradient of the loss holds the sampled
prefixes fixed. So a token is worth the plain reward that follows it, and training converges, but not to
π* ∝ π_ref exp(R/β). k1 in the reward converges to π*, since GAE (γ = 1) carries the later price back to the token that
caused it; so would ½ (Σ D)² of the whole answer in the loss, which no setting here offers.

Computed by listing all answers of a language of 4 tokens: how far the fixed point of the KL in the loss lies from π*.
It is the place where the KL in the reward has 0 in both columns. A test trains PPO to each of the two places."""
PLACES = """\
## Conventions that go with it

- **The score sits on the last valid token**, the stop token where there is one; a capped answer is terminated there
  too, since the reward model read all of it. Each valid token carries −β·k1 of its own:
  r_t = −β (log π − log π_ref)_t, plus R(x, y) at the last. The sum of a row is R − β·KL of the sequence.
- **π in the reward is the policy at rollout**, computed once. It does not move during the epochs.
- **Where β acts, in the reward:** before GAE. It is a price in units of the score a nat, passes through critic, γ
  and λ, and is standardised together with the score.
- **Where β acts, in the loss:** β times the estimator is added to the loss, token by token, beside advantages that may
  have been standardised. So the same number means another strength there, and it acts in every epoch, on the
  policy as it moves.
- **A controller of β** (`kl.controller`) reads the summed k1 a sequence of the rollout just collected and sets the β of
  the next.
- **Not to be confused with the policy KL** (`policy_kl_k1`, `policy_kl_k3`), KL(π_old‖π) from samples of π_old, which
  early stopping reads and which no β of this page touches.

Source: Schulman 2020, Approximating KL divergence; Ziegler et al. 2019, section 2.2; Ouyang et al. 2022, equation 2;
Tang & Munos 2025, On a few pitfalls in KL divergence gradient estimation for RL.
"""
