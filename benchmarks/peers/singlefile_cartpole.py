"""PPO for CartPole-v1 in one plain loop, with the settings that CleanRL publishes for it.

4 environments × 128 steps, rate 2.5e-4 annealed over 500,000 steps, γ 0.99, λ 0.95, 4 epochs × 4 minibatches, clip 0.2
(values too), entropy 0.01, value 0.5, gradient norm 0.5, Adam's eps 1e-5, separate 64-64 tanh networks, orthogonal
initialisation. ``--envs ppo_lab`` swaps in our environment loop, to tell the algorithm's share from the environment's.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch
from referee import Referee, options
from torch import Tensor, nn

ENVS, STEPS, EPOCHS, PARTS = 4, 128, 4, 4
RATE, GAMMA, LAM, CLIP, ENTROPY, VALUE, NORM = 2.5e-4, 0.99, 0.95, 0.2, 0.01, 0.5, 0.5
ROWS = ENVS * STEPS


def network(outputs: int, gain: float) -> nn.Sequential:
    """4 → 64 → 64 → outputs."""
    layers: list[nn.Module] = []
    for inside, outside, scale in ((4, 64, 2**0.5), (64, 64, 2**0.5), (64, outputs, gain)):
        layer = nn.Linear(inside, outside)
        nn.init.orthogonal_(layer.weight, scale)
        nn.init.zeros_(layer.bias)
        layers += [layer, nn.Tanh()]
    return nn.Sequential(*layers[:-1])


class Gymnasium:
    """Gymnasium's synchronous vector environment, starting anew in the step that ends."""

    def __init__(self, seed: int):
        self.envs = gymnasium.vector.SyncVectorEnv(
            [lambda: gymnasium.make("CartPole-v1")] * ENVS, autoreset_mode=gymnasium.vector.AutoresetMode.SAME_STEP
        )
        self.obs = self.envs.reset(seed=seed)[0]

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Reward, and whether the episode ended."""
        self.obs, reward, terminated, truncated, _ = self.envs.step(actions)
        return reward, terminated | truncated


class Ours:
    """The environment loop of ppo_lab behind the same two names."""

    def __init__(self, seed: int):
        from ppo_lab.config.control import EnvConfig
        from ppo_lab.control.make import make_envs

        self.envs = make_envs(EnvConfig(id="CartPole-v1", count=ENVS, vector="loop"))  # the native form skips a step
        self.obs = self.envs.reset(seed)

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Reward, and whether the episode ended."""
        said = self.envs.step(actions)
        self.obs = said.obs
        return said.reward, said.terminated | said.truncated


def collect(envs: Any, actor: nn.Module, critic: nn.Module) -> dict[str, Tensor]:
    """128 steps in 4 environments with advantages and returns, rows laid end to end."""
    kept: dict[str, list[Tensor]] = {name: [] for name in ("obs", "action", "logp", "value", "reward", "ended")}
    with torch.no_grad():
        for _ in range(STEPS):
            obs = torch.as_tensor(envs.obs, dtype=torch.float32)
            policy = torch.distributions.Categorical(logits=actor(obs))
            action = policy.sample()
            reward, ended = envs.step(action.numpy())
            seen = (obs, action, policy.log_prob(action), critic(obs)[:, 0], torch.as_tensor(reward).float(),
                    torch.as_tensor(ended).float())  # fmt: skip
            for name, x in zip(kept, seen, strict=True):
                kept[name].append(x)
        batch = {name: torch.stack(x) for name, x in kept.items()}
        ahead, carried = critic(torch.as_tensor(envs.obs, dtype=torch.float32))[:, 0], torch.zeros(ENVS)
        advantage = torch.zeros(STEPS, ENVS)
        for t in reversed(range(STEPS)):
            going = 1 - batch["ended"][t]
            carried = batch["reward"][t] + GAMMA * ahead * going - batch["value"][t] + GAMMA * LAM * going * carried
            advantage[t], ahead = carried, batch["value"][t]
    batch |= {"advantage": advantage, "return": advantage + batch["value"]}
    return {name: x.reshape(ROWS, *x.shape[2:]) for name, x in batch.items()}


def loss(part: dict[str, Tensor], actor: nn.Module, critic: nn.Module) -> Tensor:
    """Clipped surrogate, clipped value error, entropy bonus."""
    policy = torch.distributions.Categorical(logits=actor(part["obs"]))
    value, old = critic(part["obs"])[:, 0], part["value"]
    ratio = (policy.log_prob(part["action"]) - part["logp"]).exp()
    advantage = (part["advantage"] - part["advantage"].mean()) / (part["advantage"].std() + 1e-8)
    gain = torch.minimum(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage).mean()
    near = old + (value - old).clamp(-CLIP, CLIP)
    error = torch.maximum((value - part["return"]) ** 2, (near - part["return"]) ** 2).mean()
    return -gain - ENTROPY * policy.entropy().mean() + VALUE * 0.5 * error


def main() -> None:
    asked = options(500_000, envs="gymnasium")
    torch.manual_seed(asked.seed)
    order = np.random.default_rng(asked.seed)
    envs = {"gymnasium": Gymnasium, "ppo_lab": Ours}[asked.envs](asked.seed)
    actor, critic = network(2, 0.01), network(1, 1.0)
    parameters = [*actor.parameters(), *critic.parameters()]
    adam = torch.optim.Adam(parameters, lr=RATE, eps=1e-5)
    name = "single file, CleanRL settings" + (", our environments" if asked.envs == "ppo_lab" else "")
    referee, updates, steps = Referee(name, asked.seed), 500_000 // ROWS, 0

    def act(obs: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return actor(torch.as_tensor(obs)).argmax(-1).numpy()

    for update in range(min(updates, asked.most // ROWS)):
        adam.param_groups[0]["lr"] = RATE * (1 - update / updates)
        batch = collect(envs, actor, critic)
        for _ in range(EPOCHS):
            for rows in torch.as_tensor(order.permutation(ROWS)).chunk(PARTS):
                adam.zero_grad()
                loss({key: x[rows] for key, x in batch.items()}, actor, critic).backward()
                nn.utils.clip_grad_norm_(parameters, NORM)
                adam.step()
        steps += ROWS
        if referee.look(steps, act):
            break
    referee.report(steps, version=f"torch {torch.__version__}")


if __name__ == "__main__":
    main()
