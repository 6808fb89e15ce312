"""Exercises of notebook 05: what a step leads to is worth, and (transfer) advantages of actions that are held."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ppo_lab.core.returns import gae
from ppo_lab.course.exercises.exercise import Case, Exercise, Law, Wrong
from ppo_lab.course.exercises.toys import Toys, spoiled

# Row 0: terminates at step 1, cut by the time limit at step 3, goes on beyond the rollout. Row 1: cut at step 2; the
# last step terminates and meets the time limit at once, where terminating wins.
TERMINATED = torch.tensor([[0, 1, 0, 0, 0, 0], [0, 0, 0, 0, 0, 1]], dtype=torch.bool)
TRUNCATED = torch.tensor([[0, 0, 0, 1, 0, 0], [0, 0, 1, 0, 0, 1]], dtype=torch.bool)
BEYOND = torch.tensor([[0, 0, 0, 0, 0, 1], [0, 0, 0, 0, 0, 0]], dtype=torch.bool)

wrong = Wrong()


def value_ahead(value: Tensor, final_value: Tensor, terminated: Tensor, truncated: Tensor) -> Tensor:
    """V(s_{t+1}) of every step: 0 where the episode terminated, else the value of the state the step led to.

    That state is the next column, except where the row was cut or ends: there it is the final observation, which no
    column holds.
    """
    ahead = torch.cat([value[..., 1:], final_value[..., -1:]], dim=-1)
    ahead = torch.where(truncated, final_value, ahead)
    return torch.where(terminated, torch.zeros_like(ahead), ahead)


@wrong("A time limit is no end: the state would have gone on. You set its future to 0, as done = terminated or "
       "truncated does.")  # fmt: skip
def done_is_done(value: Tensor, final_value: Tensor, terminated: Tensor, truncated: Tensor) -> Tensor:
    """0 at both."""
    return value_ahead(value, final_value, terminated | truncated, truncated)


@wrong("You bootstrap after a terminal step. Nothing comes after it.")
def terminal_bootstrapped(value: Tensor, final_value: Tensor, terminated: Tensor, truncated: Tensor) -> Tensor:
    """Final value at both."""
    return value_ahead(value, final_value, terminated & False, truncated | terminated)


@wrong("Where the row was cut you take the next column. It is the first state of another episode.")
def next_episode(value: Tensor, final_value: Tensor, terminated: Tensor, truncated: Tensor) -> Tensor:
    """Cut ignored."""
    return value_ahead(value, final_value, terminated, truncated & False)


@wrong("The last column has a future too: the rollout stops there, the episode does not.")
def rollout_is_the_end(value: Tensor, final_value: Tensor, terminated: Tensor, truncated: Tensor) -> Tensor:
    """0 behind the rollout."""
    ahead = torch.cat([value[..., 1:], torch.zeros_like(value[..., -1:])], dim=-1)
    ahead = torch.where(truncated, final_value, ahead)
    return torch.where(terminated, torch.zeros_like(ahead), ahead)


@wrong("A step that terminates and meets the time limit at once has terminated: let that be decided last.")
def limit_wins(value: Tensor, final_value: Tensor, terminated: Tensor, truncated: Tensor) -> Tensor:
    """Order swapped."""
    return value_ahead(value, final_value, terminated & ~truncated, truncated)


@wrong("That is the value of the state the step came from. Move one column on.")
def of_now(value: Tensor, final_value: Tensor, terminated: Tensor, truncated: Tensor) -> Tensor:
    """value[t]."""
    ahead = torch.where(truncated, final_value, value)
    return torch.where(terminated, torch.zeros_like(ahead), ahead)


@wrong("You move one column on and go round: behind the last column stands the first one of the row. torch.roll wraps.")
def rolled(value: Tensor, final_value: Tensor, terminated: Tensor, truncated: Tensor) -> Tensor:
    """torch.roll."""
    ahead = torch.where(truncated, final_value, value.roll(-1, -1))
    return torch.where(terminated, torch.zeros_like(ahead), ahead)


@wrong("You multiply by (1 − terminated). Behind a terminal step stands nonsense, and 0 × NaN is NaN: use torch.where.")
def multiplied(value: Tensor, final_value: Tensor, terminated: Tensor, truncated: Tensor) -> Tensor:
    """Right wherever the future is a number."""
    return value_ahead(value, final_value, terminated & False, truncated | terminated) * ~terminated


@wrong("The two flags are swapped: terminated has no future, truncated has one.")
def flags_swapped(value: Tensor, final_value: Tensor, terminated: Tensor, truncated: Tensor) -> Tensor:
    """terminated for truncated."""
    return value_ahead(value, final_value, truncated, terminated)


def ahead_cases(seed: int) -> Sequence[Case]:
    """A cut, an end and a step that is both; then NaN as the final value where there is none to have."""
    toys = Toys("value_ahead", seed)
    plain = {"value": toys.away(2, 6), "final_value": toys.away(2, 6)}
    flags = {"terminated": TERMINATED, "truncated": TRUNCATED}
    final = spoiled(plain["final_value"], (TRUNCATED | BEYOND) & ~TERMINATED)
    return Case("two rollouts", plain | flags), Case("NaN behind the end", {**plain, "final_value": final} | flags)


VALUE_AHEAD = Exercise(
    name="value_ahead",
    notebook="05_gae",
    minutes=8,
    lines=3,
    task="Return next_value, (B, T): what the state that each step led to is worth. 0 where the step terminated. "
    "final_value where it was truncated, and in the last column. Else the next column of value.",
    answer="""\
def value_ahead(value, final_value, terminated, truncated):
    ahead = torch.cat([value[:, 1:], final_value[:, -1:]], dim=1)
    ahead = torch.where(truncated, final_value, ahead)
    return torch.where(terminated, 0.0, ahead)
""",
    reference=value_ahead,
    cases=ahead_cases,
    places=lambda case: {"the terminal step": TERMINATED, "the step before a cut": TRUNCATED,
                         "the last column": BEYOND},
    hints=(
        "Which state does a step lead to, and who knows its value?",
        "The last column has no next one; final_value[:, -1:] stands in for it.",
        "Three layers: the next column, then final_value where truncated, then 0 where terminated.",
    ),
    mutants=tuple(wrong),
)  # fmt: skip

# --- transfer: an action that is held for several frames -------------------------------------------------------------

TICKS = torch.tensor([[1, 3, 2, 4, 2, 5], [2, 1, 3, 1, 4, 2]], dtype=torch.float64)
ENDED = torch.tensor([[0, 1, 0, 0, 0, 1], [0, 0, 0, 1, 0, 1]], dtype=torch.bool)

sums = Wrong()


def _plain(case: Case, **changes: float) -> Tensor:
    """Advantages where every action is held for one frame."""
    delta, ended, _ = case.arguments.values()
    options = {**case.options, **changes}
    zero = torch.zeros_like(delta)
    return gae(delta, zero, zero, terminated=ended & False, ended=ended, **options)


def _run(delta: Tensor, ended: Tensor, decay: Tensor) -> Tensor:
    """``A[t] = delta[t] + decay[t] A[t+1]``, nothing carried over an end."""
    ahead, found = torch.zeros_like(delta[..., 0]), []
    for t in reversed(range(delta.shape[-1])):
        ahead = delta[..., t] + decay[..., t] * torch.where(ended[..., t], torch.zeros_like(ahead), ahead)
        found.append(ahead)
    return torch.stack(found[::-1], dim=-1)


def _everywhere(holds: Callable[[Case, Tensor], object]) -> Callable[[Sequence[Case], Sequence[Tensor]], bool]:
    return lambda cases, values: all(bool(holds(case, x)) for case, x in zip(cases, values, strict=True))


def _near(x: Tensor, y: Tensor) -> bool:
    return torch.allclose(x, y, rtol=1e-6, atol=1e-6)


def _returns(case: Case, x: Tensor) -> bool:
    """λ = 1: the sum written out, each surprise by the frames between."""
    if case.options["lam"] != 1:
        return True
    delta, ended, ticks = case.arguments.values()
    rows, steps = delta.shape
    for b in range(rows):
        for t in range(steps):
            total, frames = 0.0, 0.0
            for j in range(t, steps):
                total += case.options["gamma"] ** frames * float(delta[b, j])
                frames += float(ticks[b, j])
                if ended[b, j]:
                    break
            if abs(total - float(x[b, t])) > 1e-6:
                return False
    return True


LAWS = (
    Law("The result has one number a step, (B, T).",
        _everywhere(lambda c, x: x.shape == c.arguments["delta"].shape)),
    Law("Where every action is held for one frame, it is the gae you have written.",
        _everywhere(lambda c, x: bool((c.arguments["ticks"] != 1).any()) or _near(x, _plain(c)))),
    Law("The last step of an episode keeps its own δ, whole.",
        _everywhere(lambda c, x: _near(x[c.arguments["ended"]], c.arguments["delta"][c.arguments["ended"]]))),
    Law("With λ = 1 a surprise that lies k frames ahead counts γ to the k.", _everywhere(_returns)),
    Law("λ counts decisions, not frames: with γ = 1 it does not matter how long actions are held.",
        _everywhere(lambda c, x: c.options["gamma"] != 1 or _near(x, _plain(c)))),
)  # fmt: skip


@sums("ticks ignored")
def ticks_ignored(delta: Tensor, ended: Tensor, ticks: Tensor, *, gamma: float, lam: float) -> Tensor:
    """As if each action were held for one frame."""
    return _run(delta, ended, torch.full_like(delta, gamma * lam))


@sums("λ to the ticks as well")
def both_to_the_ticks(delta: Tensor, ended: Tensor, ticks: Tensor, *, gamma: float, lam: float) -> Tensor:
    """(γλ)^k."""
    return _run(delta, ended, (gamma * lam) ** ticks)


@sums("the ticks of the next step")
def one_step_late(delta: Tensor, ended: Tensor, ticks: Tensor, *, gamma: float, lam: float) -> Tensor:
    """Shifted by one."""
    return _run(delta, ended, lam * gamma ** torch.cat([ticks[..., 1:], ticks[..., -1:]], dim=-1))


@sums("times in place of power")
def multiplied_ticks(delta: Tensor, ended: Tensor, ticks: Tensor, *, gamma: float, lam: float) -> Tensor:
    """γ k."""
    return _run(delta, ended, lam * gamma * ticks)


@sums("across the end")
def across(delta: Tensor, ended: Tensor, ticks: Tensor, *, gamma: float, lam: float) -> Tensor:
    """ended ignored."""
    last = torch.zeros_like(ended)
    last[..., -1] = True
    return _run(delta, last, lam * gamma**ticks)


@sums("own surprise discounted")
def own_discounted(delta: Tensor, ended: Tensor, ticks: Tensor, *, gamma: float, lam: float) -> Tensor:
    """γ^k δ."""
    return _run(gamma ** (ticks - 1) * delta, ended, lam * gamma**ticks)


@sums("one number a row")
def one_a_row(delta: Tensor, ended: Tensor, ticks: Tensor, *, gamma: float, lam: float) -> Tensor:
    """Summed."""
    return _run(delta, ended, lam * gamma**ticks).sum(-1)


def ticks_cases(seed: int) -> Sequence[Case]:
    """Held for unequal times; for one frame each; with λ = 1; with γ = 1."""
    toys = Toys("gae_ticks", seed)

    def given(ticks: Tensor) -> dict[str, Tensor]:
        return {"delta": toys.away(2, 6), "ended": ENDED, "ticks": ticks}

    return (
        Case("held", given(TICKS), {"gamma": 0.9, "lam": 0.8}),
        Case("one frame each", given(torch.ones_like(TICKS)), {"gamma": 0.9, "lam": 0.8}),
        Case("λ = 1", given(TICKS), {"gamma": 0.9, "lam": 1.0}),
        Case("γ = 1", given(TICKS), {"gamma": 1.0, "lam": 0.8}),
    )


GAE_TICKS = Exercise(
    name="gae_ticks",
    notebook="05_gae",
    minutes=12,
    lines=6,
    heading="gae_ticks(delta, ended, ticks, *, gamma, lam)",
    task="An agent may hold its action: each step lasts ticks frames, (B, T), 1 or more. γ is the discount of a "
    "frame, λ belongs to a decision, δ and ended are given. Return the generalised advantages, (B, T).",
    laws=LAWS,
    cases=ticks_cases,
    hints=(
        "Which of γ and λ is paid per frame, and which per decision?",
        "From step t to t+1 pass ticks[t] frames: what is a reward behind them worth?",
        "It is your gae with another decay in every column.",
    ),
    mutants=tuple(sums),
)
