"""The DeepSpeed configuration that a `LearnerConfig` stands for, every value with its reason."""

from __future__ import annotations

from typing import Any

from ppo_lab.config.scale import LearnerConfig

ALIGNED = 256  # elements; DeepSpeed asks for a bucket that divides evenly


def deepspeed_settings(
    cfg: LearnerConfig, *, precision: str, max_norm: float | None, elements: int, frozen: bool = False
) -> dict[str, Any]:
    """What goes to ``deepspeed.initialize(config=...)``; plain data, so it can be written down as JSON.

    Args:
        cfg: stage, offload, buckets.
        precision: "no", "bf16" or "fp16".
        max_norm: gradient clipping; None does not clip.
        elements: of the model; no bucket is larger.
        frozen: for a model that is only read: no optimizer, no offloaded optimizer.
    """
    settings: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": 1,  # asked for, and without meaning here: losses are sums with own weights
        "gradient_accumulation_steps": 1,
        "managed_gradient_accumulation": False,  # backward adds, step is the only boundary
        "gradient_clipping": max_norm or 0.0,  # of the norm over both groups; 0: none
        "zero_force_ds_cpu_optimizer": False,  # torch's AdamW also with offload: nothing has to be compiled
        "zero_optimization": _zero(cfg, elements, frozen=frozen),
        "steps_per_print": 1 << 40,
    }
    if precision == "bf16":
        settings["bf16"] = {"enabled": True, "check_grad_overflow": True}  # a gradient that is no number is no step
    if precision == "fp16":
        settings["fp16"] = {
            "enabled": True,
            "loss_scale": 0,  # 0: dynamic
            "initial_scale_power": 16,  # starts at 2^16
            "loss_scale_window": 1000,  # doubled after so many good steps
            "hysteresis": 2,  # halved at the second overflow
            "min_loss_scale": 1,
        }
    return settings


def _zero(cfg: LearnerConfig, elements: int, *, frozen: bool) -> dict[str, Any]:
    bucket = -(-min(cfg.bucket, max(elements, 1)) // ALIGNED) * ALIGNED
    zero: dict[str, Any] = {
        "stage": cfg.stage,
        "contiguous_gradients": cfg.contiguous_gradients,
        "overlap_comm": cfg.overlap and not frozen,
        "reduce_bucket_size": bucket,
        "allgather_bucket_size": bucket,
    }
    if cfg.stage == 3:
        zero |= {
            "stage3_param_persistence_threshold": cfg.persistence_threshold,
            "stage3_prefetch_bucket_size": min(cfg.prefetch, max(elements, 1)),
            "stage3_max_live_parameters": 1_000_000_000,  # gathered at a time
            "stage3_max_reuse_distance": 0,  # let go at once: the engines share frozen weights
        }
    device = {"device": "cpu", "pin_memory": False}
    if cfg.offload != "none" and not frozen:
        zero["offload_optimizer"] = dict(device)
    if cfg.offload == "all":
        zero["offload_param"] = dict(device)
    return zero
