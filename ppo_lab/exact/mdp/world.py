"""A Markov decision process as three tables, and five of them to learn on. S states, A actions, float64."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ppo_lab import seeding

ROUNDING = 1e-9  # how far a sum of probabilities may be from 1
LEFT, RIGHT = 0, 1  # actions of the corridor
MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))  # up, down, left, right: actions of the grid


@dataclass(frozen=True, slots=True, kw_only=True)
class MDP:
    """Where an action leads and what it earns. The mass that a row of ``transition`` lacks is the episode's end.

    A time limit is no part of the world: it cuts an episode, which then has ended without having terminated, and the
    value of the state it was cut in still counts.
    """

    transition: Tensor  # (S, A, S) P(s'|s, a); a row sums to 1 or, where the episode may terminate, to less
    reward: Tensor  # (S, A) expected reward of the step
    start: Tensor  # (S,) P(s_0)
    gamma: float
    limit: int | None = None  # steps after which an episode is cut; None: never

    def __post_init__(self) -> None:
        tables = {"transition": self.transition, "reward": self.reward, "start": self.start}
        for name, table in tables.items():
            if table.dtype != torch.float64 or not bool(table.isfinite().all()):
                raise ValueError(f"{name} must be finite float64, got {table.dtype}; use {name}.double()")
        states, actions = self.reward.shape if self.reward.ndim == 2 else (0, 0)
        shapes = {"transition": (states, actions, states), "reward": (states, actions), "start": (states,)}
        for name, shape in shapes.items():
            if tuple(tables[name].shape) != shape or not states * actions:
                got = tuple(tables[name].shape)
                raise ValueError(f"{name} must be {shape} for S {states}, A {actions}, got {got}; transition is "
                                 "(S, A, S), reward (S, A), start (S,)")  # fmt: skip
        mass = self.transition.sum(-1).max().item()
        if mass > 1 + ROUNDING or bool((self.transition < 0).any()):
            raise ValueError(f"transition rows must be probabilities that sum to at most 1, got {mass}; divide them")
        if abs(self.start.sum().item() - 1) > ROUNDING or bool((self.start < 0).any()):
            raise ValueError(f"start must be probabilities that sum to 1, got {self.start.sum().item()}; divide it")
        if not 0 <= self.gamma <= 1:
            raise ValueError(f"gamma must be in [0, 1], got {self.gamma}; 1 needs episodes that terminate")
        if self.limit is not None and self.limit < 1:
            raise ValueError(f"limit must be at least 1 step, got {self.limit}; None never cuts")

    @property
    def states(self) -> int:
        """S."""
        return self.reward.shape[0]

    @property
    def actions(self) -> int:
        """A."""
        return self.reward.shape[1]


def bandit(reward: Tensor) -> MDP:
    """One state, one step: arm a pays ``reward[a]`` and ends the episode. (K,).

    >>> world = bandit(torch.tensor([0.0, 1.0]))
    >>> world.states, world.actions, float(world.transition.sum())
    (1, 2, 0.0)
    """
    arms = len(reward)
    return MDP(transition=torch.zeros(1, arms, 1, dtype=torch.float64), reward=reward.double()[None],
               start=torch.ones(1, dtype=torch.float64), gamma=1.0)  # fmt: skip


def corridor(
    states: int = 5,
    *,
    left: float = 0.0,
    right: float = 1.0,
    step: float = 0.0,
    slip: float = 0.0,
    gamma: float = 0.95,
    start: int | None = None,
    limit: int | None = None,
) -> MDP:
    r"""A corridor with an exit at each end; action 0 goes left, 1 right. One starts in the middle.

    With :math:`\gamma = 1`, both actions equally likely and the default pay, :math:`V(i) = (i + 1) / (S + 1)`.

    Args:
        states: S, places between the exits.
        left, right: what leaving there pays.
        step: added to the reward of every step.
        slip: probability that a move goes the other way.
        gamma: discount. Below 1 the near exit gains.
        start: place; None is the middle.
        limit: of steps, as in `MDP`.

    Source: the random walk of Sutton & Barto 2018, example 6.2.
    """
    if states < 1 or not 0 <= slip <= 0.5:
        raise ValueError(f"corridor needs states >= 1 and slip in [0, 0.5], got {states} and {slip}; try 5 and 0")
    transition = torch.zeros(states, 2, states, dtype=torch.float64)
    reward = torch.full((states, 2), float(step), dtype=torch.float64)
    for s in range(states):
        for action in (LEFT, RIGHT):
            for move, chance in ((action, 1 - slip), (1 - action, slip)):
                there = s + (1 if move == RIGHT else -1)
                if 0 <= there < states:
                    transition[s, action, there] += chance
                else:
                    reward[s, action] += chance * (right if move == RIGHT else left)
    first = torch.zeros(states, dtype=torch.float64)
    first[(states - 1) // 2 if start is None else start] = 1.0
    return MDP(transition=transition, reward=reward, start=first, gamma=gamma, limit=limit)


def chain(
    states: int = 12, *, goal: float = 1.0, slack: float = 0.0, gamma: float = 0.99, limit: int | None = None
) -> MDP:
    r"""A corridor without patience: action 1 goes one right, action 0 back to the start; only the far end pays.

    A policy that picks at random gets there once in about :math:`2^S` episodes of S steps, so that reward alone shows
    nothing to climb.

    Args:
        states: S, steps to the goal. More: rarer.
        goal: what the last state's action 1 pays; it ends the episode.
        slack: what going back pays. Higher: a better reason to stay.
        gamma, limit: as in `MDP`.

    Source: the chain of Strens 2000 without its noise; Osband et al. 2016, Deep exploration by bootstrapped DQN.

    >>> world = chain(3)
    >>> world.transition[1].argmax(-1).tolist(), world.reward.tolist()
    ([0, 2], [[0.0, 0.0], [0.0, 0.0], [0.0, 1.0]])
    """
    if states < 1:
        raise ValueError(f"chain needs states >= 1, got {states}; try 12")
    transition = torch.zeros(states, 2, states, dtype=torch.float64)
    transition[:, LEFT, 0] = 1.0
    transition[range(states - 1), RIGHT, range(1, states)] = 1.0
    reward = torch.zeros(states, 2, dtype=torch.float64)
    reward[:, LEFT], reward[-1, RIGHT] = slack, goal
    first = torch.eye(states, dtype=torch.float64)[0]
    return MDP(transition=transition, reward=reward, start=first, gamma=gamma, limit=limit)


def grid(
    rows: int = 3,
    columns: int = 4,
    *,
    living: float = 1.0,
    ends: Mapping[tuple[int, int], float] | None = None,
    slip: float = 0.0,
    gamma: float = 0.9,
    start: tuple[int, int] = (0, 0),
    limit: int | None = 20,
) -> MDP:
    r"""A small grid that pays ``living`` every step until a time limit cuts it; actions up, down, left, right.

    Into a wall one stays put. Without ``ends`` every policy is worth :math:`V = living / (1 - \gamma)` everywhere,
    limit or not: a cut is no end. State ``row * columns + column``.

    Args:
        rows, columns: of the grid.
        living: reward a step.
        ends: places that end the episode when entered, with what entering pays besides.
        slip: probability that the move is one of the four at random.
        gamma: discount.
        start: row and column.
        limit: steps after which an episode is cut.
    """
    ends = ends or {}
    inside = {(r, c) for r in range(rows) for c in range(columns)}
    if start not in inside or start in ends or not set(ends) <= inside or not 0 <= slip <= 1:
        raise ValueError(f"start {start} and ends {sorted(ends)} must be different places of the {rows} x {columns} "
                         f"grid, slip in [0, 1], got {slip}; rows and columns count from 0")  # fmt: skip
    states = rows * columns
    transition = torch.zeros(states, len(MOVES), states, dtype=torch.float64)
    reward = torch.full((states, len(MOVES)), float(living), dtype=torch.float64)
    for row, column in sorted(inside):
        here = row * columns + column
        for action in range(len(MOVES)):
            for other, (down, across) in enumerate(MOVES):
                chance = slip / len(MOVES) + (1 - slip) * (other == action)
                there = (row + down, column + across)
                there = there if there in inside else (row, column)
                if there in ends:
                    reward[here, action] += chance * ends[there]
                else:
                    transition[here, action, there[0] * columns + there[1]] += chance
    first = torch.zeros(states, dtype=torch.float64)
    first[start[0] * columns + start[1]] = 1.0
    return MDP(transition=transition, reward=reward, start=first, gamma=gamma, limit=limit)


def random_mdp(
    seed: int, states: int = 5, actions: int = 3, *, gamma: float = 0.9, ending: float = 0.0, limit: int | None = None
) -> MDP:
    """Anything at all: every entry drawn by ``seed``. Rewards are normal, transitions and start flat Dirichlet.

    Args:
        seed: keys all tables.
        states, actions: S, A.
        gamma: discount.
        ending: highest chance that a step terminates the episode; each (s, a) draws its own below it. 0: never.
        limit: as in `MDP`.
    """
    draw = seeding.generator(seed, "random mdp", states, actions)

    def uniform(*shape: int) -> Tensor:
        return torch.rand(shape, generator=draw, dtype=torch.float64)

    transition = -uniform(states, actions, states).clamp(min=1e-12).log()
    transition = transition / transition.sum(-1, keepdim=True) * (1 - ending * uniform(states, actions, 1))
    start = -uniform(states).clamp(min=1e-12).log()
    reward = torch.randn(states, actions, generator=draw, dtype=torch.float64)
    return MDP(transition=transition, reward=reward, start=start / start.sum(), gamma=gamma, limit=limit)
