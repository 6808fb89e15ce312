"""Supervised fine-tuning: the corpus, imitated. What comes out is the first policy and the reference of PPO."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ppo_lab import seeding
from ppo_lab.config import ConfigError
from ppo_lab.config.language import SFTConfig
from ppo_lab.core.schedules import warmup_cosine

from .logprobs import head_of, hidden_logprobs
from .models.build import context_of, random_state
from .tokens import encode_texts, pad_id, pad_rows

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

WARMUP = 0.05  # share of the steps in which the rate rises
BETAS = (0.9, 0.98)  # hundreds of steps, not a hundred thousand: the second moment must follow
CURVE = 100  # points of the loss curve that are kept


def train_sft(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], cfg: SFTConfig, *, seed: int
) -> dict[str, Any]:
    r"""Maximise the likelihood of every text and of the EOS after it, in place.

    A step's loss is :math:`-\sum \log \pi(y_t | y_{<t}) / N` over the N tokens of its texts, whatever their lengths.
    Dropout is on as the model has it. The order of texts and the dropout masks hang on ``seed`` alone.

    Args:
        model: causal; only its trainable parameters move. In eval mode afterwards.
        texts: each ends with one EOS, which is learned like any other token even where it is the pad token too.
        cfg: steps, batch, rate, weight decay. Steps 0 leaves the model as it is.
        seed: keys order and dropout.

    Returns:
        ``loss``: mean nats a token at up to 100 evenly spaced moments; ``loss_first``, ``loss_last``: over the first
        and last tenth; ``tokens``, ``seconds``.

    Raises:
        ConfigError: no texts, or one longer than the model's context.
    """
    started, losses, count = time.perf_counter(), [], 0
    model.eval()
    if cfg.steps:
        step = Imitation(model, tokenizer, texts, cfg, seed=seed)
        model.train()
        with random_state("sft", seed):
            for i in range(cfg.steps):
                share = warmup_cosine(i + 1, total=cfg.steps + 1, warmup=max(1.0, WARMUP * cfg.steps))
                losses.append(step(cfg.rate * share))
        count = step.tokens
        model.eval()
    return _figures(losses, tokens=count, seconds=time.perf_counter() - started)


class Imitation:
    """Imitation one optimizer step at a time: ``step(rate)`` trains on the next batch and returns its loss before.

    What `train_sft` calls with its schedule, and a learning-rate range test with a rising rate.

    Args:
        cfg: batch, weight decay, and ``steps``, the most that can be taken.
    """

    def __init__(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], cfg: SFTConfig, *,
        seed: int,
    ) -> None:  # fmt: skip
        self.model, self.tokens = model, 0
        self._rows = text_rows(model, tokenizer, texts, setting="sft.steps")
        self._fill = pad_id(tokenizer)
        self._trained = [p for p in model.parameters() if p.requires_grad]
        self._optimizer = torch.optim.AdamW(
            self._trained, lr=cfg.rate, betas=BETAS, weight_decay=cfg.weight_decay, fused=True
        )
        self._batches = _batches(len(self._rows), cfg, seed)

    def __call__(self, rate: float) -> Tensor:
        """Mean nats a token of a fresh batch, after which one step at this rate was taken."""
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        tokens, attention = pad_rows([self._rows[i] for i in next(self._batches)], self._fill, side="right")
        loss = token_loss(self.model, tokens, attention)
        loss.backward()
        nn.utils.clip_grad_norm_(self._trained, 1.0)
        self._optimizer.step()
        self._optimizer.zero_grad()
        self.tokens += int(attention[:, 1:].sum())
        return loss.detach()


def token_loss(model: nn.Module, tokens: Tensor, attention: Tensor) -> Tensor:
    """Mean negative log-likelihood, in nats, of all tokens but each row's first; padding has no part in it.

    Args:
        tokens: ``(B, L)``, padded on the right; attention: ``(B, L)`` bool, from lengths.
    """
    predicted = attention[:, 1:]  # from what stands before; padding on the right is seen by padding alone: no mask
    hidden = model.base_model(input_ids=tokens[:, :-1], use_cache=False).last_hidden_state  # type: ignore[operator, union-attr]
    logp, _ = hidden_logprobs(hidden[predicted], head_of(model), tokens[:, 1:][predicted])
    return -logp.mean()


def text_rows(
    model: nn.Module, tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], *, setting: str
) -> list[list[int]]:
    """Ids of every text, closed by EOS, checked against the model's context; ``setting`` is who asks for them."""
    if not texts:
        raise ConfigError(f"{setting} above 0 needs texts to imitate, got none; set corpus.field, or {setting}: 0")
    rows, context = encode_texts(tokenizer, texts, close=True), context_of(model)
    longest = max(range(len(rows)), key=lambda i: len(rows[i]))
    if len(rows[longest]) > context:
        raise ConfigError(
            f"policy.context must hold every text with its EOS, {len(rows[longest])} tokens in text {longest}, got "
            f"{context}; raise it, or cut the texts"
        )
    return rows


def _batches(n: int, cfg: SFTConfig, seed: int) -> Iterator[list[int]]:
    """Rows of each step: epoch after epoch in fresh order, the end of one filled up from the next."""
    queue: list[int] = []
    epoch = 0
    for _ in range(cfg.steps):
        while len(queue) < cfg.batch:
            queue += seeding.permutation(n, "sft", seed, epoch).tolist()
            epoch += 1
        yield queue[: cfg.batch]
        queue = queue[cfg.batch :]


def _figures(losses: Sequence[Tensor], **rest: Any) -> dict[str, Any]:
    curve = [round(float(loss), 6) for loss in losses]
    if not curve:
        return {"loss": [], **rest}
    tenth = max(1, len(curve) // 10)
    kept = dict.fromkeys(round(i * (len(curve) - 1) / (CURVE - 1)) for i in range(CURVE))
    return {
        "loss": [curve[i] for i in kept],
        "loss_first": sum(curve[:tenth]) / tenth,
        "loss_last": sum(curve[-tenth:]) / tenth,
        **rest,
    }
