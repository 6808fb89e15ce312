"""Whatever way an environment starts anew, the learner is told the same."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch
from control.small_control import Counting, config
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from ppo_lab import seeding
from ppo_lab.config import ConfigError
from ppo_lab.control.collect import Collector
from ppo_lab.control.envs import LoopEnvs, VectorEnvs
from ppo_lab.control.make import make_envs
from ppo_lab.control.normalize import Normalizers
from ppo_lab.control.policy import ActorCritic, actions_of

NEXT = AutoresetMode.NEXT_STEP.value
KINDS = ["loop", *(mode.value for mode in AutoresetMode)]


def counting(kind: str, n: int = 2, length: int = 3) -> LoopEnvs | VectorEnvs:
    makers = [lambda i=i: Counting(length + i) for i in range(n)]
    if kind == "loop":
        return LoopEnvs([make() for make in makers])
    return VectorEnvs(SyncVectorEnv(makers, autoreset_mode=AutoresetMode(kind)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_transition_says_where_it_led_and_what_is_acted_on_next(kind):
    envs = counting(kind)
    envs.reset(seed=0)
    seen = [envs.step(np.zeros(2, dtype=int)) for _ in range(12)]
    for row, length in ((0, 3), (1, 4)):
        valid = [s for s in seen if s.valid[row]]
        taken = [int(s.final[row][1]) for s in valid]
        assert taken == [1 + i % length for i in range(len(valid))]
        assert [float(s.reward[row]) for s in valid] == taken
        ends = [s for s in valid if s.terminated[row] or s.truncated[row]]
        assert [int(s.final[row][0]) for s in ends] == [100 * i for i in range(len(ends))]  # of its own episode
        assert [bool(s.terminated[row]) for s in ends] == [i % 2 == 0 for i in range(len(ends))]
        assert all(s.terminated[row] != s.truncated[row] for s in ends)
        if kind != NEXT:
            assert len(valid) == 12 and all(s.obs[row][1] == 0 for s in ends)


def collected(envs, steps: int, critic):
    """A rollout of the untrained policy whose critic says what it is told to."""
    actions = actions_of(envs.action_space)
    cfg = config()
    module = ActorCritic(cfg.net, 2, actions, seeding.generator(0, "weights"))
    module.judged = critic
    collector = Collector(envs, actions, Normalizers(cfg.normalize, (2,), 0.99))
    collector.reset(0)
    noise = actions.noise(steps, envs.count, draw=seeding.generator(1, "act"))
    return collector.collect(module, noise)


def place(obs: torch.Tensor) -> torch.Tensor:
    """A critic that says where it looked: 100 · episode + step."""
    return obs.sum(-1)


@pytest.mark.parametrize("kind", KINDS)
def test_all_modes_give_the_same_steps(kind):
    """Row by row, what counts is equal: reward, ends, value, and the value of what each step led to."""
    rollout = collected(counting(kind), 24, place).rollout
    expected = collected(counting("loop"), 24, place).rollout
    for row in range(2):
        mask = rollout.mask[row].clone()
        mask[-1] = False  # the last column is cut, wherever it falls
        n = int(mask.sum())
        for name in ("obs", "reward", "terminated", "ended", "value", "next_value"):
            mine, theirs = getattr(rollout, name)[row][mask], getattr(expected, name)[row][:n]
            assert torch.equal(mine, theirs), (kind, name)
    assert bool(rollout.ended[:, -1].all())
    assert rollout.mask.all() == (kind != NEXT)


def test_a_truncated_step_is_worth_the_value_of_its_final_observation():
    rollout = collected(counting("loop", n=1), 12, place).rollout
    cut = rollout.ended[0] & ~rollout.terminated[0]
    assert rollout.next_value[0][cut].tolist()[:2] == [103.0, 303.0]  # not 200 and 400, where the next ones start
    assert rollout.terminated[0].nonzero()[:, 0].tolist() == [2, 8]


@pytest.mark.parametrize("kind", KINDS)
def test_episodes_are_counted_once_across_rollouts(kind):
    envs = counting(kind, n=1)
    actions, cfg = actions_of(envs.action_space), config()
    module = ActorCritic(cfg.net, 2, actions, seeding.generator(0, "weights"))
    collector = Collector(envs, actions, Normalizers(cfg.normalize, (2,), 0.99))
    collector.reset(0)
    returns, lengths, cut = [], [], []
    for i in range(5):  # 25 steps, in pieces that end within an episode
        noise = actions.noise(5, 1, draw=seeding.generator(1, "act", i))
        episodes = collector.collect(module, noise).episodes
        returns += episodes.returns.tolist()
        lengths += episodes.lengths.tolist()
        cut += episodes.truncated.tolist()
    assert set(returns) == {6.0} and set(lengths) == {3.0}  # 1 + 2 + 3
    assert cut == [i % 2 == 1 for i in range(len(cut))] and len(cut) == (6 if kind == NEXT else 8)


def test_native_cartpole_is_the_single_one_step_by_step():
    native = make_envs(config("env.vector=native").env, 3)
    assert isinstance(native, VectorEnvs) and native.mode is AutoresetMode.NEXT_STEP
    obs, single = native.reset(7), gym.make("CartPole-v1")
    single.reset(seed=0)
    single.unwrapped.state = native.envs.state[:, 1].copy()
    rng = np.random.default_rng(0)
    for _ in range(200):
        action = rng.integers(0, 2, 3)
        step = native.step(action)
        obs, reward, terminated, _, _ = single.step(int(action[1]))
        np.testing.assert_allclose(step.final[1], obs, rtol=0, atol=1e-6)  # float32 observations
        assert step.terminated[1] == terminated and step.reward[1] == reward and step.valid[1]
        if terminated:
            return
    raise AssertionError("a random policy does not balance for 200 steps")


def test_time_limits_and_options_reach_the_environment():
    envs = make_envs(config("env.vector=loop", "env.time_limit=5").env, 1)
    envs.reset(0)
    ends = [bool(envs.step(np.array([i % 2])).truncated[0]) for i in range(6)]
    assert ends == [False] * 4 + [True, False]
    pendulum = make_envs(config("env.id=Pendulum-v1", "env.options={g: 3.0}").env, 1)
    assert pendulum.envs[0].unwrapped.g == 3.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("env.id=CartPol-v1",), "env.id must be a Gymnasium environment, got 'CartPol-v1'; did you mean CartPole-v1?"),
        (("env.id=probe/valu",), "env.id must name a probe, got probe/valu; did you mean probe/value?"),
        (("env.id=Acrobot-v1", "env.vector=native"), "env.vector native needs an environment with a vector form"),
        (("env.options={wind: 3}",), "env.options must be arguments of CartPole-v1, got {'wind': 3}"),
        (("env.id=Blackjack-v1",), "env.id must observe numbers .* Blackjack-v1"),
        (("env.id=probe/bandit", "env.options={arms: [1]}"), "env.options.arms must be at least two numbers"),
        (("env.id=probe/value", "env.options={arms: [1, 2]}"), "env.options of probe/value must be among none"),
    ],
)
def test_what_cannot_work_is_said_before_any_work(change, message):
    with pytest.raises(ConfigError, match=message):
        make_envs(config(*change).env)


def test_a_vector_environment_must_say_its_mode():
    envs = SyncVectorEnv([Counting])
    envs.metadata = {}
    with pytest.raises(ConfigError, match="must say its metadata"):
        VectorEnvs(envs)
