"""The plain learner: precision, sharing, and what it hands to a checkpoint."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from learners.modules import Tied, TwoHeads, Weights, double, plain, push

from ppo_lab.learners.plain import PlainLearner

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


@pytest.mark.parametrize("head", DTYPES, ids=str)
@pytest.mark.parametrize("backbone", DTYPES, ids=str)
def test_one_update_for_every_mix_of_precisions(backbone: torch.dtype, head: torch.dtype) -> None:
    module = TwoHeads().to(backbone)
    module.value.to(head)
    learner = plain(module)
    before = {name: p.detach().clone() for name, p in learner.parameters.items()}
    seen = learner.forward(x=torch.randn(8, 3))
    assert seen["value"].dtype == torch.float32
    learner.accumulate(seen["logits"].float().square().mean() + (seen["value"] - 1).square().mean())
    assert math.isfinite(learner.step())
    for name, p in learner.parameters.items():
        assert p.dtype == (head if name.startswith("value") else backbone)
        assert p.isfinite().all() and not torch.equal(p, before[name])
        assert torch.equal(p, learner.masters[name].to(p.dtype))
    kept = learner.state()
    assert {x.dtype for name, x in kept.items() if name.startswith(("model.trunk", "exp"))} == {torch.float32}


def test_small_steps_of_a_bfloat16_weight_add_up() -> None:
    """At 1 the next bfloat16 is 0.0039 away: a hundred steps of 1e-3 would be rounded away one by one."""
    learner = plain(Weights([1.0], [1.0], dtype=torch.bfloat16), actor_rate=1e-3)
    for _ in range(100):
        push(learner, {"actor": [1.0]})
    assert learner.state()["model.actor"].item() == pytest.approx(0.9, abs=1e-5)
    assert learner.module.actor.item() == torch.tensor(0.9, dtype=torch.bfloat16).item()


def test_bfloat16_gradients_are_added_up_in_float32() -> None:
    learner = plain(Weights([1.0], [1.0], dtype=torch.bfloat16), max_norm=None)
    for g in [256.0] + [1.0] * 16:  # in bfloat16, 256 + 1 = 256
        learner.accumulate(learner.forward(actor=torch.tensor([g], dtype=torch.bfloat16)))
    assert learner.step() == 272.0


def test_mixed_precision_keeps_float32_weights_and_computes_in_bfloat16() -> None:
    module = TwoHeads()
    learner, x = plain(module, frozen={"reference": TwoHeads()}, mixed_precision="bf16"), torch.randn(4, 3)
    seen = learner.forward(x=x)
    assert seen["logits"].dtype == torch.bfloat16
    assert learner.score("reference", x=x)["logits"].dtype == torch.bfloat16
    with learner.whole() as actor:
        assert torch.equal(actor(x)["logits"], seen["logits"])
    learner.accumulate(seen["logits"].float().square().sum())
    assert module.trunk.weight.grad is not None and module.trunk.weight.grad.dtype == torch.float32
    learner.step()
    assert module.trunk.weight.dtype == torch.float32 and learner.masters["trunk.weight"] is module.trunk.weight
    assert module(x)["logits"].dtype == torch.float32  # the module itself was not touched


def test_a_shared_trunk_is_trained_once_by_the_sum_of_both_losses() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        module = TwoHeads().double()
        learner, x = plain(module), torch.randn(5, 3, dtype=torch.float64)
        ids = [id(p) for group in learner.optimizer.param_groups for p in group["params"]]
        assert len(ids) == len(set(ids)) == 6
        apart = []
        for part in ("logits", "value"):
            seen = learner.forward(x=x)[part].square().sum()
            apart.append(torch.autograd.grad(seen, module.trunk.weight)[0])
        seen = learner.forward(x=x)
        learner.accumulate(seen["logits"].square().sum() + seen["value"].square().sum())
        torch.testing.assert_close(module.trunk.weight.grad, sum(apart), rtol=0, atol=1e-13)
        learner.step()


def test_tied_and_shared_parameters_stay_one_through_a_round_trip() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.manual_seed(0)
        module, tokens = Tied(), torch.tensor([[0, 1, 4]])
        learner = plain(module)
        assert sum(p.numel() for p in learner.parameters.values()) == 5 * 4 + 4 * 4 + 4 + 4 + 1
        seen = learner.forward(tokens=tokens)
        learner.accumulate(seen["logits"].square().sum() + seen["value"].sum())
        learner.step()
        state = learner.state()
        assert [name for name in state if "trunk.weight" in name and name.startswith("model")] == ["model.trunk.weight"]
        other = plain(Tied())
        other.load(state)
        assert other.module.value["trunk"] is other.module.trunk
        assert other.module.out.weight is other.module.embed.weight
        for key in ("logits", "value"):
            assert torch.equal(other.forward(tokens=tokens)[key], learner.forward(tokens=tokens)[key])


def train(learner: PlainLearner, steps: range) -> list[float]:
    """Norms of a few steps under schedules that rest each group in turn."""
    norms = []
    for step in steps:
        x = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(step))
        seen = learner.forward(x=x)
        learner.accumulate(seen["logits"].square().sum() + (seen["value"] - 1).square().sum())
        norms.append(learner.step(actor=1 / (1 + step), critic=float(step % 2)))
    return norms


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_a_resumed_learner_goes_on_bit_for_bit(dtype: torch.dtype) -> None:
    straight = plain(TwoHeads().to(dtype))
    norms = train(straight, range(6))
    first, second = plain(TwoHeads().to(dtype)), plain(TwoHeads(seed=9).to(dtype))
    second.module.base.load_state_dict(first.module.base.state_dict())  # frozen: from the base model
    start = train(first, range(3))
    second.load(first.state())
    assert start + train(second, range(3, 6)) == norms
    ours, theirs = second.state(), straight.state()
    assert list(ours) == list(theirs) and all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert all(torch.equal(p, straight.parameters[name]) for name, p in second.parameters.items())


def test_state_before_the_first_step_has_the_same_names() -> None:
    learner = plain(TwoHeads())
    before = learner.state()
    learner.load(before)
    train(learner, range(1))
    assert list(learner.state()) == list(before)


def test_state_names_what_is_trained_and_nothing_else() -> None:
    trained = ["trunk.weight", "trunk.bias", "policy.weight", "policy.bias", "value.weight", "value.bias"]
    expected = [f"model.{name}" for name in [*trained, "seen"]]
    expected += [f"{prefix}.{name}" for prefix in ("exp_avg", "exp_avg_sq", "step") for name in trained]
    assert list(plain(TwoHeads()).state()) == [*expected, "count.optimizer_steps", "count.skipped_steps"]


def test_state_is_a_copy() -> None:
    learner = plain(TwoHeads().double())
    state = learner.state()
    kept = {name: x.clone() for name, x in state.items()}
    train(learner, range(1))
    learner.module.seen.add_(1)
    assert all(torch.equal(state[name], kept[name]) for name in state)
    learner.load(state)
    assert not learner.module.seen.any()


def test_load_drops_gradients_that_belong_to_other_weights() -> None:
    learner = plain(Weights([1.0], [1.0]))
    state = learner.state()
    learner.accumulate(learner.forward(actor=double([5.0])))
    learner.load(state)
    assert learner.step() == 0.0


SPOILED = {
    r"state lacks exp_avg.value.bias \(1,\); load a checkpoint of the model": ("exp_avg.value.bias", None),
    r"model.value.bias must be torch.float32 \(1,\), got torch.float32 \(2,\)": ("model.value.bias", torch.zeros(2)),
    r"step.value.bias must be torch.float32 \(\), got torch.int64 \(\)": ("step.value.bias", torch.tensor(3)),
    r"state holds model.extra \(1 unknown in all\), which the module lacks": ("model.extra", torch.zeros(1)),
}


@pytest.mark.parametrize("message", SPOILED)
def test_load_is_all_or_nothing_and_names_the_tensor(message: str) -> None:
    learner, state = plain(TwoHeads()), plain(TwoHeads(seed=5)).state()
    name, instead = SPOILED[message]
    if instead is None:
        del state[name]
    else:
        state[name] = instead
    before = learner.state()
    with pytest.raises(ValueError, match=message):
        learner.load(state)
    after = learner.state()
    assert all(torch.equal(after[name], before[name]) for name in before)
