"""PPO-ptx: the corpus beside the reward (Ouyang et al. 2022, InstructGPT, eq. 2).

The objective of an optimizer step is that of PPO plus γ times the mean log-likelihood of some texts of the corpus, as
in SFT: at temperature 1, nothing suppressed, every token but the first counted. InstructGPT mixes in pre-training
texts; here they are those the policy was fine-tuned on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ppo_lab import seeding
from ppo_lab.config.language import RLHFConfig
from ppo_lab.core.masking import select, step_weights
from ppo_lab.learners import Learner
from ppo_lab.learners.collectives import rounds
from ppo_lab.update import Beside

from .corpus import Corpus
from .sft import text_rows
from .tokens import pad_id, pad_rows


@dataclass(frozen=True)
class PretrainingMix:
    """Texts of the corpus as ids, and how many of them stand beside each minibatch, with which weight."""

    rows: list[list[int]]
    fill: int  # what pads
    coef: float  # γ
    batch: int
    micro: int | None  # rows in one forward
    seed: int

    def beside(self, step: int, *, steps: int) -> Beside:
        """The second loss of `ppo_update` in this PPO step, which has at most ``steps`` optimizer steps."""
        return lambda learner, n: self.accumulate(learner, step * steps + n)

    def accumulate(self, learner: Learner, number: int) -> float:
        r"""Add the gradient of :math:`-\gamma \frac{1}{N} \sum_t \log \pi(x_t | x_{<t})` over the N tokens of a batch.

        Weights come from the whole batch, so micro-batches and ranks change nothing, and every rank runs as many
        forwards as the others. Rising γ: nearer to the corpus, less reward.

        Returns:
            The loss over all ranks before γ, nats a token.
        """
        tokens, attention = pad_rows([self.rows[i] for i in self.chosen(number)], self.fill, side="right")
        mask = attention[:, 1:]
        weight, mine = step_weights(mask, "token_mean", dtype=torch.float64), 0.0
        for rows in rounds(len(tokens), world=learner.world, rank=learner.rank, micro=self.micro or len(tokens)):
            empty = rows.start >= rows.stop  # look at row 0, count nothing
            few = slice(0, 1) if empty else rows
            loss = likelihood_loss(learner, tokens[few], attention[few], weight[few] * (not empty))
            learner.accumulate(self.coef * loss)
            mine += float(loss.detach())
        return learner.total(mine)

    def chosen(self, number: int) -> list[int]:
        """Texts of the n-th minibatch of a run, epoch after epoch in an order of the seed: nothing to remember."""
        n, places = len(self.rows), range(number * self.batch, (number + 1) * self.batch)
        orders = {e: seeding.permutation(n, self.seed, "ptx", e) for e in {p // n for p in places}}
        return [int(orders[p // n][p % n]) for p in places]


def likelihood_loss(learner: Learner, tokens: Tensor, attention: Tensor, weight: Tensor) -> Tensor:
    r""":math:`-\sum_t w_t \log \pi(x_t | x_{<t})`, nats.

    Args:
        tokens, attention: ``(B, L)``, padded on the right. weight: ``(B, L - 1)``, of every token but the first.
    """
    seen = learner.forward(tokens=tokens, attention=attention, response=tokens[:, 1:], policy_only=True)
    logp = seen["logp"]
    return -(select(logp, attention[:, 1:].to(logp.device)) * weight.to(logp)).sum()


def mix_of(config: RLHFConfig, corpus: Corpus, policy: nn.Module, tokenizer: Any) -> PretrainingMix | None:
    """The mix that the config asks for; None where ``ppo.ptx_coef`` is 0.

    Raises:
        ConfigError: a corpus without texts, or a text longer than the policy's context.
    """
    cfg = config.ppo
    if cfg.ptx_coef == 0:
        return None
    rows = text_rows(policy, tokenizer, corpus.train_texts, setting="ppo.ptx_coef")
    return PretrainingMix(rows, pad_id(tokenizer), cfg.ptx_coef, cfg.ptx_batch, cfg.micro_batch, config.seed)
