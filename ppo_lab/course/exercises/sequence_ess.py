"""Transfer exercise of notebook 03: how many whole answers are left. Judged by laws."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ppo_lab.core.importance import effective_sample_size, log_ratio
from ppo_lab.core.masking import masked_mean, masked_sum
from ppo_lab.course.exercises.exercise import Case, Exercise, Law, Wrong
from ppo_lab.course.exercises.toys import Toys, spoiled

wrong = Wrong()
NAMES = ("same policy", "one answer", "answers", "answers twice", "answers, tokens turned round", "far away")
WIDTHS = torch.tensor([5, 2, 6, 1, 4])


def _close(x: Tensor, y: Tensor | float) -> bool:
    return torch.allclose(x, torch.as_tensor(y, dtype=x.dtype), rtol=1e-6, atol=1e-6)


def _named(holds: Callable[[dict[str, Tensor]], bool]) -> Callable[[Sequence[Case], Sequence[Tensor]], bool]:
    """A law about the results by the name of their case."""
    return lambda cases, values: holds({case.name: x for case, x in zip(cases, values, strict=True)})


def _bounded(cases: Sequence[Case], values: Sequence[Tensor]) -> bool:
    rows = [len(case.arguments["mask"]) for case in cases]
    return all(1 - 1e-9 <= float(x) <= n + 1e-9 for x, n in zip(values, rows, strict=True))


def _single_tokens(cases: Sequence[Case], values: Sequence[Tensor]) -> bool:
    case, x = next((c, v) for c, v in zip(cases, values, strict=True) if c.name == "far away")
    logp, old = case.arguments["logp"][:, 0], case.arguments["old_logp"][:, 0]
    w = (logp - old - (logp - old).max()).exp()
    return _close(x, w.sum() ** 2 / (w**2).sum())


LAWS = (
    Law("It is one number, between 1 and the number of answers, even where a ratio overflows.",
        lambda cases, values: all(x.ndim == 0 for x in values) and _bounded(cases, values)),
    Law("While old and new policy agree, every answer counts.", _named(lambda f: _close(f["same policy"], 5.0))),
    Law("A single answer is worth one answer.", _named(lambda f: _close(f["one answer"], 1.0))),
    Law("The same answers twice are worth twice as many.",
        _named(lambda f: _close(f["answers twice"], 2 * f["answers"]))),
    Law("The order of an answer's tokens does not matter.",
        _named(lambda f: _close(f["answers, tokens turned round"], f["answers"]))),
    Law("For answers of one token it is the effective sample size of the tokens.", _single_tokens),
    Law("Answers whose tokens all moved a little have moved far: the log-ratios of a row add up.",
        lambda cases, values: all(_close(x, _added(c)) for c, x in zip(cases, values, strict=True))),
)  # fmt: skip


def _added(case: Case) -> Tensor:
    logp, old, mask = case.arguments.values()
    return effective_sample_size(masked_sum(log_ratio(logp, old, mask), mask, dim=-1))


@wrong("of the tokens")
def of_tokens(logp: Tensor, old_logp: Tensor, mask: Tensor) -> Tensor:
    """Every token a sample."""
    return effective_sample_size(log_ratio(logp, old_logp, mask), mask)


@wrong("mean for sum")
def mean_for_sum(logp: Tensor, old_logp: Tensor, mask: Tensor) -> Tensor:
    """Geometric mean of the ratios."""
    return effective_sample_size(masked_mean(log_ratio(logp, old_logp, mask), mask, dim=-1))


@wrong("as a share")
def as_a_share(logp: Tensor, old_logp: Tensor, mask: Tensor) -> Tensor:
    """Divided by the number of answers."""
    return effective_sample_size(log_ratio(logp, old_logp, mask).sum(-1)) / len(mask)


@wrong("overflows")
def overflows(logp: Tensor, old_logp: Tensor, mask: Tensor) -> Tensor:
    """Weights as they are."""
    w = log_ratio(logp, old_logp, mask).sum(-1).exp()
    return w.sum().square() / w.square().sum()


@wrong("last token only")
def last_token(logp: Tensor, old_logp: Tensor, mask: Tensor) -> Tensor:
    """The ratio of one token speaks for the answer."""
    end = mask.sum(-1, keepdim=True) - 1
    return effective_sample_size(log_ratio(logp, old_logp, mask).gather(-1, end)[:, 0])


@wrong("one a row")
def one_a_row(logp: Tensor, old_logp: Tensor, mask: Tensor) -> Tensor:
    """Of the tokens of each answer."""
    x = log_ratio(logp, old_logp, mask)
    return torch.stack([effective_sample_size(row, m) for row, m in zip(x, mask, strict=True)])


@wrong("padding added in")
def padding_added(logp: Tensor, old_logp: Tensor, mask: Tensor) -> Tensor:
    """NaN reaches the sum."""
    return effective_sample_size((logp - old_logp).sum(-1))


@wrong("ratios added")
def ratios_added(logp: Tensor, old_logp: Tensor, mask: Tensor) -> Tensor:
    """Σ r for Π r."""
    w = masked_sum(log_ratio(logp, old_logp, mask).clamp(max=500).exp(), mask, dim=-1)
    return w.sum().square() / w.square().sum()


def cases(seed: int) -> Sequence[Case]:
    """Five answers of different length with NaN behind them, in the forms that the laws compare."""
    toys = Toys("sequence_ess", seed)
    mask = torch.arange(6) < WIDTHS[:, None]
    logp = toys.logp(5, 6)
    old = logp + 0.4 * toys.away(5, 6)

    def given(a: Tensor, b: Tensor, m: Tensor) -> dict[str, Tensor]:
        return {"logp": spoiled(a, m), "old_logp": spoiled(b, m), "mask": m}

    turned = torch.where(mask, (WIDTHS[:, None] - 1 - torch.arange(6)) % 6, torch.arange(6))
    one = mask[:, :1] | True
    worlds = (
        given(logp, logp, mask), given(logp[:1], old[:1], mask[:1]), given(logp, old, mask),
        given(logp.repeat(2, 1), old.repeat(2, 1), mask.repeat(2, 1)),
        given(logp.gather(-1, turned), old.gather(-1, turned), mask),
        given(logp[:, :1], logp[:, :1] - 800 + toys.away(5, 1), one),
    )  # fmt: skip
    return tuple(Case(name, world) for name, world in zip(NAMES, worlds, strict=True))


SEQUENCE_ESS = Exercise(
    name="sequence_ess",
    notebook="03_importance_sampling",
    minutes=10,
    lines=2,
    heading="sequence_ess(logp, old_logp, mask)",
    task="A reward for a whole answer needs the ratio of the whole answer: the product of its tokens' ratios. Return "
    "how many answers the weighted batch is worth: one number. Padding may hold NaN.",
    laws=LAWS,
    cases=cases,
    hints=(
        "You have written both halves already: log_ratio and effective_sample_size.",
        "What does a product of ratios become in log space?",
        "log_ratio is 0 in the padding, so a plain sum over the steps will do.",
    ),
    mutants=tuple(wrong),
)
