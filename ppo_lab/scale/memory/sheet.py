"""Plans as text: one plan in lines, many in a table. GB are 1e9 bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ppo_lab.scale.memory.planner import Plan, advice, choose_batches, plan
from ppo_lab.scale.memory.setup import Setup
from ppo_lab.scale.memory.shape import named

MACHINES = ((8, 80e9), (16, 80e9), (64, 80e9))
MODELS = ("7B", "13B", "70B")


def gb(size: float) -> str:
    """Bytes as GB, one decimal.

    >>> gb(31.40625e9)
    '31.4 GB'
    """
    return f"{size / 1e9:.1f} GB"


def lines(made: Plan) -> Iterator[str]:
    """The plan: parts of the largest phase, phases, verdict, and what to change first."""
    s = made.setup
    width = max(map(len, made.parts)) + 2
    yield f"one of {s.devices} devices, {gb(s.memory)}, of which {gb(s.budget)} may be used"
    yield from (f"  {name:<{width}}{gb(size):>10}" for name, size in made.parts.items() if size)
    yield f"  {'all, in the ' + made.phase:<{width}}{gb(made.peak):>10}"
    others = ", ".join(f"{name} {gb(size)}" for name, size in made.totals.items() if name != made.phase)
    yield f"other phases: {others}" + (f"; on the host {gb(made.host)} a device" if made.host else "")
    how = "each rank its shards" if s.loads_shards else "each rank all models whole"
    node = ", ".join(f"{name} {gb(size)}" for name, size in made.node_totals.items())
    yield f"main memory of a node, {s.node_ranks} processes, {gb(s.node_budget)} may be used: {node} ({how})"
    yield (
        f"one optimizer step: {s.rows} sequences of {s.length} tokens = micro-batch {s.micro_batch} x accumulation "
        f"{s.accumulation} x {s.data} ranks" + ("" if s.pipeline == 1 else f"; pipeline bubble {made.bubble:.0%}")
    )
    over = [f"{gb(made.peak - s.budget)} too much"] if not made.fits_device else []
    if not made.fits_node:
        over.append(f"{gb(made.node_peak - s.node_budget)} too much in a node's main memory, while {made.node_phase}")
    yield f"does not fit: {'; '.join(over)}" if over else "fits"
    yield from todo(made.setup)


def todo(setup: Setup) -> Iterator[str]:
    """What to change, in order, with what a device needs after each change; nothing where it fits."""
    steps = advice(setup)
    for i, (words, after) in enumerate(steps):
        end = ", which fits" if after.fits else ""
        yield f"{'change first' if i == 0 else 'then'}: {words} -> {gb(after.peak)}, a node {gb(after.node_peak)}{end}"
    if steps and not steps[-1][1].fits:
        yield "then: more devices, or a smaller model"


def table(
    models: Sequence[str] = MODELS, machines: Sequence[tuple[int, float]] = MACHINES, **settings: object
) -> list[tuple[str, ...]]:
    """Rows (model, machine, as planned, what it took) for full training under ZeRO-3 with every block recomputed.

    The micro-batch is the planner's. Where it does not fit, ``advice`` says what would have to change.
    """
    found: list[tuple[str, ...]] = []
    for name in models:
        for devices, memory in machines:
            start = Setup(policy=named(name), devices=devices, memory=memory, recompute_every=1)
            setup = choose_batches(replace(start, **settings))  # type: ignore[arg-type]
            made, steps = plan(setup), advice(setup)
            took = "; ".join(words for words, _ in steps) or "as it is"
            if steps:
                last = choose_batches(steps[-1][1].setup) if steps[-1][1].fits else steps[-1][1].setup
                took += f": {gb(plan(last).peak)}, micro-batch {last.micro_batch}"
            plain = f"{gb(made.peak)}, micro-batch {setup.micro_batch}"
            found.append((name, f"{devices} x {memory / 1e9:.0f} GB", plain, "yes" if made.fits else "no", took))
    return found
