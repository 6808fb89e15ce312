"""Everything a plan depends on: models, machine, how the work is divided, how long the texts are."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from ppo_lab.scale.memory.activations import size_of
from ppo_lab.scale.memory.shape import SHAPES, Shape

OFFLOADS = ("none", "optimizer", "all")
GENERATIONS = ("gathered", "sharded")
CRITICS = ("own", "policy", "shared")
LOADS = ("sharded", "whole")
RECOMPUTE = ("block", "selective")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """One way to run four models on a machine.

    Args:
        policy: shape of policy and reference; ``other`` of critic and reward model, None: the same trunk.
        devices: D · T · P, all together; ``memory``: bytes of one; ``headroom``: share of it that a plan leaves free
            for the driver, the communicator and fragments.
        stage: of ZeRO over the D data-parallel ranks; frozen models are divided at stage 3 only.
        precision: of weights and gradients. ``master``: a float32 copy of half-precision weights in the optimizer.
        offload: to the host: "optimizer" its states; "all" the weights too (stage 3).
        recompute_every: every k-th block is computed again in the backward pass; None: none. ``recompute``: "block" all
            of it, "selective" all but its linear layers.
        lora: rank of adapters on every matrix of the policy; None: all weights are trained. The reference then shares
            the policy's base.
        critic: "own": a trunk of its own, as from the reward model, trained whole; "policy": a copy of the policy's,
            which under LoRA shares its base and trains adapters; "shared": a head on the policy.
        prompt, answer: tokens. ``rows``: sequences of one optimizer step over all ranks (the effective batch).
        micro_batch: sequences in one forward of the update; ``sample_batch``: in rollout and scoring.
        generation: "gathered": every rank holds the whole policy while it samples; "sharded": never.
        tensor, pipeline: T and P, by arithmetic only: the learners here divide data and states.
        node_memory: bytes of main memory of a node; ``node_headroom``: share left free for the system, CUDA and data.
        node_devices: devices of a node, each with a process.
        load: "sharded": at stage 3 each rank reads its shards from the models' folders; "whole": all models, float32.
            Below stage 3, and where models are made and not loaded, they are whole anyway.
        bucket, prefetch: numbers in one bucket of gradients; weights that stage 3 fetches ahead of their use.
    """

    policy: Shape = SHAPES["7B"]
    other: Shape | None = None
    devices: int = 8
    memory: float = 80e9
    headroom: float = 0.08
    stage: int = 3
    precision: str = "bf16"
    master: bool = True
    offload: str = "none"
    recompute_every: int | None = None
    recompute: str = "block"
    lora: int | None = None
    critic: str = "own"
    prompt: int = 512
    answer: int = 512
    rows: int = 256
    micro_batch: int = 1
    sample_batch: int = 8
    generation: str = "gathered"
    tensor: int = 1
    pipeline: int = 1
    node_memory: float = 1e12
    node_headroom: float = 0.1
    node_devices: int = 8
    load: str = "sharded"
    bucket: float = 5e8
    prefetch: float = 5e8

    def __post_init__(self) -> None:
        size_of(self.precision)
        for name in ("devices", "prompt", "answer", "rows", "micro_batch", "sample_batch", "tensor", "pipeline",
                     "node_devices"):  # fmt: skip
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("lora", "recompute_every"):
            if (given := getattr(self, name)) is not None and given < 1:
                raise ValueError(f"{name} must be at least 1, or None for none, got {given}")
        if self.stage not in (0, 1, 2, 3):
            raise ValueError(f"stage must be 0, 1, 2 or 3, got {self.stage}; 0 is plain data parallelism")
        for name, known in (("offload", OFFLOADS), ("generation", GENERATIONS), ("critic", CRITICS),
                            ("recompute", RECOMPUTE), ("load", LOADS)):  # fmt: skip
            if getattr(self, name) not in known:
                raise ValueError(f"{name} must be one of {', '.join(known)}, got {getattr(self, name)!r}")
        if self.devices % (self.tensor * self.pipeline):
            raise ValueError(
                f"tensor x pipeline must divide devices, got {self.tensor} x {self.pipeline} on {self.devices}; "
                "64 = 8 x 4 x 2 is D x T x P"
            )
        if self.pipeline > 1 and self.stage > 1:
            raise ValueError(
                f"stage must be 0 or 1 under a pipeline (each micro-batch would gather and reduce anew), got "
                f"{self.stage} with pipeline {self.pipeline}; set pipeline 1, or stage 1"
            )
        if self.offload == "all" and self.stage != 3:
            raise ValueError(f"offload all needs stage 3, got stage {self.stage}; use offload optimizer")
        if self.rows < self.data:
            raise ValueError(
                f"rows must be at least one a data-parallel rank, got {self.rows} for {self.data}; raise the batch"
            )
        for name, usual in (("headroom", "0.08"), ("node_headroom", "0.1")):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must be a share in [0, 1), got {getattr(self, name)}; {usual} is usual")
        for name, usual in (("memory", "80e9"), ("node_memory", "1e12")):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0 bytes, got {getattr(self, name)}; {usual} is usual")

    @property
    def data(self) -> int:
        """D: ranks that hold different rows."""
        return self.devices // (self.tensor * self.pipeline)

    @property
    def length(self) -> int:
        """Tokens of a whole sequence."""
        return self.prompt + self.answer

    @property
    def rank_rows(self) -> int:
        """Sequences of one optimizer step on the fullest rank."""
        return ceil(self.rows / self.data)

    @property
    def accumulation(self) -> int:
        """Forwards of one optimizer step: micro_batch × accumulation × D ≥ rows."""
        return ceil(self.rank_rows / self.micro_batch)

    @property
    def layers(self) -> int:
        """Blocks on the fullest pipeline stage."""
        return ceil(self.policy.layers / self.pipeline)

    @property
    def node_ranks(self) -> int:
        """Processes on the fullest node."""
        return min(self.node_devices, self.devices)

    @property
    def loads_shards(self) -> bool:
        """Whether each rank reads only what it will hold."""
        return self.load == "sharded" and self.stage == 3

    @property
    def node_budget(self) -> float:
        """Bytes of a node's main memory that a plan may use."""
        return self.node_memory * (1 - self.node_headroom)

    @property
    def budget(self) -> float:
        """Bytes of a device that a plan may use."""
        return self.memory * (1 - self.headroom)


def bubble(micro_batches: int, *, pipeline: int) -> float:
    r"""Share of a pipeline's time in which a stage waits, :math:`(P - 1) / (M + P - 1)`.

    P stages, M micro-batches a step. Raising M: the ends matter less. One stage never waits.
    Source: Huang et al. 2019, GPipe, sec. 2.3: the bubble is O((K − 1)/(M + K − 1)).

    >>> bubble(4, pipeline=2), bubble(1, pipeline=4), bubble(9, pipeline=1)
    (0.2, 0.75, 0.0)
    """
    if micro_batches < 1 or pipeline < 1:
        raise ValueError(f"micro_batches and pipeline must be at least 1, got {micro_batches} and {pipeline}")
    return (pipeline - 1) / (micro_batches + pipeline - 1)
