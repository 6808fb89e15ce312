"""What devices send each other, what they compute, and the targets that are watched: busy above 80 %, talk below 30 %.

Arithmetic, no measurement: bytes from the ZeRO paper, operations from the size of the matrices. A tool's "GPU
utilisation" says that a kernel ran, not that it did anything: count operations against the peak.
"""

from __future__ import annotations

from dataclasses import dataclass

from ppo_lab.scale.memory.shape import Shape

BUSY, TALK = 0.8, 0.3  # the targets


def traffic(parameters: float, *, stage: int, devices: int, size: float = 2.0) -> float:
    r"""Bytes that a device sends in one optimizer step with one forward and backward: 2Ψ, at stage 3 3Ψ, times size.

    A reduce-scatter and an all-gather move :math:`\Psi (D - 1)/D` numbers each; stage 3 gathers the weights twice, in
    forward and backward, and reduces once. Every further micro-batch at stage 3 gathers again.
    Source: Rajbhandari et al. 2020, sec. 7.

    >>> [traffic(1.0, stage=s, devices=2, size=1) for s in (0, 1, 2, 3)]
    [1.0, 1.0, 1.0, 1.5]
    """
    if stage not in (0, 1, 2, 3) or devices < 1:
        raise ValueError(f"stage must be 0 to 3 and devices at least 1, got {stage} and {devices}")
    return (3 if stage == 3 else 2) * parameters * size * (devices - 1) / devices


def training_flops(shape: Shape, *, tokens: float, length: int, recompute: bool = False) -> float:
    r"""Operations of a forward and backward over ``tokens``: :math:`6 \Psi` a token and the attention; 8 recomputed.

    Ψ counts the matrices alone; attention adds :math:`12 \cdot N d \cdot length / 2` a token (causal).
    Source: Kaplan et al. 2020, table 1; Narayanan et al. 2021, eq. 3.
    """
    matrices = shape.layers * sum(a * b for a, b in shape.matrices)
    attention = 2 * shape.layers * shape.width * length / 2
    return tokens * ((8 if recompute else 6) * (matrices + attention) + 6 * shape.embedding)


def selective_share(shape: Shape, *, length: int) -> float:
    """Operations that selective recomputation adds to a forward and backward, as a share: attention's two products.

    Rises with the length, falls with the width; the causal half of the scores is counted, as in `training_flops`.
    Source: Korthikanti et al. 2022, sec. 5, for the idea.

    >>> from ppo_lab.scale.memory.shape import SHAPES
    >>> round(selective_share(SHAPES["7B"], length=1024), 4)
    0.0066
    """
    attention = 2 * shape.layers * shape.width * length / 2
    return 2 * attention / training_flops(shape, tokens=1, length=length)


@dataclass(frozen=True, slots=True)
class Watch:
    """Where a step's time goes. ``busy``: share of the peak that was used while computing and in all; ``talk``."""

    compute: float
    communicate: float
    seconds: float
    busy: float
    talk: float

    @property
    def healthy(self) -> bool:
        """Within both targets."""
        return self.busy >= BUSY and self.talk <= TALK


def watch(*, flops: float, sent: float, seconds: float, peak: float, bandwidth: float) -> Watch:
    """Shares of a measured step.

    Args:
        flops: operations of the step on one device; peak: operations a second that it can do.
        sent: bytes; bandwidth: bytes a second. ``talk`` is the share that would be spent if nothing overlapped.
        seconds: of the whole step.

    >>> seen = watch(flops=8e14, sent=2e10, seconds=1.0, peak=1e15, bandwidth=1e11)
    >>> seen.busy, seen.talk, seen.healthy
    (0.8, 0.2, True)
    """
    for name, value in (("seconds", seconds), ("peak", peak), ("bandwidth", bandwidth)):
        if not value > 0:
            raise ValueError(f"{name} must be above 0, got {value}; measure it first")
    compute, communicate = flops / peak, sent / bandwidth
    return Watch(compute, communicate, seconds, compute / seconds, communicate / seconds)
