"""Who owns the weights of a run, one process or many, and adapters in place of whole layers."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from .base import Config


class LearnerConfig(Config):
    """One process, copies of the model (ddp), or shards of it (zero); see `ppo_lab.learners`.

    None of these settings changes what a run computes beyond rounding, so a resumed run may have others.
    """

    kind: Literal["auto", "plain", "ddp", "zero"] = Field(
        "auto",
        description="plain: one process. ddp: every process holds everything. zero: DeepSpeed shards it. auto: plain "
        "in one process, ddp in several.",
    )
    stage: Literal[1, 2, 3] = Field(
        3,
        description="zero: 1 shards the optimizer, 2 the gradients too, 3 also the weights of all four models. Higher: "
        "less memory, more messages.",
    )
    generation: Literal["gathered", "sharded"] = Field(
        "gathered",
        description="stage 3: gathered samples from a whole copy of the policy; sharded, for a policy that fits on no "
        "single device, samples from the shards, and every process runs all sampling.max_new_tokens steps.",
    )
    offload: Literal["none", "optimizer", "all"] = Field(
        "none",
        description="zero: keep Adam's moments and the float32 weights in the memory of the host, or (all, stage 3) "
        "also the shards of the weights. Less device memory, slower steps.",
    )
    persistence_threshold: NonNegativeInt = Field(
        0,
        description="stage 3: parameters of fewer elements stay whole on every device. Higher: fewer messages, more "
        "memory; 100000 is usual on GPUs, 0 shards everything.",
    )
    bucket: PositiveInt = Field(
        500_000_000,
        description="zero: elements in one message of gradients or weights, never more than there are. Higher: fewer "
        "messages, larger buffers.",
    )
    prefetch: NonNegativeInt = Field(
        500_000_000,
        description="stage 3: elements of weights asked for ahead of their use. Higher: less waiting, more memory.",
    )
    overlap: bool = Field(
        False,
        description="stages 2 and 3: send gradients while others are still being computed, for a second bucket of "
        "memory; the numbers stay the same. DeepSpeed refuses it at stage 1, where gradients are added up over "
        "micro-batches before they are sent.",
    )
    contiguous_gradients: bool = Field(
        True, description="zero: gradients are copied into one buffer as they come, against fragmented memory."
    )
    recompute_every: PositiveInt | None = Field(
        None,
        description="Recompute every k-th block in the backward pass in place of keeping its activations; None: keep "
        "all; 1 costs one more forward. Higher: less time, more memory.",
    )
    recompute: Literal["block", "selective"] = Field(
        "block",
        description="What recompute_every computes again. block: all of the block. selective: all but its linear "
        "layers, whose results are kept: a few percent more operations in place of a quarter, and more memory.",
    )
    patience: PositiveFloat = Field(
        45.0,
        description="Seconds in which no process moves, or one runs in circles for which another waits, before the run "
        "ends with a named error (a reward has reward.timeout instead). Higher: a single operation may take longer, "
        "and a stuck run is noticed later.",
    )

    @model_validator(mode="after")
    def _stages(self) -> LearnerConfig:
        if self.overlap and self.stage == 1:
            raise ValueError(
                "learner.overlap needs learner.stage 2 or 3 (at stage 1 gradients are added up before they are sent), "
                "got stage 1; set learner.overlap: false"
            )
        if self.recompute == "selective" and self.recompute_every is None:
            raise ValueError(
                "learner.recompute selective needs learner.recompute_every (which blocks), got None; "
                "set learner.recompute_every: 1"
            )
        if self.offload == "all" and self.stage != 3:
            raise ValueError(
                f"learner.offload all needs learner.stage 3 (only there are weights in shards), got stage {self.stage};"
                " use learner.offload: optimizer"
            )
        return self


class LoRAConfig(Config):
    """Low-rank adapters W + α/r·BA in place of training W (Hu et al. 2022), by peft; rank 0 trains the weights.

    The reference is the policy with its adapters as they were at the start, never the policy without adapters.
    """

    rank: NonNegativeInt = Field(0, description="r of every adapter; 0: none. Higher: more to learn with, more memory.")
    alpha: PositiveFloat = Field(16.0, description="α; an adapter counts α/r. Higher: larger steps at the same rate.")
    targets: tuple[str, ...] = Field(
        (), description="Names of the linear layers that get one, as q_proj; empty: all but the output layer."
    )
