"""Exercises of notebook 16: what ZeRO divides, how long a pipeline waits, what is kept when blocks are recomputed."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from ppo_lab.course.exercises.exercise import Case, Exercise, Wrong
from ppo_lab.course.exercises.toys import Toys
from ppo_lab.scale.memory.activations import kept_bytes
from ppo_lab.scale.memory.setup import bubble
from ppo_lab.scale.memory.zero import zero_bytes

wrong_zero, wrong_bubble, wrong_kept = Wrong(), Wrong(), Wrong()


def _number(toys: Toys, low: float, high: float) -> float:
    """A number between two positive bounds."""
    return round(float(low + (high - low) * (toys.away(1, least=0.0, most=1.0).abs())), 3)


# --- ZeRO ------------------------------------------------------------------------------------------------------------


@wrong_zero("The optimizer is not divided. Stage 1 starts with it: it is the largest part.")
def optimizer_whole(parameters: float, *, devices: int, stage: int) -> float:
    """12Ψ on every device."""
    parts = {3: 2.0, 2: 2.0}
    return 12 * parameters + parameters * sum(x / devices if stage >= s else x for s, x in parts.items())


@wrong_zero("Moments only: the float32 copy of the weights is missing. It takes 4 of the 12 bytes.")
def no_master_copy(parameters: float, *, devices: int, stage: int) -> float:
    """K = 8."""
    return zero_bytes(parameters, devices=devices, stage=stage, optimizer_bytes=8)


@wrong_zero("Stages are one too early. Stage 0 divides nothing, 1 the optimizer, 2 gradients, 3 weights.")
def one_stage_early(parameters: float, *, devices: int, stage: int) -> float:
    """Stage s + 1."""
    return zero_bytes(parameters, devices=devices, stage=min(stage + 1, 3))


@wrong_zero("Everything is divided at every stage. That is stage 3; the others leave something whole.")
def always_stage_three(parameters: float, *, devices: int, stage: int) -> float:
    """16Ψ/N."""
    return 16 * parameters / devices


@wrong_zero("You divide weights before gradients. A forward needs whole weights: they come last, at stage 3.")
def weights_before_optimizer(parameters: float, *, devices: int, stage: int) -> float:
    """Stage 1 divides the weights."""
    parts = {1: 2.0, 2: 2.0, 3: 12.0}
    return parameters * sum(x / devices if stage >= s else x for s, x in parts.items())


@wrong_zero("Gradients take 4 bytes here. In half precision they are half: 2 bytes, as the weights.")
def float_gradients(parameters: float, *, devices: int, stage: int) -> float:
    """2 + 4 + 12."""
    return zero_bytes(parameters, devices=devices, stage=stage) + 2 * parameters / (devices if stage >= 2 else 1)


@wrong_zero("A stage divides its own part only. Each stage divides everything that the ones before it did, too.")
def own_part_only(parameters: float, *, devices: int, stage: int) -> float:
    """One part."""
    parts = {3: 2.0, 2: 2.0, 1: 12.0}
    return parameters * sum(x / devices if stage == s else x for s, x in parts.items())


def zero_cases(seed: int) -> Sequence[Case]:
    """Every stage, on one device and on several."""
    toys = Toys("bytes_per_device", seed)
    size = _number(toys, 1.0, 9.0)
    return tuple(
        Case(f"stage {stage} on {devices}", {"parameters": size * 1e9}, {"devices": devices, "stage": stage})
        for devices, stage in ((1, 0), (8, 0), (8, 1), (8, 2), (8, 3), (64, 1))
    )


BYTES_PER_DEVICE = Exercise(
    name="bytes_per_device",
    notebook="16_memory_and_parallelism",
    minutes=8,
    lines=5,
    task="Bytes of one device under ZeRO, in half precision with Adam: weights 2, gradients 2, optimizer 12 bytes a "
    "parameter. Stage 1 divides the optimizer by the number of devices, stage 2 also gradients, stage 3 also weights.",
    answer="""
def bytes_per_device(parameters, *, devices, stage):
    weights = 2 / devices if stage >= 3 else 2
    gradients = 2 / devices if stage >= 2 else 2
    optimizer = 12 / devices if stage >= 1 else 12
    each = weights + gradients + optimizer
    return parameters * each
""",
    reference=zero_bytes,
    cases=zero_cases,
    hints=(
        "Three parts, each whole or divided: which stage divides which?",
        "A stage keeps what the stages before it did: stage >= 2, not stage == 2.",
        "Sum the bytes of one parameter first, then multiply.",
    ),
    mutants=tuple(wrong_zero),
)

# --- the bubble ------------------------------------------------------------------------------------------------------


@wrong_bubble("Against the time of useful work alone: divide by all slots, M + P − 1, not by M.")
def over_useful_time(micro_batches: int, *, pipeline: int) -> float:
    """(P − 1)/M."""
    return (pipeline - 1) / micro_batches


@wrong_bubble("P − 1 slots are empty on each stage, not P: a pipeline of one never waits.")
def one_too_many(micro_batches: int, *, pipeline: int) -> float:
    """P/(M + P)."""
    return pipeline / (micro_batches + pipeline)


@wrong_bubble("That is the share of time it works. The bubble is the rest.")
def working_share(micro_batches: int, *, pipeline: int) -> float:
    """M/(M + P − 1)."""
    return micro_batches / (micro_batches + pipeline - 1)


@wrong_bubble("P stages and M micro-batches take M + P − 1 slots: the last stage starts when P − 1 are over.")
def too_many_slots(micro_batches: int, *, pipeline: int) -> float:
    """(P − 1)/(M + P)."""
    return (pipeline - 1) / (micro_batches + pipeline)


@wrong_bubble("M and P have changed places: more micro-batches make the bubble smaller, more stages larger.")
def swapped(micro_batches: int, *, pipeline: int) -> float:
    """(M − 1)/(M + P − 1)."""
    return (micro_batches - 1) / (micro_batches + pipeline - 1)


@wrong_bubble("The share of one stage is asked for, not the slots of all of them.")
def empty_slots(micro_batches: int, *, pipeline: int) -> float:
    """P (P − 1)."""
    return float(pipeline * (pipeline - 1))


@wrong_bubble("Without micro-batches all stages but one wait. M of them in flight fill the pipe.")
def no_micro_batches(micro_batches: int, *, pipeline: int) -> float:
    """1 − 1/P."""
    return 1 - 1 / pipeline


def bubble_cases(seed: int) -> Sequence[Case]:
    """Few and many micro-batches; a pipeline of one."""
    draw = Toys("pipeline_wait", seed)
    many = 5 + int(40 * draw.away(1, least=0.0, most=1.0).abs())
    return tuple(
        Case(name, {"micro_batches": m}, {"pipeline": p})
        for name, m, p in (("one stage", many, 1), ("4 in 2", 4, 2), ("many in 4", many, 4), ("1 in 8", 1, 8))
    )


PIPELINE_WAIT = Exercise(
    name="pipeline_wait",
    notebook="16_memory_and_parallelism",
    minutes=6,
    lines=2,
    task="M micro-batches pass through P stages, one slot of time each. Which share of all slots does a stage stand "
    "still? Draw two stages and three micro-batches first.",
    answer="""
def pipeline_wait(micro_batches, *, pipeline):
    slots = micro_batches + pipeline - 1
    return (pipeline - 1) / slots
""",
    reference=bubble,
    cases=bubble_cases,
    hints=(
        "When does the last stage see the first micro-batch? When the last one?",
        "All in all M + P − 1 slots go by, of which a stage works M.",
        "So it waits P − 1 of them, whatever M is.",
    ),
    mutants=tuple(wrong_bubble),
)

# --- recomputing -----------------------------------------------------------------------------------------------------


@wrong_kept("The block that is being recomputed is missing: it is all there while its gradient is taken.")
def no_peak(blocks: int, block: float, entry: float, *, every: int) -> float:
    """Without the last term."""
    return kept_bytes(blocks, block, entry, every=every) - block


@wrong_kept("Blocks 0, k, 2k, … are recomputed: with 10 blocks and k = 4 that is three, not two. Round up.")
def rounded_down(blocks: int, block: float, entry: float, *, every: int) -> float:
    """Floor."""
    again = blocks // every
    return again * entry + (blocks - again) * block + block


@wrong_kept("The wrong blocks are kept: every k-th one is recomputed, the others stay whole.")
def kept_and_recomputed_swapped(blocks: int, block: float, entry: float, *, every: int) -> float:
    """Keeps every k-th."""
    again = blocks - ceil(blocks / every)
    return again * entry + (blocks - again) * block + block


@wrong_kept("A recomputed block is not free: it needs its input to start from.")
def inputs_forgotten(blocks: int, block: float, entry: float, *, every: int) -> float:
    """No inputs."""
    return kept_bytes(blocks, block, 0.0, every=every)


@wrong_kept("All recomputed blocks are whole at once here. The backward pass takes them one by one.")
def all_at_once(blocks: int, block: float, entry: float, *, every: int) -> float:
    """Every block whole."""
    return ceil(blocks / every) * entry + blocks * block


@wrong_kept("Every block gives its input here, also those that stay whole: their inputs are among what they keep.")
def every_input(blocks: int, block: float, entry: float, *, every: int) -> float:
    """Inputs of all blocks."""
    return blocks * entry + (blocks - ceil(blocks / every)) * block + block


@wrong_kept("k blocks are recomputed at a time here. Each recomputed block starts from an input of its own.")
def segments_of_k(blocks: int, block: float, entry: float, *, every: int) -> float:
    """The other reading of "every k"."""
    return ceil(blocks / every) * entry + every * block


def kept_cases(seed: int) -> Sequence[Case]:
    """Numbers that divide, and one that does not; every block recomputed."""
    toys = Toys("recomputed_bytes", seed)
    sizes = {"block": _number(toys, 20.0, 40.0), "entry": _number(toys, 1.0, 3.0)}
    return tuple(
        Case(f"every {k} of {n}", {"blocks": n, **sizes}, {"every": k})
        for n, k in ((12, 1), (12, 2), (12, 4), (10, 4), (3, 8))
    )


RECOMPUTED_BYTES = Exercise(
    name="recomputed_bytes",
    notebook="16_memory_and_parallelism",
    minutes=10,
    lines=3,
    task="Blocks 0, k, 2k, … of N keep their input alone (entry bytes a token) and are computed again in the backward "
    "pass, one after the other; all other blocks keep everything (block bytes). Return the peak, bytes a token.",
    answer="""
def recomputed_bytes(blocks, block, entry, *, every):
    again = -(-blocks // every)
    kept = (blocks - again) * block
    return again * entry + kept + block
""",
    reference=kept_bytes,
    cases=kept_cases,
    hints=(
        "How many of 10 blocks are number 0, 4 or 8?",
        "Count what is there when the forward ends. What is added at the worst moment of the backward pass?",
        "One recomputed block is whole again: + block.",
    ),
    mutants=tuple(wrong_kept),
)
