"""Bytes on each device, by arithmetic, before anything is launched. A GB here is 1e9 bytes."""

from __future__ import annotations


def zero_bytes(parameters: float, *, devices: int, stage: int, optimizer_bytes: float = 12) -> float:
    r"""Bytes a device holds for mixed-precision Adam under ZeRO: weights 2Ψ, gradients 2Ψ, optimizer KΨ, K = 12.

    Stage 1 divides the optimizer part by the number of devices, stage 2 the gradients too, stage 3 the weights too.
    Activations and buffers come on top. K is a float32 master copy and two float32 moments; 8 without the master copy.
    Source: Rajbhandari et al. 2020, ZeRO, sec. 3.1 and fig. 1.

    >>> [zero_bytes(7.5e9, devices=64, stage=s) / 1e9 for s in (0, 1, 2, 3)]
    [120.0, 31.40625, 16.640625, 1.875]
    """
    if parameters < 0 or optimizer_bytes < 0:
        got = f"{parameters} and {optimizer_bytes}"
        raise ValueError(f"parameters and optimizer_bytes must be counts ≥ 0, got {got}; Adam takes 12")
    if devices < 1:
        raise ValueError(f"devices must be ≥ 1, got {devices}; one device is stage 0")
    if stage not in (0, 1, 2, 3):
        raise ValueError(f"stage must be 0, 1, 2 or 3, got {stage}; 0 is plain data parallelism")
    parts = {3: 2.0, 2: 2.0, 1: float(optimizer_bytes)}  # the stage from which each part is divided
    return parameters * sum(size / devices if stage >= first else size for first, size in parts.items())
