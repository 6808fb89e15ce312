"""DeepSpeed itself: how it is imported and started, and where it needs a word with us."""

from __future__ import annotations

import os
import warnings
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn

from . import shards


def build_engine(model: nn.Module, settings: dict[str, Any], optimizer: torch.optim.Optimizer | None) -> Any:
    """A DeepSpeed engine over the model; without an optimizer one that only shards (stage 3)."""
    import_deepspeed()
    os.environ.setdefault("LOCAL_RANK", "0")  # DeepSpeed asks for it, also where no launcher was
    import deepspeed
    from deepspeed.accelerator import get_accelerator

    if "fp16" in settings and not get_accelerator().is_fp16_supported():
        raise ValueError("precision fp16 needs a device that computes in it, got this CPU; use precision: bf16")
    buffers = {name: b.clone() for name, b in model.named_buffers() if b.is_floating_point()}
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=settings, dist_init_required=False)
    for name, b in engine.module.named_buffers():
        if name in buffers:  # half precision would shift rotary positions
            b.data = buffers[name].to(b.device)
    return engine


def import_deepspeed() -> None:
    """Import it so that nothing is compiled on the way.

    Raises:
        ValueError: it is not installed, as on Windows.
    """
    if not torch.cuda.is_available():
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    try:
        import deepspeed.ops
    except ImportError as error:
        raise ValueError(f"learner.kind zero needs deepspeed ({error}); pip install 'ppo_lab[scale]'") from error
    import deepspeed.comm
    from deepspeed.utils import logger

    # deepspeed 0.19 calls these by their former names, at every message
    warnings.filterwarnings("ignore", message=r"`torch\.distributed\.", category=FutureWarning)
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # else the first run compiles it for minutes
    logger.setLevel("WARNING")
    if not deepspeed.comm.is_initialized():
        backend = "nccl" if torch.cuda.is_available() else "gloo"
        deepspeed.comm.init_distributed(backend, auto_mpi_discovery=False, dist_init_required=False)


def let_rest(optimizer: Any, resting: set[int]) -> None:
    """Gradients of a resting group are 0 before the norm is taken.

    DeepSpeed reads the norm of a group from its shards right before the step; there they are set to 0. Without this a
    group that had no gradient in this step would be stepped with what its shard holds from the last one.
    """
    direct, offloaded = optimizer.get_grad_norm_direct, optimizer.complete_grad_norm_calculation_for_cpu_offload

    def norm(self: Any, gradients: Any, params: Any, norm_type: float = 2) -> Tensor:
        if params and id(params[0]) in resting:
            for g in gradients:
                g.zero_()
        return direct(gradients, params, norm_type)

    def norm_offloaded(self: Any, params: Any) -> Tensor:
        if params and id(params[0]) in resting:
            for p in params:
                piece = shards.piece_of(p, self)
                if piece is not None and piece.flat.grad is not None:
                    piece.flat.grad.zero_()
                if self.get_param_id(p) in self.norm_for_param_grads:
                    self.norm_for_param_grads[self.get_param_id(p)] = torch.zeros(())
        return offloaded(params)

    optimizer.get_grad_norm_direct = MethodType(norm, optimizer)
    optimizer.complete_grad_norm_calculation_for_cpu_offload = MethodType(norm_offloaded, optimizer)
