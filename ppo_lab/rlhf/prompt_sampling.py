r"""Which prompts come next: epoch after epoch, or more often where they are long, hard or uncertain.

Prompts are drawn without repetition within a step, with chances that follow a standard score z of what was last seen:

.. math:: w_i = \epsilon + (1 - \epsilon)\, e^{\kappa z_i} / \overline{e^{\kappa z}}

==============  =================================================================================================
`length`        z of the prompt's tokens
`difficulty`    z of minus its running score
`uncertainty`   z of its running disagreement: of the ensemble where there is one, else |score - V(prompt)|
==============  =================================================================================================

A prompt that was never seen has z = 0. Prompts of the same text share one record. The held-out prompts are never
weighed, so that an evaluation still speaks of the prompts as they come; the training scores in the log do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ppo_lab import seeding
from ppo_lab.config import ConfigError
from ppo_lab.config.language import SamplingConfig
from ppo_lab.core.masking import standardize
from ppo_lab.records import TextRollout

MEMORY = 0.5  # weight of the past in a running score
MOST_Z = 3.0  # no prompt counts as further out than this


class PromptOrder:
    """Draws the rows of each step, and remembers what they brought; the same on every rank.

    Args:
        cfg: ``order`` and its strength and floor.
        seed: keys the draws, with the step; nothing else does, so a resumed run draws the same.
        prompts: their texts, one a row.
        lengths: their tokens, (n,).

    Raises:
        ConfigError: fewer prompts than a step needs, where they are drawn without repetition.
    """

    def __init__(self, cfg: SamplingConfig, seed: int, prompts: Sequence[str], lengths: Tensor):
        self.cfg, self.seed = cfg, seed
        number = {text: i for i, text in enumerate(dict.fromkeys(prompts))}
        self.record = torch.tensor([number[text] for text in prompts], dtype=torch.long)
        self.lengths = lengths.double()
        self.score, self.doubt = (torch.zeros(len(number), dtype=torch.float64) for _ in range(2))
        self.seen = torch.zeros(len(number), dtype=torch.bool)
        if cfg.order != "epochs" and cfg.prompts > len(prompts):
            raise ConfigError(
                f"sampling.prompts must not exceed the {len(prompts)} prompts of the corpus under sampling.order "
                f"{cfg.order}, got {cfg.prompts}; lower it, or use epochs"
            )

    def rows(self, step: int) -> Tensor:
        """The corpus rows of one step, (prompts,)."""
        n, cfg = len(self.record), self.cfg
        if cfg.order == "epochs":
            places = range(step * cfg.prompts, (step + 1) * cfg.prompts)
            orders = {e: seeding.permutation(n, self.seed, "prompts", e) for e in {p // n for p in places}}
            return torch.stack([orders[p // n][p % n] for p in places])
        noise = torch.rand(n, generator=seeding.generator(self.seed, "weighted prompts", step), dtype=torch.float64)
        keys = self.weights().log() - (-noise.clamp(min=1e-300).log()).log()  # Gumbel: the top k are k weighted draws
        return keys.topk(cfg.prompts).indices

    def weights(self) -> Tensor:
        """The chance of each row relative to the mean, (n,); mean 1."""
        cfg = self.cfg
        if cfg.order == "length":
            z = standardize(self.lengths)
        else:
            z = self._standing(-self.score if cfg.order == "difficulty" else self.doubt)[self.record]
        tilt = (cfg.order_strength * z.clamp(-MOST_Z, MOST_Z)).exp()
        return cfg.order_floor + (1 - cfg.order_floor) * tilt / tilt.mean()

    def learn(self, rollout: TextRollout) -> None:
        """Remember what the answers of a whole step brought, all ranks' rows together."""
        if self.cfg.order in ("epochs", "length"):
            return
        doubt = rollout.score_spread
        if doubt is None:
            doubt = (rollout.score - rollout.value[:, 0]).abs()
        where, place = self.record[rollout.responses.index.cpu()].unique(return_inverse=True)
        count = torch.zeros(len(where), dtype=torch.float64).index_add(0, place, torch.ones(len(place)).double())
        for kept, found in ((self.score, rollout.score), (self.doubt, doubt)):
            mean = torch.zeros(len(where), dtype=torch.float64).index_add(0, place, found.cpu().double()) / count
            kept[where] = torch.where(self.seen[where], MEMORY * kept[where] + (1 - MEMORY) * mean, mean)
        self.seen[where] = True

    def state(self) -> dict[str, Any]:
        """What is remembered, as plain data; nothing of what was not seen."""
        where = self.seen.nonzero().flatten()
        return {"seen": where.tolist(), "score": self.score[where].tolist(), "doubt": self.doubt[where].tolist()}

    def load(self, state: dict[str, Any]) -> None:
        """What `state` gave."""
        where = torch.tensor(state["seen"], dtype=torch.long)
        for kept, name in ((self.score, "score"), (self.doubt, "doubt")):
            kept.zero_()
            kept[where] = torch.tensor(state[name], dtype=torch.float64)
        self.seen.zero_()
        self.seen[where] = True

    def _standing(self, x: Tensor) -> Tensor:
        """z of each record among those that were seen; 0 for the others, and for all while fewer than two were."""
        z = torch.zeros_like(x)
        if int(self.seen.sum()) > 1:
            z[self.seen] = standardize(x[self.seen])
        return z
