"""Pairs, groups and the reward of each token: identities between the methods, and the order of the score's steps."""

from __future__ import annotations

import math

import torch
from material import MASK, gradient, normal, same
from torch import Tensor

from ppo_lab.core import averages, groups, kl, masking, preferences, returns
from ppo_lab.rlhf import rewards


def tensor(*x: float) -> Tensor:
    return torch.tensor(x, dtype=torch.float64)


# --- preferences -----------------------------------------------------------------------------------------------------


def test_bradley_terry() -> None:
    w, r = normal(20), normal(20, seed=1)
    loss = preferences.bradley_terry_loss
    assert same(loss(w, r), -torch.log(torch.sigmoid(w - r))) and same(loss(w + 9, r + 9), loss(w, r), atol=1e-12)
    assert same(loss(w, w), torch.full_like(w, math.log(2)))
    assert same(loss(w, r, margin=0.7), loss(w - 0.7, r)) and same(loss(w, r, margin=r), loss(w, 2 * r))
    assert same(loss(w, r, label_smoothing=0.2), 0.8 * loss(w, r) + 0.2 * loss(r, w))
    assert same(loss(w, r, label_smoothing=1.0), loss(r, w))
    assert same(loss(tensor(800, -800, 80), tensor(0, 0, 0)), tensor(0, 800, 0))
    chosen, rejected = w.clone().requires_grad_(), r.clone().requires_grad_()
    up, down = gradient(loss(chosen, rejected).sum(), chosen, rejected)
    assert same(up, torch.sigmoid(w - r) - 1) and same(down, -up)
    assert same(preferences.score_centering(w, r), (w + r) ** 2)


def test_dpo_and_ipo() -> None:
    pi_w, pi_l, ref_w, ref_l = (normal(20, seed=s) for s in range(4))
    h = (pi_w - ref_w) - (pi_l - ref_l)
    pairs = (pi_w, pi_l, ref_w, ref_l)
    assert same(preferences.dpo_loss(*pairs, beta=0.3), -torch.log(torch.sigmoid(0.3 * h)))
    assert same(preferences.dpo_loss(*pairs, beta=0.3, label_smoothing=0.1),
                -0.9 * torch.log(torch.sigmoid(0.3 * h)) - 0.1 * torch.log(torch.sigmoid(-0.3 * h)))  # fmt: skip
    assert same(preferences.ipo_loss(*pairs, beta=0.3), (h - 1 / 0.6) ** 2)
    assert same(preferences.implicit_reward(pi_w, ref_w, beta=0.3), 0.3 * (pi_w - ref_w))
    assert same(preferences.dpo_loss(ref_w, ref_l, ref_w, ref_l, beta=0.3), torch.full_like(h, math.log(2)))


# --- ensembles and averages ------------------------------------------------------------------------------------------


def test_an_ensemble_is_its_mean_its_worst_or_its_mean_less_its_spread() -> None:
    scores = normal(4, 6)
    by_hand = [[float(scores[m, b]) for m in range(4)] for b in range(6)]
    mean = tensor(*(sum(s) / 4 for s in by_hand))
    spread = tensor(*(math.sqrt(sum((x - sum(s) / 4) ** 2 for x in s) / 4) for s in by_hand))
    assert same(averages.ensemble_score(scores, rule="mean"), mean)
    assert same(averages.ensemble_score(scores, rule="min"), tensor(*map(min, by_hand)))
    assert same(averages.ensemble_spread(scores), spread)
    assert same(averages.ensemble_score(scores, rule="mean_minus_std", k=0.7), mean - 0.7 * spread)
    assert same(averages.ensemble_score(scores, rule="mean_minus_std"), mean - spread)
    assert same(averages.ensemble_score(scores + 3, rule="min"), averages.ensemble_score(scores, rule="min") + 3)


def test_equal_members_are_the_member() -> None:
    one = normal(6)
    for rule in averages.RULES:
        assert same(averages.ensemble_score(one.expand(3, 6), rule=rule, k=9.0), one)
        assert same(averages.ensemble_score(one[None], rule=rule, k=9.0), one)
    half = torch.tensor([[1.0, 2.0], [1.0078125, 2.0]], dtype=torch.bfloat16)
    wide = averages.ensemble_score(half, rule="mean")
    assert wide.dtype == torch.float32 and wide[0] == 1.00390625, "between two numbers of bfloat16"
    assert averages.ensemble_score(half, rule="min").dtype == torch.float32


def test_a_moving_average_is_its_closed_form() -> None:
    start, values = normal(3), [normal(3, seed=s) for s in range(1, 6)]
    found = start
    for x in values:
        found = averages.moving_average(found, x, decay=0.8)
    assert same(found, 0.8**5 * start + 0.2 * sum(0.8 ** (4 - i) * x for i, x in enumerate(values)))
    assert same(averages.moving_average(start, values[0], decay=1.0), start)
    assert same(averages.moving_average(start, values[0], decay=0.0), values[0])


# --- groups ----------------------------------------------------------------------------------------------------------


METHODS = {
    "rloo": groups.rloo_advantages,
    "centered": groups.centered_advantages,
    "grpo": lambda x, m=None: groups.grpo_advantages(x, m, eps=0.0),
    "population": lambda x, m=None: groups.grpo_advantages(x, m, eps=0.1, ddof=0),
}


def test_advantages_within_groups() -> None:
    score = normal(7, 4)
    mean = score.mean(-1, keepdim=True)
    wanted = {
        "rloo": (score - mean) * 4 / 3,
        "centered": score - mean,
        "grpo": (score - mean) / score.std(-1, keepdim=True),
        "population": (score - mean) / (score.std(-1, keepdim=True, correction=0) + 0.1),
    }
    order = torch.tensor([2, 0, 3, 1])
    for name, method in METHODS.items():
        found = method(score)
        assert same(found, wanted[name]) and same(found.sum(-1), torch.zeros(7)), name
        assert same(method(score + 9), found) and same(method(score[:, order]), found[:, order]), name
    assert same(METHODS["grpo"](5 * score), METHODS["grpo"](score))


def test_ragged_groups_are_as_if_alone() -> None:
    score = normal(6, 5)
    for name, method in METHODS.items():
        found = method(score, MASK)
        assert not found[~MASK].any(), name
        for row, keep in enumerate(MASK):
            if keep.any():
                assert same(found[row, keep], method(score[row, keep][None])[0]), name


def test_nothing_to_compare_with_gives_0() -> None:
    for value in (0.1, 3.0):
        for name, method in METHODS.items():
            assert not method(tensor(value)[None]).any() and not method(torch.full((1, 3), value).double()).any(), name
    assert not groups.grpo_advantages(tensor(5.0)[None], eps=1e-4, ddof=0).any()


def test_rloo_is_unbiased_and_centering_shrinks() -> None:
    """All pairs of samples of a 3-armed bandit by their probability: E[A ∇log π] is the gradient, or half of it."""
    p, reward = tensor(0.5, 0.3, 0.2), tensor(1, 2, 4)
    score_of = torch.eye(3, dtype=torch.float64) - p  # gradient of log p_a with respect to the logits
    exact = (p * reward) @ score_of
    for method, share in ((groups.rloo_advantages, 1), (groups.centered_advantages, 0.5)):
        total = torch.zeros(3, dtype=torch.float64)
        for a in range(3):
            for b in range(3):
                advantage = method(torch.stack([reward[a], reward[b]])[None])[0]
                total += p[a] * p[b] * (advantage[0] * score_of[a] + advantage[1] * score_of[b]) / 2
        assert same(total, share * exact)


def test_reinforce_pp() -> None:
    reward = normal(6, 5)
    last = masking.last_step(MASK)
    to_go = returns.discounted_returns(reward, 0 * reward, terminated=last, ended=last, gamma=0.9, mask=MASK)
    found = groups.reinforce_pp_advantages(reward, MASK, gamma=0.9, ddof=1, eps=0.0)
    left = to_go[MASK]
    assert same(found[MASK], (left - left.mean()) / left.std()) and not found[~MASK].any()
    assert same(groups.reinforce_pp_advantages(reward, MASK, gamma=0.9), masking.standardize(to_go, MASK))


# --- rewards ---------------------------------------------------------------------------------------------------------


def test_the_row_sum_is_the_sequence_objective() -> None:
    score, logp, ref = normal(6), normal(6, 5, seed=1), normal(6, 5, seed=2)
    there = MASK.any(-1)
    for name in ("k1", "k2", "k3"):
        each = masking.select(getattr(kl, name)(logp, ref), MASK)
        for placement in ("last", "spread"):
            r = rewards.token_rewards(score, logp, ref, MASK, beta=0.3, estimator=name, placement=placement)
            assert same(r.sum(-1), there * score - 0.3 * each.sum(-1)), (name, placement)
        last = rewards.token_rewards(score, logp, ref, MASK, beta=0.3, estimator=name)
        assert same(last + 0.3 * each, masking.last_step(MASK) * score[:, None])
    spread = rewards.token_rewards(score, logp, ref, MASK, beta=0.0, placement="spread")
    assert same(spread[0, 2:], score[0].expand(3) / 3)


def test_the_score_goes_clip_then_stop_token() -> None:
    score, stopped = tensor(12, -12, 4, 4), torch.tensor([True, False, False, True])
    final = rewards.final_score
    assert final(score, stopped).tolist() == [12, -12, 4, 4]
    assert final(score, stopped, clip=5.0).tolist() == [5, -5, 4, 4]
    assert final(score, stopped, clip=(-1, 3), missing_eos="none", penalty=2).tolist() == [3, -1, 3, 3]
    assert final(score, stopped, clip=5, missing_eos="subtract", penalty=2).tolist() == [5, -7, 2, 4]
    assert final(score, stopped, clip=5, missing_eos="replace", penalty=9).tolist() == [5, -9, -9, 4]


def test_a_long_answer_pays_less_for_a_nat() -> None:
    length, mask = torch.tensor([4, 1, 0]), torch.tensor([[True] * 4, [True, False, False, False], [False] * 4])
    price = rewards.kl_price(0.1, length, reference_length=2.0)
    assert same(price, tensor(0.05, 0.2, 0.2), atol=1e-7)
    paid = rewards.token_rewards(tensor(0, 0, 0), torch.ones_like(mask, dtype=torch.float64),
                                 torch.zeros_like(mask, dtype=torch.float64), mask, beta=price)  # fmt: skip
    assert same(paid, -price[:, None] * mask, atol=1e-7)


def test_length_normalised() -> None:
    assert rewards.length_normalized(tensor(3, -2, 1, math.nan), torch.tensor([4, 1, 0, 0])).tolist() == [0.75, -2, 0,
    0]


def test_b11_the_score_sits_on_the_stop_token() -> None:
    """B11: [t0, t1, eos, pad, pad] scores at index 2, a full row at its last; γ = λ = 1, V = 0: advantages 1."""
    mask = masking.length_mask(torch.tensor([3, 5]), steps=5)
    zero, one = torch.zeros(2, 5, dtype=torch.float64), torch.ones(2, dtype=torch.float64)
    reward = rewards.token_rewards(one, zero, zero, mask, beta=0.1)
    assert reward.nonzero().tolist() == [[0, 2], [1, 4]] and masking.masked_sum(reward, mask, dim=-1).tolist() == [1, 1]
    last = masking.last_step(mask)
    ahead = returns.next_values(zero, mask)
    found = returns.gae(reward, zero, ahead, terminated=last, ended=last, gamma=1.0, lam=1.0, mask=mask)
    assert found.tolist() == [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]
