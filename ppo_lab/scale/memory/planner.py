"""`plan`: bytes of one device, part by part, in each phase of a step; and what to change first where they do not fit.

Four models: the policy and its reference, the critic and the reward model. Policy and critic are trained, and their
activations live at the same time, since one forward serves both. A phase holds what lasts (weights, gradients,
optimizer) and what it needs itself; the largest phase decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from ppo_lab.scale.memory.activations import activation_bytes, block_bytes, cache_bytes, logits_bytes, size_of
from ppo_lab.scale.memory.host import node_bytes
from ppo_lab.scale.memory.setup import Setup, bubble

PHASES = ("rollout", "score", "update")
LASTING = ("trained weights", "frozen weights", "gradients", "optimizer")
BATCHES = ("micro_batch", "sample_batch")
WORTH = 0.02  # a change must free this share of what is worst to be named


@dataclass(frozen=True, slots=True)
class Plan:
    """Bytes of one device. ``lasting``: by part, in every phase; ``phases``: what each phase adds, by part."""

    setup: Setup
    lasting: dict[str, float]
    phases: dict[str, dict[str, float]]
    host: float  # bytes that offloading puts into main memory, a device
    node: dict[str, dict[str, float]]  # bytes of main memory of a node, by phase and part

    @property
    def totals(self) -> dict[str, float]:
        """Bytes of each phase, everything counted."""
        return {name: sum(self.lasting.values()) + sum(parts.values()) for name, parts in self.phases.items()}

    @property
    def phase(self) -> str:
        """The largest phase."""
        return max(self.totals, key=lambda name: self.totals[name])

    @property
    def peak(self) -> float:
        """Bytes that a device needs."""
        return self.totals[self.phase]

    @property
    def parts(self) -> dict[str, float]:
        """Bytes by part in the largest phase."""
        return {**self.lasting, **self.phases[self.phase]}

    @property
    def node_totals(self) -> dict[str, float]:
        """Bytes of main memory of a node: loading, running, saving."""
        return {name: sum(parts.values()) for name, parts in self.node.items()}

    @property
    def node_phase(self) -> str:
        """The one of these with the most bytes."""
        return max(self.node_totals, key=lambda name: self.node_totals[name])

    @property
    def node_peak(self) -> float:
        """Bytes of main memory that a node needs."""
        return self.node_totals[self.node_phase]

    @property
    def fits_device(self) -> bool:
        """Whether the largest phase stays within a device's budget."""
        return self.peak <= self.setup.budget

    @property
    def fits_node(self) -> bool:
        """Whether the processes of a node stay within its main memory."""
        return self.node_peak <= self.setup.node_budget

    @property
    def fits(self) -> bool:
        """Whether both do."""
        return self.fits_device and self.fits_node

    @property
    def strain(self) -> float:
        """Bytes over budget, of devices or nodes, whichever is worse; at most 1 where the plan fits."""
        return max(self.peak / self.setup.budget, self.node_peak / self.setup.node_budget)

    @property
    def bubble(self) -> float:
        """Share of time that a pipeline stage waits."""
        return bubble(self.setup.accumulation, pipeline=self.setup.pipeline)


def counts(setup: Setup) -> dict[str, float]:
    """Weights of the models: ``policy, critic, reference, reward`` whole; ``trained`` and ``frozen`` as they are held.

    Under LoRA the policy trains its adapters; the reference shares the base and keeps adapters of its own.
    """
    policy, other = setup.policy, setup.other or setup.policy
    trunks = {"own": other.trunk, "policy": policy.trunk, "shared": 0}
    head = (other if setup.critic == "own" else policy).width + 1
    whole = {"policy": policy.parameters, "critic": trunks[setup.critic] + head,
             "reference": policy.parameters, "reward": other.trunk + other.width}  # fmt: skip
    if setup.lora is None:
        trained, frozen = whole["policy"] + whole["critic"], whole["reference"] + whole["reward"]
    else:
        adapters = policy.adapters(setup.lora)
        critic = {"own": other.trunk, "policy": adapters, "shared": 0}[setup.critic] + head
        trained, frozen = adapters + critic, policy.parameters + adapters + whole["reward"]
    return {**whole, "trained": trained, "frozen": frozen}


def states(setup: Setup) -> tuple[dict[str, float], float]:
    """Bytes of what lasts on a device, by part, and what is on the host instead.

    As `zero_bytes`: weights 2Ψ, gradients 2Ψ and optimizer 12Ψ in half precision (8Ψ without the float32 copy), 4, 4
    and 8 in float32; stage 1 divides the optimizer by D, stage 2 gradients, stage 3 weights, frozen ones too.
    """
    n, e, cut = counts(setup), size_of(setup.precision), setup.tensor * setup.pipeline
    moments = 12 if e == 2 and setup.master else 8

    def share(stage: int) -> float:
        return cut * (setup.data if setup.stage >= stage else 1)

    parts = {
        "trained weights": n["trained"] * e / share(3),
        "frozen weights": n["frozen"] * e / share(3),
        "gradients": n["trained"] * e / share(2),
        "optimizer": n["trained"] * moments / share(1),
    }
    away = {"none": (), "optimizer": ("optimizer",), "all": ("optimizer", "trained weights", "frozen weights")}
    host = sum(parts[name] for name in away[setup.offload])
    return {**parts, **dict.fromkeys(away[setup.offload], 0.0)}, host


def buffers(setup: Setup) -> float:
    """Bytes that DeepSpeed holds to move numbers: two gradient buckets from stage 1 on, gathered weights at stage 3.

    None is larger than what it is for: all trained weights, or the larger model.
    """
    n, e, cut = counts(setup), size_of(setup.precision), setup.tensor * setup.pipeline
    bucket = 2 * min(setup.bucket, n["trained"] / cut) * e if setup.stage >= 1 else 0
    return bucket + gathered(setup)


def gathered(setup: Setup) -> float:
    """Bytes of weights that stage 3 has fetched at one time: a block (or the embedding) and what comes ahead."""
    if setup.stage < 3:
        return 0.0
    n, e = counts(setup), size_of(setup.precision)
    block = max(setup.policy.block, setup.policy.embedding)
    return min(block + setup.prefetch, n["policy"]) * e / setup.tensor


def plan(setup: Setup) -> Plan:
    """Bytes per device, part by part.

    - rollout: the whole policy beside its shards (stage 3, "gathered"), keys and values, one step's logits;
    - score: the widest block of a forward without gradients, a chunk of logits;
    - update: activations of policy and critic, a chunk of logits, buckets. A pipeline holds up to P micro-batches.

    >>> made = plan(Setup(devices=64, stage=3, rows=64))
    >>> made.fits, made.phase
    (True, 'rollout')
    """
    lasting, host = states(setup)
    e, n = size_of(setup.precision), counts(setup)
    policy, rows = setup.policy, setup.sample_batch
    other = setup.policy if setup.critic == "policy" else setup.other or setup.policy
    passed = (policy,) if setup.critic == "shared" else (policy, other)  # trunks of one forward of the update
    whole = setup.stage == 3 and setup.generation == "gathered"
    gathers = gathered(setup)
    rollout = {
        "gathered policy": n["policy"] * e / setup.tensor if whole else gathers,
        "key-value cache": cache_bytes(policy, rows=rows, length=setup.length, precision=setup.precision,
                                       tensor=setup.tensor * setup.pipeline),
        "logits": rows * policy.vocabulary * 3 * 4 / setup.tensor,  # as they are, in float32, as probabilities
    }  # fmt: skip
    forward = max(block_bytes(shape, length=setup.length, precision=setup.precision, tensor=setup.tensor)
                  for shape in (policy, other))  # fmt: skip
    score = {
        "activations": rows * setup.length * forward,
        "logits": logits_bytes(policy, rows=rows, steps=setup.answer, tensor=setup.tensor),
        "buffers": gathers,
    }
    held, micro = min(setup.pipeline, setup.accumulation), min(setup.micro_batch, setup.rank_rows)  # never fuller
    update = {
        "activations": held * sum(
            activation_bytes(shape, rows=micro, length=setup.length, precision=setup.precision,
                             recompute_every=setup.recompute_every, recompute=setup.recompute,
                             layers=-(-shape.layers // setup.pipeline), tensor=setup.tensor) for shape in passed),
        "logits": logits_bytes(policy, rows=micro, steps=setup.answer, tensor=setup.tensor),
        "buffers": buffers(setup),
    }  # fmt: skip
    node = node_bytes(setup, n["trained"], n["frozen"], host)
    return Plan(setup, lasting, dict(zip(PHASES, (rollout, score, update), strict=True)), host, node)


def choose_batches(setup: Setup, *, free: Sequence[str] = BATCHES) -> Setup:
    """The same setup with the largest free batches (powers of two) that fit on the device; 1 where none does.

    A larger ``micro_batch`` means fewer, fuller forwards; the effective batch stays what it was.
    """
    best = replace(setup, **dict.fromkeys(free, 1))  # type: ignore[arg-type]
    for name in free:
        size = 2
        while size <= setup.rank_rows and plan(replace(best, **{name: size})).fits_device:  # type: ignore[arg-type]
            best, size = replace(best, **{name: size}), 2 * size  # type: ignore[arg-type]
    return best


def changes(setup: Setup) -> Iterator[tuple[str, Callable[[], Setup]]]:
    """What could be changed, cheapest first: words, and the setup after it."""
    if setup.micro_batch > 1:
        yield "micro-batch 1, more accumulation", lambda: replace(setup, micro_batch=1)
    if setup.sample_batch > 1:
        yield "sample one sequence at a time", lambda: replace(setup, sample_batch=1)
    if setup.stage < 3 and setup.pipeline == 1:
        yield f"ZeRO stage {setup.stage + 1}", lambda: replace(setup, stage=setup.stage + 1)
    if setup.recompute_every is None:
        selective = replace(setup, recompute_every=1, recompute="selective")
        yield "recompute every block, selectively", lambda: selective
    if (setup.recompute_every, setup.recompute) != (1, "block"):
        yield "recompute every block", lambda: replace(setup, recompute_every=1, recompute="block")
    if setup.load == "whole" and setup.stage == 3:
        yield "each rank loads its shards from folders", lambda: replace(setup, load="sharded")
    if setup.generation == "gathered" and setup.stage == 3:
        yield "sharded generation", lambda: replace(setup, generation="sharded")
    if setup.offload == "none":
        yield "optimizer on the host", lambda: replace(setup, offload="optimizer")
    if setup.offload != "none":
        yield "nothing on the host", lambda: replace(setup, offload="none")
    if setup.lora is None:
        yield "LoRA of rank 16, critic on the policy's base", lambda: replace(setup, lora=16, critic="policy")
    if setup.rows >= 2 * setup.data:
        more = replace(setup, devices=2 * setup.devices)
        cut = replace(more, stage=3, generation="sharded") if setup.pipeline == 1 and setup.stage < 3 else more
        yield f"{more.devices} devices" + (" under ZeRO-3, sharded generation" if cut is not more else ""), lambda: cut


def advice(setup: Setup) -> list[tuple[str, Plan]]:
    """Changes in the order to make them, each with the plan after it, until the last one fits; empty where it fits.

    Of the changes that still free something the cheapest comes first; one that alone would do is taken before several,
    unless it changes what is trained (LoRA) or what is paid for (devices).
    """
    made: list[tuple[str, Plan]] = []
    now = plan(setup)
    while not now.fits:
        open_ones = [(words, plan(change())) for words, change in changes(now.setup)]
        useful = [(words, after) for words, after in open_ones if after.strain < now.strain * (1 - WORTH)]
        if not useful:
            break
        same = [pair for pair in useful if pair[1].setup.lora == now.setup.lora]
        cheap = [pair for pair in same if pair[1].setup.devices == now.setup.devices]
        step = next((pair for pair in cheap if pair[1].fits), useful[0])
        made.append(step)
        now = step[1]
    return made
