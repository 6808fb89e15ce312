"""Transfer exercise of notebook 16: the other reading of "checkpointing every k layers", and its best k."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

import torch
from torch import Tensor

from ppo_lab.course.exercises.exercise import Case, Exercise, Law, Wrong
from ppo_lab.course.exercises.toys import Toys

wrong = Wrong()


def _options(case: Case) -> tuple[float, float, float, float]:
    return case.arguments["blocks"], case.options["every"], case.arguments["block"], case.arguments["entry"]


def _where(test):  # type: ignore[no-untyped-def]
    """A law's check: ``test(n, k, block, entry, result)`` on every case that it speaks of; None elsewhere."""

    def holds(cases: Sequence[Case], values: Sequence[Tensor]) -> bool:
        said = [test(*_options(case), float(x)) for case, x in zip(cases, values, strict=True) if x.dim() == 0]
        return len(said) == len(cases) and all(verdict is not False for verdict in said)

    return holds


def _near(x: float, y: float) -> bool:
    return abs(x - y) <= 1e-6 * max(1.0, abs(y))


def _later_blocks_are_inputs(cases: Sequence[Case], values: Sequence[Tensor]) -> bool:
    """From "4 of 8" to "4 of 12" one segment is added, which costs one input."""
    at = {case.name: float(x) for case, x in zip(cases, values, strict=True)}
    return _near(at["4 of 12"] - at["4 of 8"], cases[0].arguments["entry"])


def _short_segment(cases: Sequence[Case], values: Sequence[Tensor]) -> bool:
    """A last segment of two blocks needs its input too."""
    at = {case.name: float(x) for case, x in zip(cases, values, strict=True)}
    return _near(at["4 of 10"], at["4 of 12"])


LAWS = (
    Law("With segments of one block there are N inputs and one whole block.",
        _where(lambda n, k, block, entry, x: _near(x, n * entry + block) if k == 1 else None)),
    Law("One segment of all blocks keeps one input, and all blocks are whole in the backward pass.",
        _where(lambda n, k, block, entry, x: _near(x, entry + n * block) if k == n else None)),
    Law("A segment more costs one input more: segments are recomputed one at a time.", _later_blocks_are_inputs),
    Law("A last segment that is shorter needs its input too: round up.", _short_segment),
    Law("A segment cannot hold more blocks than there are.",
        _where(lambda n, k, block, entry, x: _near(x, entry + n * block) if k > n else None)),
)  # fmt: skip


@wrong("The shorter segment at the end has been forgotten.")
def rounded_down(blocks: int, block: float, entry: float, *, every: int) -> Tensor:
    """Floor, at least one."""
    k = min(every, blocks)
    return torch.tensor((blocks // k) * entry + k * block, dtype=torch.float64)


@wrong("More blocks are whole than the model has.")
def unbounded(blocks: int, block: float, entry: float, *, every: int) -> Tensor:
    """k blocks, whatever N."""
    return torch.tensor(ceil(blocks / every) * entry + every * block, dtype=torch.float64)


@wrong("A segment is computed again as a whole: all its blocks are there.")
def one_whole_block(blocks: int, block: float, entry: float, *, every: int) -> Tensor:
    """Only one block whole."""
    return torch.tensor(ceil(blocks / every) * entry + block, dtype=torch.float64)


@wrong("While a segment is recomputed its blocks are there: that is the peak.")
def no_peak(blocks: int, block: float, entry: float, *, every: int) -> Tensor:
    """Only the inputs."""
    return torch.tensor(ceil(blocks / every) * entry, dtype=torch.float64)


@wrong("Only the segment that is being recomputed is whole.")
def all_blocks_whole(blocks: int, block: float, entry: float, *, every: int) -> Tensor:
    """All blocks whole at once, unless there is one block a segment."""
    k = 1 if every == 1 else blocks
    return torch.tensor(ceil(blocks / every) * entry + k * block, dtype=torch.float64)


@wrong("Here whole segments are recomputed, not every k-th block.")
def every_other_block(blocks: int, block: float, entry: float, *, every: int) -> Tensor:
    """What the exercise before asked for."""
    again = ceil(blocks / every)
    return torch.tensor(again * entry + (blocks - again) * block + 2 * block, dtype=torch.float64)


@wrong("The first block's own keepings are counted less its input.")
def input_counted_twice(blocks: int, block: float, entry: float, *, every: int) -> Tensor:
    """The first block of a segment does not keep its input once more."""
    k = min(every, blocks)
    return torch.tensor(ceil(blocks / k) * entry + k * block - (entry if k > 1 else 0), dtype=torch.float64)


def cases(seed: int) -> Sequence[Case]:
    """Segments of one block, of all, of more than all; a shorter last one."""
    toys = Toys("segment_bytes", seed)
    block = round(20 + float(10 * toys.away(1).abs()), 3)
    sizes = {"block": block, "entry": round(1 + float(toys.away(1).abs()), 3)}
    return tuple(
        Case(f"{k} of {n}", {"blocks": n, **sizes}, {"every": k})
        for n, k in ((12, 1), (12, 4), (8, 4), (10, 4), (12, 12), (3, 8))
    )


SEGMENT_BYTES = Exercise(
    name="segment_bytes",
    notebook="16_memory_and_parallelism",
    minutes=12,
    lines=3,
    heading="segment_bytes(blocks, block, entry, *, every)",
    task="Chen's own form: cut N blocks into segments of k (the last may be shorter). Each segment keeps its input "
    "alone, entry bytes a token, and is computed again as a whole, one segment at a time; its blocks are then all "
    "there, block bytes each. Return the peak, bytes a token.",
    laws=LAWS,
    cases=cases,
    hints=(
        "How many segments do 10 blocks make, four at a time?",
        "When the forward ends, one input a segment is there. At the worst moment of the backward pass, what else?",
        "The longest segment holds min(k, N) blocks.",
    ),
    mutants=tuple(wrong),
)
