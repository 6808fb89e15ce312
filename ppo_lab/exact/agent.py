"""A policy and a critic as tables, sampled and trained on an `MDP`: the real PPO update where the truth is known.

    learner = PlainLearner(TabularActorCritic(mdp), actor_rate=0.1, critic_rate=0.1, device="cpu")
    for step in train(learner, mdp, cfg, episodes=32, steps=64, iterations=50, seed=0):
        step.J, step.update.policy_kl_k3

What then separates J from its optimum is the algorithm's doing: there is nothing to approximate.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ppo_lab import faults, seeding
from ppo_lab.config.ppo import PPOConfig
from ppo_lab.core._checks import check_choice
from ppo_lab.core.distributions import categorical_logp, entropy
from ppo_lab.core.kl import categorical_kl
from ppo_lab.core.returns import gae
from ppo_lab.exact.mdp.solve import check_policy, solve
from ppo_lab.exact.mdp.world import MDP, ROUNDING
from ppo_lab.learners import Learner
from ppo_lab.records import Assessment, ControlRollout, StepBatch, UpdateMetrics
from ppo_lab.update import ppo_update

AFTER_END = ("restart", "mask")


class TabularActorCritic(nn.Module):
    """One row of logits and one value a state, float64.

    Args:
        mdp: gives the sizes.
        logits: (S, A) to start from, copied; None is the undecided policy.
        value: (S,) likewise; None is 0.
    """

    def __init__(self, mdp: MDP, logits: Tensor | None = None, value: Tensor | None = None):
        super().__init__()
        self.logits = nn.Parameter((torch.zeros_like(mdp.reward) if logits is None else logits).detach().clone())
        self.value = nn.Parameter((torch.zeros_like(mdp.start) if value is None else value).detach().clone())

    @property
    def probs(self) -> Tensor:
        """π(a|s), (S, A), without a gradient."""
        return self.logits.detach().softmax(-1)

    def forward(self, obs: Tensor, action: Tensor, old_logits: Tensor | None = None) -> dict[str, Tensor]:
        """``logp``, ``entropy``, ``value`` of steps, any shape; with the old logits of each also the exact ``old_kl``.

        Args:
            obs, action: whole numbers, the state and what was done there.
            old_logits: (..., A) of the policy that sampled.
        """
        logits = self.logits[obs]
        found = {"logp": categorical_logp(logits, action), "entropy": entropy(logits), "value": self.value[obs]}
        return found if old_logits is None else found | {"old_kl": categorical_kl(old_logits, logits)}

    def parameter_groups(self) -> dict[str, list[tuple[str, nn.Parameter]]]:
        """The table of logits, and the table of values."""
        return {"actor": [("logits", self.logits)], "critic": [("value", self.value)]}


@dataclass(frozen=True, slots=True, kw_only=True)
class TabularInputs:
    """What the trained tables need to look at steps again."""

    obs: Tensor  # (N,) state
    action: Tensor  # (N,)
    old_logits: Tensor | None = None  # (N, A), where the penalty wants the exact KL(old‖new)


def assess(learner: Learner, inputs: TabularInputs) -> Assessment:
    """The seam to `ppo_update`: what the tables say of steps now."""
    return Assessment(**learner.forward(obs=inputs.obs, action=inputs.action, old_logits=inputs.old_logits))


@torch.no_grad()
def sample(
    mdp: MDP,
    probs: Tensor,
    *,
    episodes: int,
    steps: int,
    seed: int,
    value: Tensor | None = None,
    after_end: str = "restart",
) -> ControlRollout:
    """Follow a policy: ``episodes`` rows at once, ``steps`` columns; the same seed gives the same rollout.

    An episode that terminates, or is cut by the world's limit, gives way to a new one in the next column; the last
    column cuts what still goes on. So a row may hold several episodes, and every cut has its ``next_value``.

    Args:
        mdp: the world.
        probs: π(a|s), (S, A).
        episodes: B, rows.
        steps: T, columns.
        seed: keys the noise.
        value: (S,) what the critic says; None: the exact V of this policy.
        after_end: "restart", or "mask": one episode a row, and what follows its end does not count.

    Returns:
        A rollout with whole numbers as ``obs`` and ``action``, the rest float64 and bool, all (B, T). ``next_value`` is
        V of the state that the step led to, before any restart; 0 after a termination.

    >>> from ppo_lab.exact.mdp import corridor
    >>> right = torch.tensor([[0.0, 1.0]] * 3, dtype=torch.float64)
    >>> rollout = sample(corridor(3), right, episodes=1, steps=5, seed=0)
    >>> rollout.obs.tolist(), rollout.terminated.tolist(), rollout.ended.tolist()
    ([[1, 2, 1, 2, 1]], [[False, True, False, True, False]], [[False, True, False, True, True]])
    """
    check_policy(mdp, probs)
    check_choice("after_end", after_end, AFTER_END)
    if episodes < 1 or steps < 1:
        raise ValueError(f"episodes and steps must be at least 1, got {episodes} and {steps}; 32 and 64 are usual")
    value = solve(mdp, probs).value if value is None else value.detach().double()
    columns: dict[str, list[Tensor]] = {}
    for column in _columns(mdp, probs, episodes, steps, seed, value):
        for name, x in column.items():
            columns.setdefault(name, []).append(x)
    found = {name: torch.stack(column, dim=1) for name, column in columns.items()}
    mask = torch.ones_like(found["ended"])
    if after_end == "mask":
        mask[:, 1:] = found["ended"].cumsum(-1)[:, :-1] == 0
    chosen = found["obs"], found["action"]
    return ControlRollout(
        **found, logp=categorical_logp(probs.log()[chosen[0]], chosen[1]), reward=mdp.reward[chosen], mask=mask,
        value=value[chosen[0]],
    )  # fmt: skip


def _columns(
    mdp: MDP, probs: Tensor, episodes: int, steps: int, seed: int, value: Tensor
) -> Iterator[dict[str, Tensor]]:
    """One step of every row after the other, the noise drawn up front."""
    noise = torch.rand(steps + 1, 3, episodes, generator=seeding.generator(seed, "tabular sample"), dtype=torch.float64)
    act, move, begin = probs.cumsum(-1), mdp.transition.cumsum(-1), mdp.start.cumsum(-1)
    act, begin = act / act[:, -1:], begin / begin[-1]
    mass = move[..., -1:]
    move = torch.where(mass > 1 - ROUNDING, move / mass, move)  # no end by rounding
    obs, age = pick(begin, noise[steps, 0]), torch.zeros(episodes, dtype=torch.long)
    for t in range(steps):
        action = pick(act[obs], noise[t, 0])
        there, age = pick(move[obs, action], noise[t, 1]), age + 1
        terminated = there == mdp.states
        cut = (age >= mdp.limit) if mdp.limit else torch.zeros_like(terminated)
        if faults.active("limit_is_end"):
            terminated = terminated | cut
        ended = terminated | cut | torch.tensor(t == steps - 1)
        there = torch.where(terminated, 0, there)
        yield {"obs": obs, "action": action, "terminated": terminated, "ended": ended,
               "next_value": torch.where(terminated, 0.0, value[there])}  # fmt: skip
        obs, age = torch.where(ended, pick(begin, noise[t, 2]), there), torch.where(ended, 0, age)


def pick(cumulative: Tensor, noise: Tensor) -> Tensor:
    """Inverse CDF, row by row: the first entry above the noise, K where there is none. (..., K), (...) -> (...)."""
    return (noise[..., None] >= cumulative).sum(-1)


def advantages(rollout: ControlRollout, *, gamma: float, lam: float) -> tuple[Tensor, Tensor]:
    """GAE and the critic's target, (B, T); at λ = 1 and values of 0 both are the return G."""
    flags = {"terminated": rollout.terminated, "ended": rollout.ended}
    if faults.active("episodes_joined"):  # next_value is 0 after a termination: only the sum runs on
        flags = {"terminated": rollout.terminated & False, "ended": rollout.ended & False}
        flags["ended"][:, -1] = True
    advantage = gae(rollout.reward, rollout.value, rollout.next_value, **flags, gamma=gamma, lam=lam, mask=rollout.mask)
    return advantage, advantage + rollout.value


def step_batch(
    rollout: ControlRollout, advantage: Tensor, target: Tensor, *, old_logits: Tensor | None = None
) -> StepBatch:
    """What `ppo_update` learns from: every step that counts is a row, (N,). A GAE, or any other advantage (B, T).

    ``old_logits``, the table (S, A) that sampled, is wanted by objective kl_penalty for the exact KL(old‖new).
    """
    keep = rollout.mask
    obs = rollout.obs[keep]
    inputs = TabularInputs(obs=obs, action=rollout.action[keep],
                           old_logits=None if old_logits is None else old_logits.detach()[obs])  # fmt: skip
    return StepBatch(inputs=inputs, old_logp=rollout.logp[keep], old_value=rollout.value[keep],
                     advantage=advantage[keep], return_=target[keep], mask=keep[keep])  # fmt: skip


def tables(learner: Learner) -> tuple[Tensor, Tensor]:
    """Copies of the logits (S, A) and the values (S,) that it trains."""
    with learner.whole() as module:
        assert isinstance(module, TabularActorCritic)
        return module.logits.detach().clone(), module.value.detach().clone()


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One iteration of `train`."""

    J: float  # exact, of the policy after the update
    probs: Tensor  # (S, A) after the update
    rollout: ControlRollout  # what it learned from
    update: UpdateMetrics


def train(
    learner: Learner, mdp: MDP, cfg: PPOConfig, *, episodes: int, steps: int, iterations: int, seed: int,
    after_end: str = "restart",
) -> Iterator[Progress]:  # fmt: skip
    """Sample, estimate advantages, update, and say what the policy is worth now: PPO, with J instead of a curve.

    Args:
        learner: owns a `TabularActorCritic`.
        mdp: the world; its discount is the one that counts, not the config's.
        cfg: of `ppo_update`; λ is read here.
        episodes, steps, after_end: of `sample`, each iteration.
        iterations: how often.
        seed: of rollouts and minibatches.
    """
    for i in range(iterations):
        logits, value = tables(learner)
        probs = logits.softmax(-1)
        rollout = sample(mdp, probs, episodes=episodes, steps=steps, seed=seeding.key(seed, "rollout", i), value=value,
                         after_end=after_end)  # fmt: skip
        advantage, target = advantages(rollout, gamma=mdp.gamma, lam=cfg.lam)
        batch = step_batch(rollout, advantage, target, old_logits=logits)
        seen = ppo_update(learner, batch, assess, cfg, seed=seeding.key(seed, "update", i))
        probs = tables(learner)[0].softmax(-1)
        yield Progress(J=solve(mdp, probs).J.item(), probs=probs, rollout=rollout, update=seen)
