"""Stable-Baselines3's PPO on CartPole-v1 with the settings that rl-baselines3-zoo publishes for it.

8 environments × 32 steps, batch 256, 20 epochs, γ 0.98, λ 0.8, no entropy bonus, rate 0.001 → 0 and clip 0.2 → 0,
linearly over 100,000 steps. Runs in an environment that has stable-baselines3.
"""

from __future__ import annotations

from importlib.metadata import version

from referee import Referee, options
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env


class Watch(BaseCallback):
    """Shows the policy to the referee after every update."""

    def __init__(self, referee: Referee):
        super().__init__()
        self.referee = referee

    def _on_rollout_start(self) -> None:
        self.referee.look(self.num_timesteps, lambda obs: self.model.predict(obs, deterministic=True)[0])

    def _on_step(self) -> bool:
        return not self.referee.done


def main() -> None:
    asked = options(100_000)
    envs = make_vec_env("CartPole-v1", n_envs=8, seed=asked.seed)
    model = PPO(
        "MlpPolicy", envs, n_steps=32, batch_size=256, n_epochs=20, gamma=0.98, gae_lambda=0.8, ent_coef=0.0,
        learning_rate=lambda left: 0.001 * left, clip_range=lambda left: 0.2 * left, seed=asked.seed, device="cpu",
    )  # fmt: skip
    referee = Referee("stable-baselines3, zoo settings", asked.seed)
    model.learn(asked.most, callback=Watch(referee))
    referee.look(model.num_timesteps, lambda obs: model.predict(obs, deterministic=True)[0])
    referee.report(model.num_timesteps, version=version("stable_baselines3"))


if __name__ == "__main__":
    main()
