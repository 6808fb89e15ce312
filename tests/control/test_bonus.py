"""What a run is paid besides: shaping telescopes, counts and predictions fade, all of it survives a resume."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from control.small_control import Counting, config, log_of, run

from ppo_lab.config import ConfigError
from ppo_lab.config.bonus import ExplorationConfig, ShapingConfig
from ppo_lab.control.collect import Collector
from ppo_lab.control.envs import LoopEnvs
from ppo_lab.control.exploration import CountBonus, PredictionBonus, make_bonuses
from ppo_lab.control.make import make_envs
from ppo_lab.control.normalize import Normalizers
from ppo_lab.control.policy import ActorCritic, actions_of
from ppo_lab.control.shaping import Shaping, Visit, along_the_chain
from ppo_lab.core.returns import discounted_returns

GAMMA = 0.9
CHAIN = ("env.id=probe/chain", "env.options.states=5")


def steps_taken(obs: np.ndarray) -> np.ndarray:
    """A potential for `Counting`: the second number observed."""
    return obs[:, 1].astype(float)


def visit(final: list[list[float]], valid: list[list[bool]] | None = None) -> Visit:
    """T x N observations of one number."""
    x = np.array(final)[..., None]
    kept = np.ones(x.shape[:2], dtype=bool) if valid is None else np.array(valid)
    return Visit(x, x, np.zeros_like(kept), kept, np.zeros(0))


def collected(bonuses, *, count: int = 2, steps: int = 9):
    envs, cfg = LoopEnvs([Counting(3) for _ in range(count)]), config()
    actions = actions_of(envs.action_space)
    normalizers = Normalizers(cfg.normalize, (2,), GAMMA)
    collector = Collector(envs, actions, normalizers, bonuses)
    collector.reset(0)
    module = ActorCritic(cfg.net, 2, actions, torch.Generator().manual_seed(0))
    return collector.collect(module, actions.noise(steps, count, draw=torch.Generator().manual_seed(1)))


def test_a_shaped_episode_is_paid_its_reward_less_its_first_potential():
    """Episodes of three steps that end by death and by the clock in turn; the clock's last potential still counts."""
    cfg = ShapingConfig(potential="control.test_bonus:steps_taken", weight=2.0)
    plain, paid = collected({}), collected({"shaping": Shaping(cfg, GAMMA)})
    extra = (paid.rollout.reward - plain.rollout.reward).double()
    flags = {"terminated": paid.rollout.terminated, "ended": paid.rollout.ended}
    total = discounted_returns(extra, torch.zeros_like(extra), **flags, gamma=GAMMA)
    first = paid.rollout.obs[..., 1] == 0  # Φ is 0 at the start
    died = torch.tensor([True, False, True]).repeat(2)
    expected = torch.where(died, 0.0, 2.0 * GAMMA**3 * 3.0).double()
    torch.testing.assert_close(total[first], expected, rtol=0, atol=1e-5)  # rewards are kept in float32
    np.testing.assert_array_equal(paid.episodes.returns, plain.episodes.returns)  # what is logged is the task's
    assert paid.bonus == pytest.approx(float(extra.mean()), abs=1e-6) and plain.bonus is None


def test_the_level_is_paid_where_the_step_led():
    cfg = ShapingConfig(potential="control.test_bonus:steps_taken", weight=0.5, kind="level")
    plain, paid = collected({}), collected({"shaping": Shaping(cfg, GAMMA)})
    extra = paid.rollout.reward - plain.rollout.reward
    assert extra[0].tolist() == pytest.approx([0.5, 1.0, 0.0, 0.5, 1.0, 1.5, 0.5, 1.0, 0.0], abs=1e-6)


def test_the_weight_follows_the_share_of_episodes_that_earn_nothing():
    cfg = ShapingConfig(potential="control.test_bonus:steps_taken", weight=0.1, adapt="zero_share")
    shaping = Shaping(cfg, GAMMA)
    seen = []
    for returns in ([0.0, 1.0], [1.0] * 7 + [0.0], [1.0, 2.0], []):
        still = Visit(np.zeros((1, 1, 2)), np.zeros((1, 1, 2)), np.zeros((1, 1), bool), np.ones((1, 1), bool),
                      np.array(returns))  # fmt: skip
        shaping.pay(still)
        seen.append(shaping.weight)
    assert seen == pytest.approx([0.11, 0.11, 0.099, 0.099], abs=1e-12)
    other = Shaping(cfg, GAMMA)
    other.load(shaping.state())
    assert other.weight == shaping.weight


def test_counts_fade_as_one_over_the_root():
    bonus = CountBonus(ExplorationConfig(bonus="count", weight=1.0, resolution=1.0))
    paid = bonus.pay(visit([[0.1, 2.0], [0.2, 5.0]], [[True, True], [True, False]]))
    np.testing.assert_allclose(paid, [[2**-0.5, 1.0], [2**-0.5, 1.0]], rtol=0, atol=1e-12)
    again = bonus.pay(visit([[0.0, 2.0]]))
    np.testing.assert_allclose(again, [[3**-0.5, 2**-0.5]], rtol=0, atol=1e-12)
    assert bonus.counts == {"0": 3, "2": 2, "5": 0}  # a row that only reset is no visit


def test_predictions_err_less_where_one_has_been():
    cfg = ExplorationConfig(bonus="prediction", weight=1.0, rate=1e-2, passes=20)
    bonus = PredictionBonus(cfg, (2,), gamma=GAMMA, seed=0)
    draw = np.random.default_rng(0)

    def seen(center: float) -> Visit:
        x = center + 0.1 * draw.standard_normal((8, 4, 2))
        return Visit(x, x, np.zeros((8, 4), bool), np.ones((8, 4), bool), np.zeros(0))

    for _ in range(10):
        known = bonus.pay(seen(0.0)).mean()
    new = bonus.pay(seen(3.0)).mean()
    assert new > 3 * known
    target = [p.clone() for p in bonus.learner.module.target.parameters()]
    bonus.pay(seen(1.0))
    assert all(torch.equal(a, b) for a, b in zip(target, bonus.learner.module.target.parameters(), strict=True))


@pytest.mark.parametrize("kind", ["count", "prediction"])
def test_a_bonus_comes_back_from_its_state(kind):
    cfg = ExplorationConfig(bonus=kind)
    first, second = (make_bonuses(ShapingConfig(), cfg, (1,), gamma=GAMMA, seed=s)["exploration"] for s in (0, 1))
    first.pay(visit([[0.0, 1.0], [2.0, 3.0]]))
    second.load(first.state())
    more = visit([[0.0, 4.0]])
    np.testing.assert_array_equal(first.pay(more), second.pay(more))


@pytest.mark.parametrize("changes", [
    ("exploration.bonus=count",), ("exploration.bonus=prediction",),
    ("shaping.potential=ppo_lab.control.shaping:along_the_chain", "shaping.adapt=zero_share"),
])  # fmt: skip
def test_a_resumed_run_is_the_run(tmp_path, changes):
    whole = run(tmp_path / "whole", *CHAIN, *changes)
    list(whole)
    for step in (stopped := run(tmp_path / "stopped", *CHAIN, *changes)):
        if step.step == 3:
            stopped.stop()
    resumed = run(tmp_path / "stopped", *CHAIN, *changes, resume=True)
    assert resumed.step == 4
    list(resumed)
    rows = log_of(tmp_path / "whole")
    assert rows == log_of(tmp_path / "stopped") and len(rows) == 6
    assert all("bonus_mean" in row for row in rows)
    assert whole.bonuses.keys() == resumed.bonuses.keys() and whole.bonuses
    assert all(whole.bonuses[k].state() == resumed.bonuses[k].state() for k in whole.bonuses)


def test_a_run_without_a_bonus_is_paid_by_the_task_alone(tmp_path):
    made = run(tmp_path / "run", *CHAIN)
    list(made)
    assert not made.bonuses and "bonus_mean" not in log_of(tmp_path / "run")[0]


@pytest.mark.parametrize(("changes", "message"), [
    (("shaping.potential=nowhere:f",), "shaping.potential: importing nowhere"),
    (("exploration.bonus=surprise",), "exploration.bonus"),
    ((*CHAIN, "env.options.states=0"), "env.options.states must be a whole number"),
    ((*CHAIN, "env.options.length=5"), r"must be among \['slack', 'states'\]"),
])  # fmt: skip
def test_what_is_refused(tmp_path, changes, message):
    with pytest.raises(ConfigError, match=message):
        run(tmp_path / "run", *changes)


def test_a_potential_must_give_one_number_an_observation():
    shaping = Shaping(ShapingConfig(potential="numpy:sin"), GAMMA)
    with pytest.raises(ConfigError, match="shaping.potential numpy:sin must give one finite number for each of 2"):
        shaping.pay(visit([[0.0, 1.0]]))


def test_the_chain_is_observed_in_its_order():
    envs = make_envs(config(*CHAIN).env)
    obs = envs.reset(0)
    assert along_the_chain(obs).tolist() == [0.0] * 4
    step = envs.step(np.array([1, 1, 0, 1]))
    assert along_the_chain(step.obs).tolist() == [0.2, 0.2, 0.0, 0.2] and step.reward.tolist() == [0, 0, 0.001, 0]
