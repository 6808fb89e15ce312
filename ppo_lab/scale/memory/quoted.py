"""A table of settings for three sizes of model that write-ups quote, and what is wrong with it.

Its batch rows leave the number of devices out, and its memory row does not hold four models. What can be used of it
(rate, clip, epochs, effective batch) went into ``configs/scale``; the micro-batch is the planner's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ppo_lab.scale.memory.planner import plan
from ppo_lab.scale.memory.setup import Setup
from ppo_lab.scale.memory.shape import named


@dataclass(frozen=True, slots=True, kw_only=True)
class Quoted:
    """One column of the table. ``devices`` and ``memory`` (bytes a device): from and to; ``every``: recomputing."""

    model: str
    devices: tuple[int, int]
    rate: float
    per_device: int
    accumulation: int
    effective: int
    epochs: int
    clip: float
    entropy: float
    value: float
    max_norm: float
    every: int
    memory: tuple[float, float]


QUOTED = (
    Quoted(model="7B", devices=(4, 8), rate=3e-5, per_device=64, accumulation=4, effective=256, epochs=4, clip=0.2,
           entropy=0.05, value=0.5, max_norm=1.0, every=4, memory=(24e9, 32e9)),
    Quoted(model="13B", devices=(8, 16), rate=1e-5, per_device=128, accumulation=8, effective=1024, epochs=3,
           clip=0.15, entropy=0.03, value=0.5, max_norm=0.5, every=2, memory=(40e9, 40e9)),
    Quoted(model="70B", devices=(32, 64), rate=5e-6, per_device=256, accumulation=16, effective=4096, epochs=2,
           clip=0.1, entropy=0.01, value=0.5, max_norm=0.1, every=2, memory=(48e9, 64e9)),
)  # fmt: skip


def as_printed(row: Quoted, *, prompt: int = 512, answer: int = 512) -> Setup:
    """The row at its kindest: most devices, most memory, ZeRO-3, nothing whole while sampling, samples one by one."""
    devices = row.devices[1]
    return Setup(policy=named(row.model), devices=devices, memory=row.memory[1], stage=3, generation="sharded",
                 recompute_every=row.every, rows=row.per_device * row.accumulation * devices,
                 micro_batch=row.per_device, sample_batch=1, prompt=prompt, answer=answer)  # fmt: skip


def objections(row: Quoted, *, prompt: int = 512, answer: int = 512) -> Iterator[str]:
    """Why the row is refused, one sentence each; none for a row that is right.

    - effective batch = per device × accumulation × devices, for some number of devices that the row names;
    - four models, activations and buffers fit into the memory it names, on the most devices that it names.
    """
    fewest, most = row.devices
    batches = [row.per_device * row.accumulation * n for n in row.devices]
    if not batches[0] <= row.effective <= batches[1]:
        yield (
            f"{row.model}: effective batch must be per device x accumulation x devices, got {row.per_device} x "
            f"{row.accumulation} x {fewest} to {most} = {batches[0]} to {batches[1]}, not {row.effective}; "
            "the devices were left out"
        )
    setup = as_printed(row, prompt=prompt, answer=answer)
    for words, tried in (("as printed", setup), ("even one sequence at a time", replace(setup, micro_batch=1))):
        made = plan(tried)
        if not made.fits_device:
            yield (
                f"{row.model}: {words}, {most} devices need {made.peak / 1e9:.0f} GB each in the {made.phase}, not "
                f"{row.memory[1] / 1e9:.0f}; let choose_batches() find a micro-batch, or change what advice() names"
            )
