"""Before and after: the untouched and the trained policy on the same held-out prompts with the same sampling noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ppo_lab import seeding
from ppo_lab.records import take

from .evaluate import judged
from .generate import generate, trim

if TYPE_CHECKING:
    from .train import Run


@dataclass(frozen=True)
class BeforeAfter:
    """Two answers to each prompt, and what was said of them; row i of both shares prompt and noise.

    ``before`` and ``after`` hold ``prompt, response`` (texts) and ``score, length, ref_kl_sum`` and, where the run has
    one, ``gold``, each ``(N,)``. ``ref_kl_sum`` of ``after`` estimates KL(π‖π_ref); of ``before`` it is -KL(π_ref‖π).
    """

    before: dict[str, Any]
    after: dict[str, Any]

    def gain(self, name: str) -> Tensor:
        """After less before, paired, ``(N,)`` float64."""
        return self.after[name].double() - self.before[name].double()


def before_after(run: Run, n: int, *, key: str = "before and after") -> BeforeAfter:
    """``n`` samples from held-out prompts, at the run's temperature, of the reference and of the present policy.

    Prompts repeat, with fresh noise, where there are fewer than ``n``. The noise hangs on the run's seed and ``key``.
    """
    parts, cfg = run.parts, run.config
    held, rows = parts.held_out, torch.arange(n) % len(parts.held_out.prompts)
    prompts = take(held.prompts, rows)
    noise = seeding.uniforms(cfg.seed, key, range(n), cfg.sampling.max_new_tokens)
    reference = run.learner.frozen["reference"].policy  # type: ignore[attr-defined]
    untouched = trim(generate(reference, prompts, noise=noise, **parts.sampling))
    with run.learner.whole() as actor:
        trained = trim(generate(actor.policy, prompts, noise=noise, **parts.sampling))
    return BeforeAfter(*(judged(run.learner, held, answers, cfg) for answers in (untouched, trained)))
