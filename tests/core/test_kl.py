"""KL by enumeration, what each estimator's gradient really is, distributions against torch's, and the β controllers."""

from __future__ import annotations

import math

import torch
from material import gradient, normal, same
from torch import Tensor
from torch.distributions import Categorical, Normal, kl_divergence

from ppo_lab.core import distributions, kl

INF = math.inf
ESTIMATORS = (kl.k1, kl.k2, kl.k3)


def expected(estimator, logits: Tensor, ref: Tensor) -> Tensor:
    """E over a ~ π of the estimator, the weights held constant as samples are."""
    logp, ref_logp = logits.log_softmax(-1), ref.log_softmax(-1)
    return (logp.detach().exp() * estimator(logp, ref_logp)).sum()


def test_k1_and_k3_are_unbiased_and_k2_is_not() -> None:
    p, q = normal(7), normal(7, seed=1)
    exact = kl.categorical_kl(p, q)
    assert same(exact, kl_divergence(Categorical(logits=p), Categorical(logits=q)))
    assert same(expected(kl.k1, p, q), exact) and same(expected(kl.k3, p, q), exact)
    assert abs(expected(kl.k2, p, q) - exact) > 0.01


def test_what_each_estimator_teaches_in_the_loss() -> None:
    """Expected gradient: k1's is 0, k2's is that of KL(π‖ref), k3's is that of KL(ref‖π)."""
    theta, ref = normal(7).requires_grad_(), normal(7, seed=1)
    ours, theirs = kl.categorical_kl(theta, ref), kl.categorical_kl(ref, theta)
    wanted = (0 * theta, gradient(ours, theta)[0], gradient(theirs, theta)[0])
    for estimator, right in zip(ESTIMATORS, wanted, strict=True):
        assert same(gradient(expected(estimator, theta, ref), theta)[0], right), estimator.__name__


def test_score_function_gradients_of_k1_and_k3_agree() -> None:
    """In the reward (weights of log π, not differentiated) k1 has the gradient of KL(π‖ref)."""
    theta, ref = normal(7).requires_grad_(), normal(7, seed=1)
    logp = theta.log_softmax(-1)
    reward = kl.k1(logp, ref.log_softmax(-1)).detach()
    assert same(gradient((logp.detach().exp() * reward * logp).sum(), theta)[0],
                gradient(kl.categorical_kl(theta, ref), theta)[0])  # fmt: skip


def test_estimators_are_their_formulas() -> None:
    logp, ref = normal(99), normal(99, seed=1)
    d = logp - ref
    for estimator, value, slope in zip(ESTIMATORS, (d, d**2 / 2, (-d).exp() - 1 + d), (d * 0 + 1, d, 1 - (-d).exp()),
                                       strict=True):  # fmt: skip
        leaf = logp.clone().requires_grad_()
        out = estimator(leaf, ref)
        assert same(out, value) and same(gradient(out.sum(), leaf)[0], slope), estimator.__name__


def test_k3_is_never_negative_and_keeps_its_digits() -> None:
    for dtype in (torch.float32, torch.float64):
        d = torch.cat([s * torch.logspace(-12, 1, 20_000, dtype=dtype) for s in (1, -1)])
        assert (kl.k3(d, torch.zeros_like(d)) >= 0).all()
        assert (kl.k2(d, torch.zeros_like(d)) >= 0).all()
    tiny = torch.tensor(1e-7, dtype=torch.float64)
    assert same(kl.k3(tiny, 0 * tiny) / (tiny**2 / 2), 1.0, atol=1e-6)  # exp(-d) - 1 + d has two digits left there


def test_b08_an_estimate_that_is_never_negative() -> None:
    d = torch.tensor([0.0, 0.1, -0.1, 1.0], dtype=torch.float64)
    found = kl.k3(d, torch.zeros_like(d))
    wanted = torch.tensor([0.0, 0.1 - 1 + math.exp(-0.1), math.exp(0.1) - 1.1, math.exp(-1)], dtype=torch.float64)
    assert same(found, wanted) and (found >= 0).all() and float(kl.k1(d, torch.zeros_like(d)).min()) < 0


def test_no_estimator_clamps() -> None:
    d, zero = torch.tensor([-80.0, 80.0], dtype=torch.float64), torch.zeros(2, dtype=torch.float64)
    assert same(kl.k1(d, zero), d) and kl.k3(d, zero)[0] > 1e34 and same(kl.k3(d, zero)[1], 79.0)


def test_the_policy_kl_from_old_samples() -> None:
    """Samples of old: k(old_logp, logp) estimates KL(old‖new)."""
    old, new = normal(7).log_softmax(-1), normal(7, seed=1).log_softmax(-1)
    for estimator in (kl.k1, kl.k3):
        assert same((old.exp() * estimator(old, new)).sum(), kl.categorical_kl(old, new))


def test_exact_kl_handles_certainty() -> None:
    never = torch.tensor([0.0, -INF], dtype=torch.float64).requires_grad_()
    even = torch.zeros(2, dtype=torch.float64).requires_grad_()
    assert kl.categorical_kl(never, never) == 0
    assert same(kl.categorical_kl(never, even), math.log(2)) and kl.categorical_kl(even, never) == INF
    assert all(g.isfinite().all() for g in gradient(kl.categorical_kl(never, even), never, even))
    far = torch.tensor([[800.0, 0.0], [0.0, 800.0]], dtype=torch.float64)
    assert same(kl.categorical_kl(far, far.flip(0)), torch.tensor([800.0, 800.0]))
    for dtype in (torch.float32, torch.float64):
        p = normal(500, 9, dtype=dtype)
        q = p + 1e-7 * normal(500, 9, seed=1, dtype=dtype)
        assert (kl.categorical_kl(p, q) >= 0).all() and (kl.gaussian_kl(p, q, p, p) >= 0).all()
        assert not kl.categorical_kl(p, p + 3).abs().gt(1e-5 if dtype == torch.float32 else 1e-14).any()


def test_rounding_to_0_keeps_the_gradient() -> None:
    """Where the value would round below 0 it is 0, and the gradient is still q - p."""
    p = normal(500, 9)
    q = (p + 1e-9 * normal(500, 9, seed=1)).requires_grad_()
    found = gradient(kl.categorical_kl(p, q).sum(), q)[0]
    assert same(found, q.detach().softmax(-1) - p.softmax(-1))


def test_gaussians_are_torchs() -> None:
    mean, log_std, action, other, width = (normal(4, 3, seed=s) for s in range(5))
    p, q = Normal(mean, log_std.exp()), Normal(other, width.exp())
    assert same(distributions.gaussian_logp(mean, log_std, action), p.log_prob(action).sum(-1))
    shared = Normal(mean, log_std[0].exp())
    assert same(distributions.gaussian_logp(mean, log_std[0], action), shared.log_prob(action).sum(-1))
    assert same(distributions.gaussian_entropy(log_std), p.entropy().sum(-1))
    assert same(kl.gaussian_kl(mean, log_std, other, width), kl_divergence(p, q).sum(-1))
    assert same(kl.gaussian_kl(mean, log_std, mean, log_std), torch.zeros(4))


def test_categoricals_are_torchs() -> None:
    logits = normal(4, 3, 9)
    action = torch.arange(12).reshape(4, 3) % 9
    p = Categorical(logits=logits)
    assert same(distributions.categorical_logp(logits, action), p.log_prob(action))
    assert same(distributions.entropy(logits), p.entropy())
    assert same(distributions.entropy(logits + 5), distributions.entropy(logits))


def test_entropy_of_certainty_is_0_and_has_a_gradient() -> None:
    sure = torch.tensor([[0.0, -INF, -INF], [0.0, -2000.0, -INF], [1e300, -1e300, 0.0]], dtype=torch.float64)
    leaf = sure.requires_grad_()
    assert not distributions.entropy(leaf).any() and not gradient(distributions.entropy(leaf).sum(), leaf)[0].any()
    some = torch.tensor([0.0, 0.0, -INF], dtype=torch.float64).requires_grad_()
    assert same(distributions.entropy(some), math.log(2))
    assert gradient(distributions.entropy(some), some)[0].isfinite().all()
    assert same(distributions.entropy(torch.zeros(8)), torch.tensor(8.0).log(), atol=1e-6)  # float32


def test_beta_rules() -> None:
    def after(kl_now: float, rule: str, **more) -> float:
        return kl.next_beta(1.0, kl_now, target=0.01, rule=rule, **more)

    assert [after(x, "double_or_halve") for x in (0.0151, 0.015, 0.01, 0.01 / 1.5, 0.0066)] == [2, 1, 1, 1, 0.5]
    assert [after(x, "step_1_5") for x in (0.0201, 0.02, 0.01, 0.005, 0.0049)] == [1.5, 1, 1, 1, 1 / 1.5]
    slow = {"horizon": 1000, "n_steps": 100}
    found = [after(x, "proportional", **slow) for x in (0.1, 0.011, 0.01, 0.009, 0.0)]
    wanted = torch.tensor([1.02, 1.01, 1, 0.99, 0.98], dtype=torch.float64)
    assert same(torch.tensor(found, dtype=torch.float64), wanted)
    assert after(9.0, "double_or_halve", bounds=(0.5, 1.5)) == 1.5 and after(0, "step_1_5", bounds=(0.8, 1)) == 0.8
    assert after(0, "proportional", horizon=1, n_steps=100) == 0  # never below the lower bound
    assert after(INF, "double_or_halve") == 2


def test_the_clip_narrows_where_the_kl_is_too_large() -> None:
    def after(kl_now: float, **more) -> float:
        return kl.next_clip(0.2, kl_now, target=0.01, rate=10.0, **more)

    found = torch.tensor([after(x) for x in (0.03, 0.01, 0.0)], dtype=torch.float64)
    assert same(found, 0.2 * torch.tensor([-0.2, 0.0, 0.1], dtype=torch.float64).exp())
    assert after(9.0) == 0.02 and after(-1.0) == 0.4 == after(-1e6) and after(INF) == 0.02
    assert after(0.03, bounds=(0.19, 0.3)) == 0.19 and after(-1.0, bounds=(0.1, 0.3)) == 0.3
