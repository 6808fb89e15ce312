"""A fault is off unless a block plants it, for that block only; and each fault of the update shows its symptom."""

from __future__ import annotations

import asyncio
import math
import threading
from dataclasses import replace

import pytest
import torch
from linear import PLAIN, Inputs, Watched, assess, make_batch, update

from ppo_lab.faults import FAULTS, Fault, active, planted
from ppo_lab.records import Assessment
from ppo_lab.update import policy_objective, ppo_update


def test_every_fault_is_off_and_complete():
    assert FAULTS and not any(map(active, FAULTS))
    assert all(name == fault.name and fault.notebook[:2].isdigit() for name, fault in FAULTS.items())
    with pytest.raises(ValueError, match="fault x needs symptom, got nothing"):
        Fault("x", "something", " ", "04_clipping")


def test_no_environment_variable_plants_one(monkeypatch):
    for name in FAULTS:
        monkeypatch.setenv(name, "1")
        monkeypatch.setenv(f"PPO_LAB_{name.upper()}", "1")
    assert not any(map(active, FAULTS))


@pytest.mark.parametrize("call", [active, lambda name: planted(name).__enter__()])
def test_an_unknown_name_is_refused_with_the_nearest(call):
    with pytest.raises(ValueError, match="'min_left_ou' is not a fault; did you mean min_left_out?"):
        call("min_left_ou")
    with pytest.raises(ValueError, match="'zzz' is not a fault; known: min_left_out, "):
        call("zzz")


def test_nothing_is_planted_where_one_of_the_names_is_wrong():
    with pytest.raises(ValueError), planted("min_left_out", "zzz"):
        pass
    with pytest.raises(ValueError, match="needs the name of a fault, got none"), planted():
        pass
    assert not active("min_left_out")


def test_blocks_nest_and_an_exception_takes_the_fault_out():
    with planted("min_left_out"):
        with pytest.raises(KeyError), planted("ratio_from_probabilities", "min_left_out"):
            assert active("min_left_out") and active("ratio_from_probabilities")
            raise KeyError
        assert active("min_left_out") and not active("ratio_from_probabilities")
    assert not active("min_left_out")


def test_another_thread_does_not_see_it():
    seen = []
    with planted("min_left_out"):
        thread = threading.Thread(target=lambda: seen.append(active("min_left_out")))
        thread.start()
        thread.join()
        assert active("min_left_out")
    assert seen == [False]


def test_tasks_that_take_turns_do_not_see_each_others():
    async def broken(other: asyncio.Event, mine: asyncio.Event) -> bool:
        with planted("min_left_out"):
            mine.set()
            await other.wait()
            return active("min_left_out")

    async def healthy(other: asyncio.Event, mine: asyncio.Event) -> bool:
        await other.wait()
        seen = active("min_left_out")
        mine.set()
        return seen

    async def both() -> list[bool]:
        first, second = asyncio.Event(), asyncio.Event()
        return await asyncio.gather(broken(second, first), healthy(first, second))

    assert asyncio.run(both()) == [True, False] and not active("min_left_out")


def test_a_generator_is_broken_only_while_it_is_driven_inside_the_block():
    stream = (active("min_left_out") for _ in range(3))
    seen = [next(stream)]
    with planted("min_left_out"):
        seen.append(next(stream))
    assert [*seen, next(stream)] == [False, True, False]


# --- the faults of the update ----------------------------------------------------------------------------------------


def test_without_the_minimum_a_bad_step_outside_the_band_has_no_gradient():
    batch, cfg = make_batch(), PLAIN.model_copy(update={"clip": 0.2})
    lr = torch.full_like(batch.advantage, 1.0).requires_grad_()  # ratio e, far above the band

    def gradient() -> torch.Tensor:
        objective = policy_objective(assess(Watched(), batch.inputs), batch, lr, cfg)
        return torch.autograd.grad(objective.sum(), lr)[0]

    bad = batch.mask & (batch.advantage < 0)
    assert bad.any() and (gradient()[bad] != 0).all()
    with planted("min_left_out"):
        assert (gradient() == 0).all()


def test_probabilities_that_underflow_have_no_ratio():
    batch = make_batch()
    healthy = update(Watched(), batch)
    with planted("ratio_from_probabilities"):
        close = update(Watched(), batch)
    assert close.policy_loss == pytest.approx(healthy.policy_loss, abs=1e-10)  # the same where nothing underflows

    def far(learner: Watched, inputs: Inputs) -> Assessment:
        seen = assess(learner, inputs)
        return replace(seen, logp=seen.logp - 800)

    shifted, learner = replace(batch, old_logp=batch.old_logp - 800), Watched()
    assert ppo_update(learner, shifted, far, PLAIN, seed=3).policy_loss == pytest.approx(healthy.policy_loss, abs=1e-10)
    with planted("ratio_from_probabilities"):
        broken = ppo_update(learner, shifted, far, PLAIN, seed=3)
    assert math.isnan(broken.policy_loss) and math.isnan(broken.first_ratio_error) and learner.skipped_steps == 1


def test_a_ratio_outside_the_loop_is_always_one_and_never_clipped():
    batch, cfg = make_batch(), PLAIN.model_copy(update={"clip": 0.2, "epochs": 8})
    fresh = replace(batch, old_logp=assess(Watched(), batch.inputs).logp.detach())
    healthy = update(Watched(rate=0.2), fresh, cfg)
    with planted("ratio_outside_the_loop"):
        broken = update(Watched(rate=0.2), fresh, cfg)
    assert healthy.clip_fraction > 0.1 and healthy.ratio_max > 1.2
    assert broken.clip_fraction == broken.active_clip_fraction == 0.0 and broken.ratio_max == 1.0
    assert broken.policy_kl_k3 > healthy.policy_kl_k3
