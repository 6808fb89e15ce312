"""T steps of N environments, as one `ControlRollout`; the policy acts, nothing learns.

Inside the loop only the actor runs. Values, of all steps and of the final observations, are one forward afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ppo_lab import faults
from ppo_lab.records import ControlRollout

from .envs import Envs, Transition
from .normalize import Normalizers
from .policy import ActorCritic, Choices, Numbers
from .shaping import Bonus, Visit


class Episodes(NamedTuple):
    """Episodes that ended in a rollout, in raw reward. One cut by a checkpoint's reset is none."""

    returns: np.ndarray  # (E,)
    lengths: np.ndarray  # (E,)
    truncated: np.ndarray  # (E,) bool


class Collected(NamedTuple):
    """A rollout with what else is known of it."""

    rollout: ControlRollout  # rewards scaled, observations as the policy saw them
    head: Tensor  # (B, T, H) the policy's output, which the exact KL(old‖new) needs
    episodes: Episodes
    raw_obs: np.ndarray  # (T, N, *O) as the environment gave them
    bonus: float | None = None  # mean a step of what was paid besides


@dataclass
class Tape:
    """What the loop writes down, time first."""

    obs: np.ndarray  # (T, N, *O) raw
    seen: Tensor  # (T, N, *O) as the policy saw them
    head: Tensor  # (T, N, H)
    action: Tensor  # (T, N[, A])
    steps: list[Transition] = field(default_factory=list)

    def stacked(self, name: str) -> np.ndarray:
        """One field of all transitions, (T, N)."""
        return np.stack([getattr(step, name) for step in self.steps])


class Collector:
    """Environments with their present observation, and what of their episodes came before this rollout.

    Args:
        envs: N environments.
        actions: what a head means.
        normalizers: what the policy sees, and what the learner is paid.
        bonuses: what it is paid besides, by name; added after the reward was scaled.
    """

    def __init__(
        self, envs: Envs, actions: Choices | Numbers, normalizers: Normalizers,
        bonuses: Mapping[str, Bonus] | None = None,
    ):  # fmt: skip
        self.envs, self.actions, self.normalizers, self.bonuses = envs, actions, normalizers, bonuses or {}
        self.shape = envs.observation_space.shape or ()

    def reset(self, seed: int) -> None:
        """Start all environments anew; whatever was under way has ended, not terminated."""
        self.obs = self.envs.reset(seed)
        zero = np.zeros(self.envs.count)
        self.running, self.total, self.length = zero.copy(), zero.copy(), zero.copy()

    @torch.no_grad()
    def collect(self, module: ActorCritic, noise: Tensor) -> Collected:
        """Act ``len(noise)`` times in every environment.

        Args:
            module: actor and critic.
            noise: (T, N, …) from ``actions.noise``.

        Returns:
            The rollout, (B, T) with B = N: ``next_value`` is V of the observation that the step led to, which of a
            truncated episode is its final one. The last column has ended, whatever it was.
        """
        tape = self._play(module, noise)
        flags = {name: tape.stacked(name) for name in ("terminated", "truncated", "valid")}
        ended = flags["terminated"] | flags["truncated"]
        raw = np.where(flags["valid"], tape.stacked("reward"), 0.0)
        reward, episodes = self._rewards(raw, ended, flags["valid"]), self._episodes(raw, ended, flags)
        bonus = self._bonus(tape, flags, episodes) if self.bonuses else None
        value, next_value = self._values(module, tape, ended)
        if faults.active("limit_is_end"):
            flags["terminated"] = ended.copy()
        ended[-1] = True
        logp = self.actions.logp(tape.head, tape.action)
        action = tape.action
        if faults.active("clipped_action_stored"):
            action = torch.from_numpy(self.actions.sent(action)).clone()
        rollout = ControlRollout(
            obs=rows_first(tape.seen), action=rows_first(action), logp=rows_first(logp),
            reward=rows_first(torch.from_numpy(reward if bonus is None else reward + bonus).float()),
            terminated=rows_first(torch.from_numpy(flags["terminated"])), ended=rows_first(torch.from_numpy(ended)),
            mask=rows_first(torch.from_numpy(flags["valid"])), value=rows_first(value),
            next_value=rows_first(next_value),
        )  # fmt: skip
        paid = None if bonus is None else float(bonus.sum() / max(flags["valid"].sum(), 1))
        return Collected(rollout, rows_first(tape.head), episodes, tape.obs, paid)

    def _play(self, module: ActorCritic, noise: Tensor) -> Tape:
        steps, count, actions = len(noise), self.envs.count, self.actions
        obs = np.empty((steps, count, *self.shape), dtype=self.obs.dtype)
        seen = torch.empty(steps, count, *self.shape)
        head = torch.empty(steps, count, actions.outputs * (2 if actions.gaussian else 1))
        action = torch.empty(steps, count, *actions.shape, dtype=torch.float32 if actions.gaussian else torch.int64)
        tape = Tape(obs, seen, head, action)
        for t in range(steps):
            obs[t] = self.obs
            seen[t] = torch.from_numpy(self.normalizers.see(self.obs))
            head[t] = module.head(seen[t])
            action[t] = actions.sample(head[t], noise[t])
            step = self.envs.step(actions.sent(action[t]))
            tape.steps.append(step)
            self.obs = step.obs
        return tape

    def _rewards(self, raw: np.ndarray, ended: np.ndarray, valid: np.ndarray) -> np.ndarray:
        """Rewards ÷ deviation of the discounted return so far, this rollout's included."""
        if self.normalizers.cfg.reward:
            running = np.empty_like(raw)
            for t, reward in enumerate(raw):
                self.running = self.running * self.normalizers.gamma + reward
                running[t] = self.running
                self.running = np.where(ended[t], 0.0, self.running)
            self.normalizers.learn_rewards(running[valid])
        return self.normalizers.scale(raw)

    def _bonus(self, tape: Tape, flags: dict[str, np.ndarray], episodes: Episodes) -> np.ndarray:
        """What all bonuses pay together, (T, N); 0 where a step only reset."""
        visit = Visit(tape.obs, tape.stacked("final"), flags["terminated"], flags["valid"], episodes.returns)
        return np.where(flags["valid"], sum(bonus.pay(visit) for bonus in self.bonuses.values()), 0.0)

    def _episodes(self, raw: np.ndarray, ended: np.ndarray, flags: dict[str, np.ndarray]) -> Episodes:
        """Totals of the episodes that ended here, from running sums: one look an episode, not one a step."""
        total, length = raw.cumsum(0) + self.total, flags["valid"].cumsum(0) + self.length
        found, cut = [], []
        before: dict[int, tuple[float, float]] = {}
        for n, t in np.argwhere(ended.T):
            earlier = before.get(n, (0.0, 0.0))
            found.append((total[t, n] - earlier[0], length[t, n] - earlier[1]))
            before[n] = (total[t, n], length[t, n])
            cut.append(not flags["terminated"][t, n])
        self.total, self.length = total[-1], length[-1]
        for n, (paid, steps) in before.items():
            self.total[n] -= paid
            self.length[n] -= steps
        returns, lengths = np.array(found, dtype=float).reshape(-1, 2).T
        return Episodes(returns, lengths, np.array(cut, dtype=bool))

    def _values(self, module: ActorCritic, tape: Tape, ended: np.ndarray) -> tuple[Tensor, Tensor]:
        """V of every step, and of what it led to; (T, N) each."""
        last = torch.from_numpy(self.normalizers.see(tape.steps[-1].final))
        values = module.judged(torch.cat([tape.seen, last[None]]))
        value, next_value = values[:-1], values[1:].clone()
        cut = [(t, step) for t, step in enumerate(tape.steps) if step.final is not step.obs and ended[t].any()]
        if cut:  # the column after shows the next episode's start
            where = [np.flatnonzero(ended[t]) for t, _ in cut]
            final = np.concatenate([step.final[n] for (_, step), n in zip(cut, where, strict=True)])
            times = np.concatenate([np.full(len(n), t) for (t, _), n in zip(cut, where, strict=True)])
            next_value[times, np.concatenate(where)] = module.judged(torch.from_numpy(self.normalizers.see(final)))
        return value, next_value


def rows_first(x: Tensor) -> Tensor:
    """(T, N, …) -> (N, T, …), time last as everywhere."""
    return x.transpose(0, 1).contiguous()


def means(episodes: Sequence[Episodes]) -> dict[str, float]:
    """Mean return and length, and the share that was cut, over the episodes of some rollouts; empty where none ended.

    >>> means([Episodes(np.array([1.0, 3.0]), np.array([5.0, 7.0]), np.array([True, False]))])
    {'episode_return': 2.0, 'episode_length': 6.0, 'truncated_share': 0.5}
    """
    returns = np.concatenate([e.returns for e in episodes]) if episodes else np.empty(0)
    if not len(returns):
        return {}
    lengths, cut = np.concatenate([e.lengths for e in episodes]), np.concatenate([e.truncated for e in episodes])
    return {"episode_return": float(returns.mean()), "episode_length": float(lengths.mean()),
            "truncated_share": float(cut.mean())}  # fmt: skip
