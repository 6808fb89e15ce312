"""Exercises of notebook 07: how deep a run fell, and advantages standardised a minibatch at a time."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ppo_lab import seeding
from ppo_lab.core.masking import rescale, standardize
from ppo_lab.course.exercises.exercise import Case, Exercise, Wrong
from ppo_lab.course.exercises.toys import Toys
from ppo_lab.evaluate import curves

# --- the deepest fall ------------------------------------------------------------------------------------------------

falls = Wrong()


def deepest_fall(returns: Tensor, *, random: float, reference: float, decay: float) -> Tensor:
    """`ppo_lab.evaluate.curves.deepest_fall` of each run; ``returns`` is (runs, steps)."""
    options = {"random": random, "reference": reference, "decay": decay, "learned": 0.0}
    return torch.tensor([curves.deepest_fall(row, **options) for row in returns.tolist()], dtype=returns.dtype)


def calm(returns: Tensor, *, random: float, reference: float, decay: float) -> Tensor:
    """Normalised and smoothed, (runs, steps)."""
    rows = ((returns - random) / (reference - random)).tolist()
    return torch.tensor([curves.smoothed(row, decay=decay) for row in rows], dtype=returns.dtype)


def left_of(score: Tensor) -> Tensor:
    """Score over the running best."""
    return score / score.cummax(-1).values


@falls("The returns are not normalised: what chance gives for free counts as learned.")
def not_normalised(returns: Tensor, *, random: float, reference: float, decay: float) -> Tensor:
    """Raw returns."""
    return left_of(calm(returns, random=0.0, reference=1.0, decay=decay)).amin(-1)


@falls("You divide by the reference alone. The random policy is the zero of the scale.")
def only_the_reference(returns: Tensor, *, random: float, reference: float, decay: float) -> Tensor:
    """R / reference."""
    span = returns + abs(random)
    return left_of(calm(span, random=0.0, reference=1.0, decay=decay)).amin(-1)


@falls("The best of the whole run: at its start a run has not fallen, it has not risen yet. Use the best so far.")
def best_of_all(returns: Tensor, *, random: float, reference: float, decay: float) -> Tensor:
    """amax in place of cummax."""
    score = calm(returns, random=random, reference=reference, decay=decay)
    return (score / score.amax(-1, keepdim=True)).amin(-1)


@falls("Nothing is smoothed: one bad rollout would be a crash.")
def not_smoothed(returns: Tensor, *, random: float, reference: float, decay: float) -> Tensor:
    """decay 0."""
    return left_of(calm(returns, random=random, reference=reference, decay=0.0)).amin(-1)


@falls("The moving average starts at 0, not at the first score, and so rises by itself.")
def from_zero(returns: Tensor, *, random: float, reference: float, decay: float) -> Tensor:
    """m_0 = (1 − d) s_0."""
    first = torch.full_like(returns[:, :1], random)
    return left_of(calm(torch.cat([first, returns], -1), random=random, reference=reference, decay=decay)[:, 1:]).amin(
        -1
    )


@falls("The weights of the average are swapped: decay belongs to what was.")
def decay_swapped(returns: Tensor, *, random: float, reference: float, decay: float) -> Tensor:
    """1 − d."""
    return left_of(calm(returns, random=random, reference=reference, decay=1 - decay)).amin(-1)


@falls("Only the end is looked at. A run that fell and recovered has fallen.")
def only_the_end(returns: Tensor, *, random: float, reference: float, decay: float) -> Tensor:
    """Last column."""
    return left_of(calm(returns, random=random, reference=reference, decay=decay))[:, -1]


@falls("The mean over the run hides the fall: look for the smallest.")
def averaged(returns: Tensor, *, random: float, reference: float, decay: float) -> Tensor:
    """mean in place of min."""
    return left_of(calm(returns, random=random, reference=reference, decay=decay)).mean(-1)


@falls("That is how much was lost. What is left over the best so far is asked for.")
def lost(returns: Tensor, *, random: float, reference: float, decay: float) -> Tensor:
    """1 − what is left."""
    return 1 - left_of(calm(returns, random=random, reference=reference, decay=decay)).amin(-1)


@falls("You compare with the best raw score: smooth first, then take the best so far of that.")
def best_of_the_raw(returns: Tensor, *, random: float, reference: float, decay: float) -> Tensor:
    """cummax of what was not smoothed."""
    raw = calm(returns, random=random, reference=reference, decay=0.0)
    return (calm(returns, random=random, reference=reference, decay=decay) / raw.cummax(-1).values).amin(-1)


def fall_cases(seed: int) -> Sequence[Case]:
    """Runs that rise, fall and recover, on the scale of CartPole and on that of Acrobot."""
    draw = seeding.generator("course", "deepest_fall", seed)
    shape = torch.tensor([[0.3, 0.6, 0.9, 0.8, 0.4, 0.3, 0.5, 0.8], [0.4, 0.5, 0.8, 0.4, 0.7, 0.9, 1.0, 0.9],
                          [0.5, 0.9, 0.9, 0.7, 0.8, 0.5, 0.4, 0.6]], dtype=torch.float64)  # fmt: skip

    def runs(random: float, reference: float) -> Tensor:
        noise = 0.08 * (torch.rand(shape.shape, generator=draw, dtype=torch.float64) - 0.5)
        return random + (reference - random) * (shape + noise)

    return (
        Case("a swing", {"returns": runs(-500.0, -100.0)}, {"random": -500.0, "reference": -100.0, "decay": 0.6}),
        Case("a pole", {"returns": runs(20.0, 500.0)}, {"random": 20.0, "reference": 500.0, "decay": 0.3}),
    )


DEEPEST_FALL = Exercise(
    name="deepest_fall",
    notebook="07_what_matters",
    minutes=12,
    lines=6,
    task="returns is (runs, steps). Normalise: random is 0, reference is 1. Smooth: m_0 = s_0, then "
    "m_t = decay·m_{t−1} + (1 − decay)·s_t. Return the smallest m_t / best m so far of each run, (runs,).",
    answer="""\
def deepest_fall(returns, *, random, reference, decay):
    score, calm = (returns - random) / (reference - random), []
    for s in score.T:
        calm.append(decay * calm[-1] + (1 - decay) * s if calm else s)
    calm = torch.stack(calm, dim=1)
    best = calm.cummax(dim=1).values
    return (calm / best).amin(dim=1)
""",
    reference=deepest_fall,
    parts=(curves.deepest_fall,),
    cases=fall_cases,
    hints=(
        "Three steps: one scale for all tasks, a moving average, the best so far.",
        "Walk over the columns; the average starts at the first score.",
        "calm.cummax(dim=1).values is the best so far; then amin over the steps.",
    ),
    mutants=tuple(falls),
)

# --- the scope of standardising --------------------------------------------------------------------------------------

scopes = Wrong()


def minibatch_advantages(advantage: Tensor, part: Tensor) -> Tensor:
    """`ppo_lab.core.masking.standardize` within each minibatch; step i belongs to minibatch ``part[i]``. (N,) -> (N,).

    What ``ppo.standardize: minibatch`` does.
    """
    found = torch.zeros_like(advantage)
    for k in part.unique():
        found[part == k] = standardize(advantage[part == k])
    return found


def _each(advantage: Tensor, part: Tensor, change: object) -> Tensor:
    found = torch.zeros_like(advantage)
    for k in part.unique():
        found[part == k] = change(advantage[part == k])  # type: ignore[operator]
    return found


@scopes("One mean and one deviation for the whole rollout: that is the other scope.")
def whole_rollout(advantage: Tensor, part: Tensor) -> Tensor:
    """part ignored."""
    return standardize(advantage)


@scopes("The mean is the minibatch's, the deviation the whole rollout's.")
def deviation_of_all(advantage: Tensor, part: Tensor) -> Tensor:
    """Mixed scopes."""
    return _each(advantage, part, lambda x: x - x.mean()) / advantage.std(correction=0)


@scopes("The deviation is the minibatch's, the mean the whole rollout's.")
def mean_of_all(advantage: Tensor, part: Tensor) -> Tensor:
    """Mixed scopes, the other way."""
    return _each(advantage - advantage.mean(), part, lambda x: x / x.std(correction=0))


@scopes("The mean was not taken off: then half of a good minibatch is pushed up for being there.")
def mean_kept(advantage: Tensor, part: Tensor) -> Tensor:
    """Only divided."""
    return _each(advantage, part, lambda x: x / x.std(correction=0))


@scopes("The mean is added back after dividing: a well-known flag turned round.")
def mean_added_back(advantage: Tensor, part: Tensor) -> Tensor:
    """`rescale`."""
    return _each(advantage, part, rescale)


@scopes("Only the mean was taken off; the deviation must become 1.")
def only_centred(advantage: Tensor, part: Tensor) -> Tensor:
    """Not divided."""
    return _each(advantage, part, lambda x: x - x.mean())


@scopes("The deviation divides by n − 1. Here it is that of the minibatch itself: divide by n (correction=0).")
def sample_deviation(advantage: Tensor, part: Tensor) -> Tensor:
    """ddof 1."""
    return _each(advantage, part, lambda x: standardize(x, ddof=1))


@scopes("You divide by the variance. Its root is the deviation.")
def variance(advantage: Tensor, part: Tensor) -> Tensor:
    """No root."""
    return _each(advantage, part, lambda x: (x - x.mean()) / x.var(correction=0))


@scopes("You cut the rollout into neighbours. Which steps belong together is what part says.")
def neighbours(advantage: Tensor, part: Tensor) -> Tensor:
    """Sorted parts."""
    return _each(advantage, part.sort().values, standardize)


def scope_cases(seed: int) -> Sequence[Case]:
    """All steps in one; then three minibatches of four, shuffled."""
    toys = Toys("minibatch_advantages", seed)
    cases = []
    for name, count in (("one minibatch", 1), ("three minibatches", 3)):
        part = torch.arange(12) % count
        shift = torch.tensor([0.0, 2.0, -1.0], dtype=torch.float64)[part]
        order = torch.tensor([3, 0, 5, 1, 2, 8, 4, 11, 7, 6, 10, 9])
        cases.append(Case(name, {"advantage": (toys.away(12) + shift)[order], "part": part[order]}))
    return tuple(cases)


MINIBATCH_ADVANTAGES = Exercise(
    name="minibatch_advantages",
    notebook="07_what_matters",
    minutes=8,
    lines=5,
    task="advantage is (N,); step i is in minibatch part[i]. Return advantages with mean 0 and deviation 1 within each "
    "minibatch: (A − mean) / sqrt(variance + 1e-8), the variance divided by n.",
    answer="""\
def minibatch_advantages(advantage, part):
    found = torch.zeros_like(advantage)
    for k in part.unique():
        own = advantage[part == k]
        found[part == k] = (own - own.mean()) / (own.var(correction=0) + 1e-8).sqrt()
    return found
""",
    reference=minibatch_advantages,
    parts=(standardize,),
    cases=scope_cases,
    hints=(
        "Whose mean, whose deviation? Those of the steps that share a minibatch.",
        "Loop over part.unique() and select with part == k.",
        "own.var(correction=0) divides by n; add 1e-8, take the root, divide.",
    ),
    mutants=tuple(scopes),
)
