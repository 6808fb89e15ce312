"""Returns and advantages against their definitions written as double sums, and their limits."""

from __future__ import annotations

import torch
from material import MASK, coin, normal, same
from torch import Tensor

from ppo_lab.core import returns
from ppo_lab.core.masking import last_step

B, T = 40, 7


def episodes(seed: int = 0) -> dict[str, Tensor]:
    """Random rewards and values with about one termination and one truncation a row."""
    terminated, truncated = coin(B, T, p=0.15, seed=seed), coin(B, T, p=0.15, seed=seed + 1)
    reward, value, next_value = (normal(B, T, seed=seed + s) for s in (2, 3, 4))
    next_value = next_value.masked_fill(terminated, torch.nan)  # a terminated step has no next state
    return {
        "reward": reward, "value": value, "next_value": next_value,
        "terminated": terminated, "ended": terminated | truncated,
    }  # fmt: skip


def double_sum(e: dict[str, Tensor], *, gamma: float, decay: float, td: bool, n: int = T) -> Tensor:
    """Sum of ``decay**(j-t) x_j`` from t to the end of the episode, or n steps; x is the TD error or the reward.

    Rewards are followed by the discounted bootstrap of where the sum stops. Loops and Python floats, on purpose.
    """
    out = torch.zeros(B, T, dtype=torch.float64)
    for b in range(B):
        for t in range(T):
            stop = next((j for j in range(t, T) if e["ended"][b, j]), T - 1)
            stop = min(stop, t + n - 1)
            for j in range(t, stop + 1):
                boot = 0.0 if e["terminated"][b, j] else gamma * float(e["next_value"][b, j])
                x = float(e["reward"][b, j])
                x += boot - float(e["value"][b, j]) if td else boot * (j == stop)
                out[b, t] += decay ** (j - t) * x
    return out


def gae(e: dict[str, Tensor], **knobs) -> Tensor:
    return returns.gae(**e, **knobs)


def without_value(e: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: x for name, x in e.items() if name != "value"}


def test_gae_is_its_double_sum() -> None:
    for gamma, lam in ((0.9, 0.8), (1.0, 0.95), (0.97, 1.0), (0.5, 0.0)):
        e = episodes()
        assert same(gae(e, gamma=gamma, lam=lam), double_sum(e, gamma=gamma, decay=gamma * lam, td=True))


def test_discounted_returns_are_their_double_sum() -> None:
    for gamma in (0.9, 1.0, 0.0):
        e = episodes(10)
        found = returns.discounted_returns(**without_value(e), gamma=gamma)
        assert same(found, double_sum(e, gamma=gamma, decay=gamma, td=False))


def test_n_step_advantages_are_their_double_sum() -> None:
    for n in (1, 2, 3, T, 50):
        e = episodes(20)
        found = returns.n_step_advantages(**e, gamma=0.9, n=n)
        assert same(found, double_sum(e, gamma=0.9, decay=0.9, td=False, n=n) - e["value"])


def test_lambda_0_is_the_td_error() -> None:
    e = episodes(30)
    delta = returns.td_errors(e["reward"], e["value"], e["next_value"], terminated=e["terminated"], gamma=0.9)
    assert same(gae(e, gamma=0.9, lam=0.0), delta)
    assert same(returns.n_step_advantages(**e, gamma=0.9, n=1), delta)


def test_lambda_1_is_return_minus_value() -> None:
    e = episodes(40)
    e["next_value"] = consistent_next_values(e)
    to_go = returns.discounted_returns(**without_value(e), gamma=0.9)
    assert same(gae(e, gamma=0.9, lam=1.0), to_go - e["value"])
    assert same(returns.n_step_advantages(**e, gamma=0.9, n=T), to_go - e["value"])


def consistent_next_values(e: dict[str, Tensor]) -> Tensor:
    """Inside an episode the next value is the value of the next column."""
    shifted = torch.cat([e["value"][:, 1:], e["next_value"][:, -1:]], dim=-1)
    return torch.where(e["ended"], e["next_value"], shifted)


def test_gae_mixes_the_n_step_advantages() -> None:
    """(1-λ) Σ λ^(n-1) A^(n), the rest of the weight on the longest. Schulman et al. 2016, eq. 16, first line."""
    e, lam = episodes(50), 0.7
    e["next_value"] = consistent_next_values(e)
    mixed = lam ** (T - 1) * returns.n_step_advantages(**e, gamma=0.9, n=T)
    for n in range(1, T):
        mixed = mixed + (1 - lam) * lam ** (n - 1) * returns.n_step_advantages(**e, gamma=0.9, n=n)
    assert same(gae(e, gamma=0.9, lam=lam), mixed)


def test_masked_steps_are_as_if_deleted() -> None:
    """Each row with its masked columns cut out, computed alone, gives the same numbers in the same places."""
    for seed in range(5):
        reward, value = normal(6, 5, seed=seed), normal(6, 5, seed=seed + 9)
        last, ahead = last_step(MASK), returns.next_values(value, MASK)
        cuts = {"terminated": last, "ended": last, "gamma": 0.9}
        found = returns.gae(reward, value, ahead, **cuts, lam=0.8, mask=MASK)
        to_go = returns.discounted_returns(reward, ahead, **cuts, mask=MASK)
        for row, keep in enumerate(MASK):
            assert not found[row, ~keep].any() and not to_go[row, ~keep].any()
            if keep.any():
                r, v = reward[row, keep], value[row, keep]
                end = torch.arange(len(r)) == len(r) - 1
                alone = {"terminated": end, "ended": end, "gamma": 0.9}
                next_value = torch.cat([v[1:], v.new_zeros(1)])
                assert same(found[row, keep], returns.gae(r, v, next_value, **alone, lam=0.8))
                assert same(to_go[row, keep], returns.discounted_returns(r, next_value, **alone))


def test_next_values_are_those_of_the_next_valid_step() -> None:
    value = torch.arange(1.0, 31).reshape(6, 5)
    assert returns.next_values(value, MASK).tolist() == [
        [0, 0, 4, 5, 0], [8, 0, 9, 0, 0], [12, 13, 0, 0, 0], [17, 18, 19, 20, 0], [0] * 5, [0] * 5,
    ]  # fmt: skip


def test_a_masked_row_that_is_cut_bootstraps_at_its_last_valid_step() -> None:
    """A rollout whose last column is a reset row: the step before it is where the data ends."""
    never, mask = torch.zeros(1, 3, dtype=torch.bool), torch.tensor([[True, True, False]])
    one, boot = torch.ones(1, 3), torch.tensor([[7.0, 10.0, 99.0]])
    found = returns.discounted_returns(one, boot, terminated=never, ended=never, gamma=0.5, mask=mask)
    assert found.tolist() == [[1 + 0.5 * 6, 6, 0]]


def test_nothing_crosses_an_end() -> None:
    """Changing the second episode changes no number of the first."""
    ended = torch.tensor([[False, True, False, False]])
    for terminated in (ended, torch.zeros_like(ended)):
        numbers = [normal(1, 4, seed=s) for s in range(3)]
        other = [torch.where(torch.arange(4) < 2, x, 1e6) for x in numbers]
        cuts = {"terminated": terminated, "ended": ended, "gamma": 0.9}
        for f in (
            lambda r, v, nv, cuts=cuts: returns.gae(r, v, nv, **cuts, lam=0.9),
            lambda r, v, nv, cuts=cuts: returns.n_step_advantages(r, v, nv, **cuts, n=3),
            lambda r, v, nv, cuts=cuts: returns.discounted_returns(r, nv, **cuts),
        ):
            assert torch.equal(f(*numbers)[:, :2], f(*other)[:, :2])


def test_ended_that_forgot_terminated_is_completed() -> None:
    e = episodes(60)
    forgetful = {**e, "ended": e["ended"] & ~e["terminated"]}
    assert torch.equal(gae(e, gamma=0.9, lam=0.9), gae(forgetful, gamma=0.9, lam=0.9))


def test_the_true_value_has_no_advantage_under_a_time_limit() -> None:
    """Reward 1 for ever is worth 1/(1-γ), also where an episode is cut: truncation is not death."""
    reward, gamma = torch.ones(1, 12, dtype=torch.float64), 0.9
    value = reward / (1 - gamma)
    cut = (torch.arange(12) % 5 == 4)[None]
    never = torch.zeros_like(cut)
    assert same(returns.gae(reward, value, value, terminated=never, ended=cut, gamma=gamma, lam=0.95), 0 * reward)
    assert same(returns.discounted_returns(reward, value, terminated=never, ended=cut, gamma=gamma), value)


def test_any_leading_shape_works() -> None:
    e = episodes(70)
    flat = gae(e, gamma=0.9, lam=0.9)
    assert torch.equal(gae({k: x.reshape(4, 10, T) for k, x in e.items()}, gamma=0.9, lam=0.9).reshape(B, T), flat)
    assert torch.equal(gae({k: x[3] for k, x in e.items()}, gamma=0.9, lam=0.9), flat[3])


def test_b13_a_time_limit_is_not_death() -> None:
    """B13: r = 1, V = 10, cut by the limit: bootstrapped advantages, not [-6.2, -7.6, -9.0]."""
    one, ten = torch.ones(1, 3, dtype=torch.float64), torch.full((1, 3), 10.0, dtype=torch.float64)
    end = torch.tensor([[False, False, True]])
    never = torch.zeros_like(end)
    cut = returns.gae(one, ten, ten, terminated=never, ended=end, gamma=0.99, lam=0.95)
    died = returns.gae(one, ten, ten, terminated=end, ended=end, gamma=0.99, lam=0.95)
    # the scenario prints four decimals
    assert same(cut, torch.tensor([[2.5425, 1.7465, 0.9]], dtype=torch.float64), atol=5e-5)
    assert same(died, torch.tensor([[-6.2144, -7.5645, -9.0]], dtype=torch.float64), atol=5e-5)


def test_a_flag_on_a_skipped_step_is_invisible() -> None:
    """Random endings, masks and lengths against the recursion as the paper has it, one step at a time."""
    draw = torch.Generator().manual_seed(0)
    for steps in (1, 2, 3, 5, 8, 13, 21):
        shape = (20, steps)
        reward, value, after = (torch.randn(shape, generator=draw, dtype=torch.float64) for _ in range(3))
        ended, terminated, mask = (torch.rand(shape, generator=draw) < share for share in (0.3, 0.1, 0.7))
        found = returns.gae(reward, value, after, terminated=terminated, ended=ended, gamma=0.9, lam=0.8, mask=mask)
        for row in range(len(reward)):
            ahead = 0.0
            for t in reversed(range(steps)):
                if not mask[row, t]:
                    assert found[row, t] == 0
                    continue
                delta = reward[row, t] + 0.9 * after[row, t] * (not terminated[row, t]) - value[row, t]
                ahead = delta + 0.72 * ahead * (not (ended[row, t] or terminated[row, t]))
                assert torch.isclose(found[row, t], ahead, rtol=0, atol=1e-12)
