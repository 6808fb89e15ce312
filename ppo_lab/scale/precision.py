"""Half precision: why a float32 copy of the weights is kept, and how fp16 scales its loss.

Source: Micikevicius et al. 2018, Mixed Precision Training, sec. 3.1 (master copy) and 3.2 (loss scaling).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

START = 2.0**16


@dataclass(frozen=True, slots=True)
class LossScale:
    """A dynamic loss scale: doubled after ``window`` good steps in a row, halved after a step that overflowed.

    The step that overflows is left out. DeepSpeed does this for fp16; bf16 has the exponents of float32 and needs none.
    """

    scale: float = START
    good: int = 0
    window: int = 1000
    least: float = 1.0

    def after(self, finite: bool) -> LossScale:
        """The scale of the next step, given whether this step's gradients were finite.

        >>> scale = LossScale(window=2)
        >>> scale.after(False).scale, scale.after(True).after(True).scale
        (32768.0, 131072.0)
        """
        if not finite:
            return replace(self, scale=max(self.scale / 2, self.least), good=0)
        if self.good + 1 < self.window:
            return replace(self, good=self.good + 1)
        return replace(self, scale=self.scale * 2, good=0)


def moved(weight: float, step: float, *, steps: int, dtype: torch.dtype, master: bool) -> float:
    """A weight after ``steps`` equal steps, read in ``dtype``; with a float32 master copy, or added in ``dtype``.

    >>> moved(1.0, 1e-3, steps=100, dtype=torch.bfloat16, master=False)
    1.0
    >>> round(moved(1.0, 1e-3, steps=100, dtype=torch.bfloat16, master=True), 2)
    1.1
    """
    kept = torch.tensor(weight, dtype=torch.float32 if master else dtype)
    for _ in range(steps):
        kept = kept + torch.tensor(step, dtype=kept.dtype)
    return float(kept.to(dtype))


def smallest(dtype: torch.dtype) -> float:
    """The smallest positive number of this type: gradients below half of it are lost.

    >>> smallest(torch.float16) == 2**-24
    True
    """
    info = torch.finfo(dtype)
    return float(info.tiny * info.eps)
