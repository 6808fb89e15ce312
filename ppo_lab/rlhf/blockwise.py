"""Log-probabilities over a vocabulary as steps of the autograd graph, backward passes written out.

`law_of` reads finished logits once. `blockwise` never has them all: the output layer is computed some words at a time,
with a running log-sum-exp (Milakov & Gimelshein 2018), and once more in the backward pass, where the gradient of a
block of the weight is complete when the block is done.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

LEAST = 256  # words of a block, however many rows there are


def law_of(logits: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
    r"""Log-prob of each token and entropy of each distribution, from one log-softmax. (..., V), (...) -> (...), (...).

    .. math:: \partial \log p_y / \partial x_v = 1_{v=y} - p_v, \qquad
              \partial H / \partial x_v = -p_v (\log p_v + H).

    >>> [round(float(x), 4) for x in law_of(torch.zeros(4), torch.tensor(1))]
    [-1.3863, 1.3863]
    """
    logp, nats = _Law.apply(logits, tokens)
    return logp, nats


class _Law(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        law = logits.log_softmax(-1)
        nats = -law.exp().mul_(_finite(law)).sum(-1)
        ctx.save_for_backward(law, tokens, nats)
        ctx.set_materialize_grads(False)
        return law.gather(-1, tokens[..., None])[..., 0], nats

    @staticmethod
    def backward(ctx: Any, to_logp: Tensor | None, to_nats: Tensor | None) -> Any:
        law, tokens, nats = ctx.saved_tensors
        to_logp = torch.zeros_like(nats) if to_logp is None else to_logp
        return _slope(law, nats, tokens, to_logp, to_nats), None


def _finite(x: Tensor) -> Tensor:
    """Without -inf, which times a probability of 0 would be no number."""
    return x.clamp(min=torch.finfo(x.dtype).min)


def _slope(law: Tensor, nats: Tensor, tokens: Tensor, to_logp: Tensor, to_nats: Tensor | None) -> Tensor:
    """Gradient of the logits."""
    slope = law.exp()
    if to_nats is None:
        slope.mul_(-to_logp[..., None])
    else:
        slope.mul_(_finite(law).add_(nats[..., None]).mul_(to_nats[..., None]).add_(to_logp[..., None]).neg_())
    return slope.scatter_add_(-1, tokens[..., None], to_logp[..., None])


def blockwise(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    tokens: Tensor,
    *,
    factor: float = 1.0,
    cap: float | None = None,
    temperature: float = 1.0,
    suppress: Tensor | None = None,
    words: int,
) -> tuple[Tensor, Tensor]:
    r"""`law_of` the logits :math:`c \tanh(f (hW^\top + b) / c) / \tau`, ``words`` of them a row at a time.

    Where the weight is frozen, :math:`\sum_v p_v W_v` is summed on the way forward, and there is nothing to compute
    twice.

    Args:
        hidden: ``(N, D)``; weight: ``(V, D)``; bias: ``(V,)``; tokens: ``(N,)``.
        factor, cap: f and c of the head; no cap leaves the tanh out.
        temperature: τ > 0. Rising: flatter.
        suppress: words with probability 0.
        words: of a block. Rising: fewer, larger products, and N × words more numbers held.
    """
    banned = torch.zeros(weight.shape[0], dtype=torch.bool, device=hidden.device)
    if suppress is not None:
        banned[suppress] = True
    if torch.is_autocast_enabled(hidden.device.type):
        dtype = torch.get_autocast_dtype(hidden.device.type)
        hidden, weight, bias = hidden.to(dtype), weight.to(dtype), bias if bias is None else bias.to(dtype)
    head = _Head(factor, cap, temperature, banned if bool(banned.any()) else None, max(words, LEAST))
    with torch.autocast(hidden.device.type, enabled=False):
        logp, nats = _Blockwise.apply(hidden, weight, bias, tokens, head)
    return logp, nats


class _Head:
    """From products to tempered logits, a block at a time."""

    def __init__(self, factor: float, cap: float | None, temperature: float, banned: Tensor | None, words: int):
        self.factor, self.cap, self.temperature, self.banned, self.words = factor, cap, temperature, banned, words

    def blocks(self, weight: Tensor) -> list[slice]:
        """Of the vocabulary."""
        return [slice(i, min(i + self.words, len(weight))) for i in range(0, len(weight), self.words)]

    def logits(self, hidden: Tensor, weight: Tensor, bias: Tensor | None, block: slice) -> Tensor:
        """Tempered logits of one block, in float32 or better."""
        x = hidden @ weight[block].T
        x = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
        if bias is not None:
            x.add_(bias[block])
        if self.factor != 1.0:
            x.mul_(self.factor)
        if self.cap is not None:
            x.div_(self.cap).tanh_().mul_(self.cap)
        if self.temperature != 1.0:
            x.div_(self.temperature)
        return x if self.banned is None else x.masked_fill_(self.banned[block], -torch.inf)

    def chain(self, slope: Tensor, x: Tensor, block: slice) -> Tensor:
        """Gradient of the products from that of the tempered logits ``x``."""
        if self.cap is not None:
            slope.mul_(1 - (_finite(x) * (self.temperature / self.cap)).clamp_(-1, 1).square_())
        if self.factor != self.temperature:
            slope.mul_(self.factor / self.temperature)
        return slope if self.banned is None else slope.masked_fill_(self.banned[block], 0)


class _Blockwise(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, tokens: Tensor, head: _Head
    ) -> tuple[Tensor, Tensor]:
        wide = torch.promote_types(hidden.dtype, torch.float32)
        top = torch.full(hidden.shape[:1], torch.finfo(wide).min, dtype=wide, device=hidden.device)
        total, tilt, chosen = torch.zeros_like(top), torch.zeros_like(top), torch.full_like(top, -torch.inf)
        ahead = ctx.needs_input_grad[0] and not any(ctx.needs_input_grad[1:3]) and head.cap is None
        mean = torch.zeros_like(hidden, dtype=wide) if ahead else None  # Σ e^(x - top) W, rescaled as top rises
        for block in head.blocks(weight):
            x = head.logits(hidden, weight, bias, block)
            _pick(chosen, x, tokens, block)
            higher = torch.maximum(top, x.amax(-1))
            shrink, moved = (top - higher).exp(), top - higher
            x.sub_(higher[:, None]).clamp_(min=torch.finfo(wide).min)
            e = x.exp()
            tilt = (tilt + moved * total).mul_(shrink)  # Σ e^(x - top) (x - top)
            total = total.mul_(shrink).add_(e.sum(-1))
            if mean is not None:
                mean.mul_(shrink[:, None]).add_(e.to(weight.dtype) @ weight[block])
            tilt.add_(e.mul_(x).sum(-1))
            top = higher
        sums, nats = top + total.log(), total.log() - tilt / total
        if mean is not None:
            mean.div_(total[:, None])
        ctx.save_for_backward(hidden, weight, bias, tokens, sums, nats, mean)
        ctx.head = head
        ctx.set_materialize_grads(False)
        return chosen - sums, nats

    @staticmethod
    def backward(ctx: Any, to_logp: Tensor | None, to_nats: Tensor | None) -> Any:
        hidden, weight, bias, tokens, sums, nats, mean = ctx.saved_tensors
        head, (of_hidden, of_weight, of_bias) = ctx.head, ctx.needs_input_grad[:3]
        if mean is not None and to_nats is None and to_logp is not None:
            share = to_logp * (head.factor / head.temperature)
            if head.banned is not None:
                share = share.masked_fill(head.banned[tokens], 0)
            return (weight[tokens] - mean).mul_(share[:, None]).to(hidden.dtype), None, None, None, None
        down = torch.zeros_like(hidden, dtype=sums.dtype) if of_hidden else None
        to_weight = torch.empty_like(weight) if of_weight else None
        to_bias = torch.empty_like(bias) if of_bias else None
        for block in head.blocks(weight):
            x = head.logits(hidden, weight, bias, block)
            here = (tokens >= block.start) & (tokens < block.stop)
            place = torch.where(here, tokens - block.start, 0)
            mine = torch.zeros_like(sums) if to_logp is None else to_logp
            slope = _slope(x - sums[:, None], nats, place, mine, to_nats)
            slope.scatter_add_(-1, place[:, None], torch.where(here, 0, -mine)[:, None])  # a word of another block
            slope = head.chain(slope, x, block).to(weight.dtype)
            if down is not None:
                down.add_(slope @ weight[block])
            if to_weight is not None:
                torch.mm(slope.T, hidden, out=to_weight[block])
            if to_bias is not None:
                to_bias[block] = slope.sum(0)
        return down if down is None else down.to(hidden.dtype), to_weight, to_bias, None, None


def _pick(chosen: Tensor, x: Tensor, tokens: Tensor, block: slice) -> None:
    """Logits of the tokens that stand in this block."""
    rows = ((tokens >= block.start) & (tokens < block.stop)).nonzero()[:, 0]
    chosen[rows] = x[rows, tokens[rows] - block.start]
