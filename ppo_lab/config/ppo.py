"""Settings of the PPO update and of the optimizer: shared by language and control."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from .base import Config


class PPOConfig(Config):
    """One update: epochs of clipped steps over one rollout (Schulman et al. 2017, algorithm 1)."""

    objective: Literal["clip", "kl_penalty", "surrogate", "reinforce"] = Field(
        "clip", description="clip: eq. 7; kl_penalty: eq. 8; surrogate: eq. 6, unbounded; reinforce: no ratio."
    )
    epochs: PositiveInt = Field(
        4, description="Passes over one rollout. Higher: more from each sample, more policy KL; watch early_stop."
    )
    minibatches: PositiveInt = Field(4, description="Optimizer steps an epoch. Higher: smaller, noisier steps.")
    micro_batch: PositiveInt | None = Field(
        None, description="Rows in one forward; None: the whole minibatch. Lower: less memory, same gradient."
    )
    clip: PositiveFloat | tuple[PositiveFloat, PositiveFloat] = Field(
        0.2,
        description="Ratio band 1 ± clip, or (low, high). Higher: bigger steps and more KL per rollout; "
        "watch clip_fraction and policy_kl_k3.",
    )
    dual_clip: float | None = Field(
        None, gt=1, description="Bound on the ratio where A < 0 (Ye et al. 2020). Lower: bad surprises push less."
    )
    penalty_beta: NonNegativeFloat = Field(1.0, description="β of kl_penalty. Higher: smaller steps.")
    gamma: float = Field(1.0, ge=0, le=1, description="Discount. Below 1 early tokens see less of the score.")
    lam: float = Field(
        0.95, ge=0, le=1, description="λ of GAE. Higher: less bias from the critic, more variance from the sample."
    )
    value_coef: NonNegativeFloat = Field(0.1, description="c1 on ½(V-G)². Higher: the critic pulls a shared trunk.")
    value_clip: PositiveFloat | None = Field(0.2, description="Band around the old value; None: off.")
    entropy_coef: NonNegativeFloat = Field(0.0, description="c2 on the entropy. Higher: more random answers.")
    standardize: Literal["none", "minibatch", "rollout"] = Field(
        "rollout", description="Which advantages share one mean and deviation (valid steps of all ranks)."
    )
    reduction: Literal["token_mean", "sequence_mean", "sequence_sum", "fixed_length"] = Field(
        "token_mean", description="How per-step terms become one loss; see core.masking.step_weights."
    )
    target_kl: PositiveFloat | None = Field(
        None, description="Policy KL (k3, nats a step). Above 1.5 times this the policy stops for this rollout."
    )

    @property
    def clip_band(self) -> tuple[float, float]:
        """(low, high) distance of the band from 1."""
        return self.clip if isinstance(self.clip, tuple) else (self.clip, self.clip)

    @model_validator(mode="after")
    def _low_side(self) -> PPOConfig:
        if self.clip_band[0] >= 1:
            raise ValueError(f"ppo.clip must stay below 1 on the low side (1 - clip > 0), got {self.clip}; try 0.2")
        return self


class OptimizerConfig(Config):
    """AdamW with one rate for the actor and one for the critic."""

    actor_rate: PositiveFloat = Field(3e-4, description="Higher: faster, then unstable; watch policy_kl_k3.")
    critic_rate: PositiveFloat = Field(1e-3, description="Higher: the value fit follows faster, with more noise.")
    betas: tuple[float, float] = Field((0.9, 0.999), description="Adam's decay of mean and square.")
    eps: PositiveFloat = Field(1e-8, description="Adam's floor. Higher: small gradients count less.")
    weight_decay: NonNegativeFloat = Field(0.0, description="Decoupled decay. Higher: weights shrink.")
    max_norm: PositiveFloat | None = Field(1.0, description="Global gradient-norm limit over both groups.")
    schedule: Literal["constant", "linear", "warmup_cosine", "restart"] = Field(
        "linear", description="Rate over the steps; restart: cosine cycles, each from half the peak of the last."
    )
    warmup: float = Field(0.0, ge=0, lt=1, description="Share of the steps spent warming up (warmup_cosine).")
    start: float = Field(
        0.0, ge=0, le=1, description="Share of the base rate at step 0 (warmup_cosine). Higher: bolder first steps."
    )
    floor: float = Field(0.0, ge=0, le=1, description="Share of the base rate kept at the end (warmup_cosine).")
    period: PositiveInt | None = Field(None, description="Steps of a cycle (restart). Lower: more restarts.")

    @model_validator(mode="after")
    def _period(self) -> OptimizerConfig:
        if self.schedule == "restart" and self.period is None:
            raise ValueError("optimizer.period must be set for schedule restart, got None; a quarter of steps is usual")
        return self


class CheckpointConfig(Config):
    """When the run is written down."""

    every: PositiveInt = Field(10, description="Steps between checkpoints; the last step always writes one.")
    keep: PositiveInt = Field(2, description="How many of the newest stay; the best one stays besides.")


class LogConfig(Config):
    """metrics.jsonl is always written; trackers are extra."""

    trackers: tuple[str, ...] = Field((), description="Names that accelerate knows: tensorboard, wandb, mlflow, …")
    samples: NonNegativeInt = Field(8, description="Fixed held-out prompts whose answers go to samples.jsonl.")
