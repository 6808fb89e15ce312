"""How good a policy is on fresh environments: one episode each, nothing learns, statistics stand still."""

from __future__ import annotations

import numpy as np
import torch

from ppo_lab import seeding
from ppo_lab.config.control import ControlConfig
from ppo_lab.learners import Learner
from ppo_lab.records import ControlEvaluation

from .collect import Episodes
from .envs import Envs
from .make import make_envs
from .normalize import Normalizers
from .policy import ActorCritic, Choices, Numbers


@torch.no_grad()
def play(
    module: ActorCritic, envs: Envs, actions: Choices | Numbers, normalizers: Normalizers, *, seed: int, greedy: bool,
    most_steps: int = 10_000,
) -> Episodes:  # fmt: skip
    """The first episode of each environment, in raw reward; one longer than ``most_steps`` is left there.

    Args:
        module: the policy.
        envs: started anew from ``seed``; one episode each.
        actions: what the policy's output means.
        normalizers: read, never fed.
        seed: of start states, and of the actions where they are sampled.
        greedy: the likeliest action, in place of a sampled one.
        most_steps: cap on an episode.
    """
    obs, n = envs.reset(seed), envs.count
    draw = seeding.generator(seed, "play")
    total, length, alive, cut = np.zeros(n), np.zeros(n), np.ones(n, dtype=bool), np.ones(n, dtype=bool)
    for _ in range(most_steps):
        head = module.head(torch.from_numpy(normalizers.see(obs)))
        action = actions.mode(head) if greedy else actions.sample(head, actions.noise(n, draw=draw))
        step = envs.step(actions.sent(action))
        obs = step.obs
        total += np.where(alive, step.reward, 0.0)
        length += alive
        cut &= ~(alive & step.terminated)
        alive &= ~(step.terminated | step.truncated)
        if not alive.any():
            break
    return Episodes(total, length, cut)


class Evaluator:
    """Environments of its own, kept from one evaluation to the next; start states differ each time.

    Args:
        cfg: of the run.
        actions, normalizers: of the run; the normalizers are read, never fed.
    """

    def __init__(self, cfg: ControlConfig, actions: Choices | Numbers, normalizers: Normalizers):
        self.cfg, self.actions, self.normalizers = cfg, actions, normalizers
        self.envs: Envs | None = None

    def evaluate(self, learner: Learner, step: int | str) -> ControlEvaluation:
        """Greedy, and sampled where the config asks for it; ``step`` names the start states."""
        greedy = self.episodes(learner, step, greedy=True)
        sampled = self.episodes(learner, step, greedy=False) if self.cfg.evaluation.sampled else None
        return ControlEvaluation(
            eval_return=float(greedy.returns.mean()), eval_return_worst=float(greedy.returns.min()),
            eval_episode_length=float(greedy.lengths.mean()),
            eval_return_sampled=None if sampled is None else float(sampled.returns.mean()),
        )  # fmt: skip

    def episodes(self, learner: Learner, step: int | str, *, greedy: bool, episodes: int | None = None) -> Episodes:
        """Each episode by itself; ``episodes`` in place of the config's number."""
        count = episodes or self.cfg.evaluation.episodes
        if self.envs is None or self.envs.count != count:
            self.close()
            self.envs = make_envs(self.cfg.env, count)
        seed = seeding.key(self.cfg.seed, "evaluation", step) % 2**31
        with learner.whole() as module:
            return play(module, self.envs, self.actions, self.normalizers, seed=seed, greedy=greedy,  # type: ignore[arg-type]
                        most_steps=self.cfg.evaluation.most_steps)  # fmt: skip

    def close(self) -> None:
        """Let go of the environments."""
        if self.envs is not None:
            self.envs.close()
        self.envs = None
