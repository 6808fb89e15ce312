"""What heads mean, what is kept and what is sent, and statistics that stand still where they must."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from control.small_control import config
from gymnasium import spaces

from ppo_lab import faults, seeding
from ppo_lab.config.control import NetConfig, NormalizeConfig
from ppo_lab.control.collect import Collector
from ppo_lab.control.evaluate import play
from ppo_lab.control.make import make_envs
from ppo_lab.control.normalize import Moments, Normalizers
from ppo_lab.control.policy import ActorCritic, Choices, Numbers, actions_of


def test_gumbel_noise_draws_from_the_softmax():
    actions, head = Choices(spaces.Discrete(3)), torch.tensor([0.0, 1.0, -1.0])
    n = 40_000
    drawn = actions.sample(head.expand(n, 3), actions.noise(n, draw=seeding.generator(0, "gumbel")))
    share, p = drawn.bincount(minlength=3) / n, head.softmax(-1)
    assert ((share - p).abs() < 4 * (p * (1 - p) / n).sqrt()).all()


def test_choices_know_the_first_number_of_their_space():
    actions = Choices(spaces.Discrete(2, start=5))
    assert actions.sent(torch.tensor([0, 1])).tolist() == [5, 6]


def test_the_raw_action_is_kept_and_a_clipped_copy_sent():
    box = spaces.Box(-0.1, 0.1, (2,), np.float32)
    actions = actions_of(box)
    assert isinstance(actions, Numbers)
    action = torch.tensor([[0.05, 3.0]])
    np.testing.assert_array_equal(actions.sent(action), np.array([[0.05, 0.1]], dtype=np.float32))
    assert action.tolist() == [[pytest.approx(0.05), 3.0]]


def test_a_gaussian_head_agrees_with_torch():
    draw = seeding.generator(0, "head")
    mean = torch.randn(4, 2, generator=draw, dtype=torch.float64)
    log_std = torch.randn(2, generator=draw, dtype=torch.float64).expand(4, 2)
    head, actions = torch.cat([mean, log_std], -1), Numbers(spaces.Box(-1, 1, (2,)))
    action = actions.sample(head, actions.noise(4, draw=draw))
    normal = torch.distributions.Normal(mean, log_std.exp())
    torch.testing.assert_close(actions.logp(head, action), normal.log_prob(action).sum(-1), rtol=0, atol=1e-12)
    torch.testing.assert_close(actions.entropy(head), normal.entropy().sum(-1), rtol=0, atol=1e-12)
    other = torch.distributions.Normal(mean + 1, log_std.exp())
    kl = torch.distributions.kl_divergence(normal, other).sum(-1)
    torch.testing.assert_close(actions.kl(head, torch.cat([mean + 1, log_std], -1)), kl, rtol=1e-12, atol=1e-12)
    assert torch.equal(actions.mode(head), mean)


def test_initial_weights_are_orthogonal_with_the_gains_of_the_37_details():
    net = ActorCritic(NetConfig(), 4, Choices(spaces.Discrete(2)), seeding.generator(0, "weights"))
    first, second = (net.trunk[i].weight for i in (0, 2))
    for weight, gain in ((first.T, 2.0), (second, 2.0), (net.policy.weight, 1e-4)):  # gains squared; float32 weights
        gram, one = weight.double() @ weight.T.double(), torch.eye(len(weight), dtype=torch.float64)
        torch.testing.assert_close(gram / gain, one, rtol=0, atol=2e-6)
    torch.testing.assert_close(net.value.weight.norm(), torch.tensor(1.0), rtol=0, atol=1e-6)
    assert not any(p.any() for name, p in net.named_parameters() if name.endswith("bias"))


@pytest.mark.parametrize("trunk", ["separate", "shared"])
def test_every_parameter_has_one_group_and_a_shared_trunk_is_the_actors(trunk):
    space = spaces.Box(-1, 1, (2,), np.float32)
    net = ActorCritic(NetConfig(trunk=trunk, hidden=(8,)), 3, Numbers(space), seeding.generator(0, "w"))
    groups = net.parameter_groups()
    names = [name for group in groups.values() for name, _ in group]
    assert sorted(names) == sorted(name for name, _ in net.named_parameters())
    assert [name for name, _ in groups["critic"] if name.startswith("critic")] == (
        ["critic.0.weight", "critic.0.bias"] if trunk == "separate" else []
    )
    head, value = net(torch.ones(5, 3))
    assert torch.equal(head, net.head(torch.ones(5, 3))) and torch.equal(value, net.values(torch.ones(5, 3)))
    assert head.shape == (5, 4) and value.shape == (5,)


# --- statistics ------------------------------------------------------------------------------------------------------


def test_moments_in_batches_are_those_of_all():
    x = np.random.default_rng(0).normal(3.0, 5.0, (500, 2))
    moments = Moments((2,))
    for part in np.array_split(x, 7):
        moments.add(part)
    moments.add(x[:0])
    np.testing.assert_allclose(moments.mean, x.mean(0), rtol=0, atol=1e-12)
    np.testing.assert_allclose(moments.var, x.var(0), rtol=0, atol=1e-10)
    again = Moments((2,))
    again.load(moments.state())
    assert np.array_equal(again.mean, moments.mean) and np.array_equal(again.var, moments.var)


def test_observations_come_to_one_scale_and_are_clipped():
    normal = Normalizers(NormalizeConfig(observation=True, observation_clip=2.0), (1,), 0.99)
    x = np.array([[0.0], [10.0], [20.0]], dtype=np.float32)
    assert np.array_equal(normal.see(x), np.minimum(x, 2.0))  # nothing is known yet
    normal.learn_observations(x)
    np.testing.assert_allclose(normal.see(x)[:, 0], [-(1.5**0.5), 0.0, 1.5**0.5], rtol=0, atol=1e-6)
    assert normal.see(np.array([[1000.0]], dtype=np.float32)).item() == 2.0


def test_rewards_are_divided_by_the_deviation_of_the_discounted_return():
    envs = make_envs(config("env.id=probe/discount").env, 3)
    actions, cfg = actions_of(envs.action_space), config("normalize.reward=true", "normalize.reward_clip=10")
    normal = Normalizers(cfg.normalize, (2,), 0.9)
    collector = Collector(envs, actions, normal)
    collector.reset(0)
    module = ActorCritic(cfg.net, 2, actions, seeding.generator(0, "w"))
    rollout = collector.collect(module, actions.noise(4, 3, draw=seeding.generator(0, "a"))).rollout
    returns = np.tile([0.0, 1.0, 0.0, 1.0], 3)  # 0, then 0.9 · 0 + 1; anew after the end
    assert normal.reward_scale == pytest.approx(returns.std(), abs=1e-6)
    assert rollout.reward[0].tolist() == pytest.approx([0.0, 2.0, 0.0, 2.0], abs=1e-6)


def test_an_evaluation_moves_no_statistic():
    cfg = config("normalize.observation=true", "normalize.reward=true")
    envs = make_envs(cfg.env, 3)
    actions, normal = actions_of(envs.action_space), Normalizers(cfg.normalize, (4,), 0.99)
    normal.learn_observations(np.random.default_rng(0).normal(size=(50, 4)))
    normal.learn_rewards(np.array([1.0, 2.0]))
    before = normal.state()
    module = ActorCritic(cfg.net, 4, actions, seeding.generator(0, "w"))
    for greedy in (True, False):
        played = play(module, envs, actions, normal, seed=0, greedy=greedy)
        assert (played.lengths == played.returns).all() and (played.lengths > 0).all()
    assert normal.state() == before


def test_a_played_episode_stops_where_it_ended_and_where_it_is_left():
    cfg = config("env.id=probe/time_limit")
    envs = make_envs(cfg.env, 3)
    actions, normal = actions_of(envs.action_space), Normalizers(cfg.normalize, (1,), 0.99)
    module = ActorCritic(cfg.net, 1, actions, seeding.generator(0, "w"))
    whole = play(module, envs, actions, normal, seed=0, greedy=True)
    assert whole.returns.tolist() == whole.lengths.tolist() == [10.0] * 3 and whole.truncated.all()
    left = play(module, envs, actions, normal, seed=0, greedy=True, most_steps=4)
    assert left.returns.tolist() == [4.0] * 3 and left.truncated.all()


def test_a_clipped_action_with_the_raw_ones_log_probability_is_found_before_the_first_step():
    cfg = config("env.id=Pendulum-v1", "net.log_std=2.0")  # bounds ±2, σ 7: most samples are outside
    envs = make_envs(cfg.env, 2)
    actions = actions_of(envs.action_space)
    module = ActorCritic(cfg.net, 3, actions, seeding.generator(0, "w"))

    def error() -> float:
        collector = Collector(envs, actions, Normalizers(cfg.normalize, (3,), 0.99))
        collector.reset(0)
        found = collector.collect(module, actions.noise(8, 2, draw=seeding.generator(0, "a")))
        now = actions.logp(found.head, found.rollout.action)
        return float((now - found.rollout.logp).abs().max())

    assert error() < 1e-6
    with faults.planted("clipped_action_stored"):
        assert error() > 0.1
