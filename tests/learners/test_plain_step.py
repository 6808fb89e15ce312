"""The plain learner: exactly how its weights move."""

from __future__ import annotations

import math

import pytest
import torch
from learners.modules import TwoHeads, Weights, double, plain, push
from torch import Tensor

from ppo_lab.core.masking import REDUCTIONS, step_weights
from ppo_lab.learners.plain import PlainLearner


def gradients(learner: PlainLearner) -> dict[str, Tensor]:
    return {name: p.grad.clone() for name, p in learner.parameters.items() if p.grad is not None}


SPLITS = [[10], [2, 8], [8, 2], [1] * 10]


@pytest.mark.parametrize("sizes", SPLITS, ids=str)
def test_two_tokens_of_loss_4_and_eight_of_loss_1_average_to_16_tenths(sizes: list[int]) -> None:
    learner = plain(Weights([1.0], [1.0]))
    losses, weight = double([4.0] * 2 + [1.0] * 8), step_weights(torch.ones(1, 10, dtype=torch.bool)).double()[0]
    total = 0.0
    for terms, w in zip(losses.split(sizes), weight.split(sizes), strict=True):
        loss = learner.forward(actor=terms * w)
        total += loss.item()
        learner.accumulate(loss)
    assert total == pytest.approx(1.6, abs=1e-7)  # float32 weights
    assert learner.module.actor.grad.item() == pytest.approx(1.6, abs=1e-7)  # type: ignore[union-attr]


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("sizes", SPLITS, ids=str)
def test_gradients_do_not_depend_on_micro_batches(sizes: list[int], reduction: str) -> None:
    x = torch.randn(10, 6, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    mask = torch.arange(6) < torch.tensor([1, 6, 2, 0, 3, 5, 4, 6, 1, 2])[:, None]
    length = 6.0 if reduction == "fixed_length" else None
    weight = step_weights(mask, reduction, length=length, dtype=torch.float64)

    def run(sizes: list[int]) -> dict[str, Tensor]:
        learner = plain(TwoHeads().double())
        for part, w in zip(x.split(sizes), weight.split(sizes), strict=True):
            seen = learner.forward(x=part)
            learner.accumulate(((seen["logits"].square().sum(-1) + seen["value"].cos()) * w).sum())
        return gradients(learner)

    once, often = run([10]), run(sizes)
    assert once.keys() == often.keys() and len(once) == 6
    for name in once:
        torch.testing.assert_close(often[name], once[name], rtol=0, atol=1e-14)


@pytest.mark.parametrize("loss", [torch.ones(2, requires_grad=True), torch.tensor(1.0)], ids=["many", "no gradient"])
def test_accumulate_refuses_what_is_no_loss(loss: Tensor) -> None:
    with pytest.raises(ValueError, match="loss must be one number with a gradient, got shape .*weight 0 where there"):
        plain(TwoHeads()).accumulate(loss)


class HandAdamW:
    """Loshchilov & Hutter 2019, algorithm 2, with one clip over both groups, in plain Python numbers."""

    def __init__(self, weights: dict[str, list[float]], *, betas=(0.9, 0.999), eps=1e-8, decay=0.0, max_norm=None):
        self.w, self.b, self.eps, self.decay, self.max_norm, self.t = weights, betas, eps, decay, max_norm, 0
        self.m = {k: [0.0] * len(w) for k, w in weights.items()}
        self.v = {k: [0.0] * len(w) for k, w in weights.items()}

    def step(self, gradient: dict[str, list[float]], rate: dict[str, float]) -> float:
        g = {k: gradient[k] if rate[k] else [0.0] * len(w) for k, w in self.w.items()}
        norm = math.sqrt(sum(x * x for part in g.values() for x in part))
        scale = min(1.0, self.max_norm / norm) if self.max_norm and norm else 1.0
        self.t += 1
        for k, w in self.w.items():
            for i, x in enumerate(g[k]):
                m = self.m[k][i] = self.b[0] * self.m[k][i] + (1 - self.b[0]) * x * scale
                v = self.v[k][i] = self.b[1] * self.v[k][i] + (1 - self.b[1]) * (x * scale) ** 2
                unbiased = (m / (1 - self.b[0] ** self.t)) / (math.sqrt(v / (1 - self.b[1] ** self.t)) + self.eps)
                w[i] -= rate[k] * self.decay * w[i] + rate[k] * unbiased
        return norm


SCHEDULE = [(1.0, 1.0), (0.5, 1.0), (0.0, 0.7), (0.0, 0.0), (1.0, 0.0), (0.3, 2.0)]


@pytest.mark.parametrize("max_norm", [None, 1.0, 100.0])
def test_every_step_is_adamw_by_hand(max_norm: float | None) -> None:
    settings: dict = {"betas": (0.8, 0.95), "eps": 1e-5}
    learner = plain(Weights([1.0, -2.0], [0.5]), weight_decay=0.05, max_norm=max_norm, **settings)
    hand = HandAdamW({"actor": [1.0, -2.0], "critic": [0.5]}, decay=0.05, max_norm=max_norm, **settings)
    for i, (actor, critic) in enumerate(SCHEDULE):
        g = {"actor": [3.0 - i, 0.5 * i], "critic": [-1.0 - i]}
        norm = push(learner, g, actor=actor, critic=critic)
        assert norm == pytest.approx(hand.step(g, {"actor": 0.1 * actor, "critic": 0.3 * critic}), rel=1e-14)
        state = learner.state()
        for k in ("actor", "critic"):
            for prefix, expected in (("model", hand.w), ("exp_avg", hand.m), ("exp_avg_sq", hand.v)):
                torch.testing.assert_close(state[f"{prefix}.{k}"], double(expected[k]), rtol=0, atol=1e-14)
            assert state[f"step.{k}"] == i + 1
    assert learner.counts == {"optimizer_steps": 6, "skipped_steps": 0}


@pytest.mark.parametrize("still", ["actor", "critic"])
def test_rate_zero_moves_no_bit_whatever_momentum_and_decay_say(still: str) -> None:
    learner = plain(Weights([1.0, -2.0], [0.5, 3.0]), weight_decay=0.1)
    push(learner, {"actor": [1.0, 1.0], "critic": [1.0, 1.0]})
    before = learner.state()
    push(learner, {"actor": [5.0, 5.0], "critic": [5.0, 5.0]}, **{still: 0.0})
    after = learner.state()
    moving = {"actor": "critic", "critic": "actor"}[still]
    assert torch.equal(after[f"model.{still}"], before[f"model.{still}"])
    assert not torch.equal(after[f"model.{moving}"], before[f"model.{moving}"])
    torch.testing.assert_close(after[f"exp_avg.{still}"], 0.9 * before[f"exp_avg.{still}"], rtol=0, atol=1e-15)
    torch.testing.assert_close(after[f"exp_avg_sq.{still}"], 0.999 * before[f"exp_avg_sq.{still}"], rtol=0, atol=1e-15)
    assert after[f"step.{still}"] == after[f"step.{moving}"] == 2


def test_a_base_rate_of_zero_stands_still_as_well() -> None:
    learner = plain(Weights([1.0], [1.0]), actor_rate=0.0, weight_decay=0.1)
    assert push(learner, {"actor": [3.0], "critic": [4.0]}) == 4.0
    assert learner.module.actor.item() == 1.0


def test_norm_is_one_over_both_groups_before_clipping() -> None:
    learner = plain(Weights([0.0], [0.0]), max_norm=1.0)
    assert push(learner, {"actor": [3.0], "critic": [4.0]}) == 5.0
    state = learner.state()
    assert state["exp_avg.actor"].item() == pytest.approx(0.1 * 3 / 5, abs=1e-16)
    assert state["exp_avg.critic"].item() == pytest.approx(0.1 * 4 / 5, abs=1e-16)


def test_a_resting_group_has_no_part_in_the_norm() -> None:
    learner = plain(Weights([0.0], [0.0]), max_norm=1.0)
    assert push(learner, {"actor": [300.0], "critic": [0.5]}, actor=0.0) == 0.5
    assert learner.state()["exp_avg.critic"].item() == pytest.approx(0.05, abs=1e-16)  # not clipped


def test_a_missing_gradient_is_a_zero_gradient() -> None:
    learner, hand = plain(Weights([1.0], [1.0])), HandAdamW({"actor": [1.0], "critic": [1.0]}, max_norm=1.0)
    for given in ({"actor": [1.0], "critic": [1.0]}, {"actor": [1.0]}):
        push(learner, given)
        hand.step({"critic": [0.0]} | given, {"actor": 0.1, "critic": 0.3})
    assert learner.module.critic.item() == pytest.approx(hand.w["critic"][0], abs=1e-15)
    assert learner.state()["exp_avg.critic"].item() == pytest.approx(hand.m["critic"][0], abs=1e-15)


def test_a_step_without_any_gradient_is_a_step() -> None:
    learner = plain(Weights([1.0], [1.0]))
    assert learner.step() == 0.0
    assert learner.module.actor.item() == 1.0 and learner.optimizer_steps == 1


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_gradient_that_is_not_finite_leaves_everything_as_it_was(bad: float) -> None:
    learner = plain(Weights([1.0, 2.0], [1.0]), weight_decay=0.1)
    push(learner, {"actor": [1.0, 1.0], "critic": [1.0]})
    before = learner.state()
    assert not math.isfinite(push(learner, {"actor": [1.0, bad], "critic": [1.0]}))
    after = learner.state()
    assert after["count.skipped_steps"] == 1
    assert all(torch.equal(after[name], before[name]) for name in before if name != "count.skipped_steps")
    assert push(learner, {"actor": [3.0, 0.0], "critic": [4.0]}) == 5.0  # the bad gradient is gone
    assert learner.counts == {"optimizer_steps": 2, "skipped_steps": 1}


def test_a_resting_group_may_have_any_gradient() -> None:
    learner = plain(Weights([1.0], [1.0]))
    assert push(learner, {"actor": [math.nan], "critic": [2.0]}, actor=0.0) == 2.0
    assert learner.module.actor.item() == 1.0 and learner.skipped_steps == 0


@pytest.mark.parametrize("micro", [1, 2, 4])
def test_rates_count_optimizer_steps_not_micro_batches(micro: int) -> None:
    learner = plain(Weights([1.0], [1.0]))
    used = []
    for step in range(8):
        for _ in range(micro):
            learner.accumulate(learner.forward(actor=double([1.0 / micro])))
        learner.step(actor=1 - step / 8, critic=1 - step / 8)
        used.append([group["lr"] for group in learner.optimizer.param_groups])
    assert used == [[0.1 * (1 - step / 8), 0.3 * (1 - step / 8)] for step in range(8)]


@pytest.mark.parametrize("bad", [-0.1, math.nan, math.inf])
def test_multipliers_are_checked(bad: float) -> None:
    with pytest.raises(ValueError, match="critic multiplier must be finite and >= 0, got .*; 0 rests"):
        plain(Weights([1.0], [1.0])).step(critic=bad)
