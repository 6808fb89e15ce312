"""Log-probabilities of sampled tokens: from logits, or in chunks from hidden states so that no (B, T, V) copy lives.

Everything that compares policies (ratio, KL, entropy) takes its log-probs here, under one temperature and one set of
suppressed tokens, so the rollout, the old, the new and the reference policy are the same kind of distribution.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from ppo_lab.core.distributions import categorical_logp
from ppo_lab.learners.sharding import is_sharded

from .blockwise import blockwise, law_of

CHUNK_LOGITS = 1 << 22  # logits held at a time: 16 MiB in float32


def tempered(logits: Tensor, *, temperature: float = 1.0, suppress: Tensor | None = None) -> Tensor:
    r"""The logits that are really sampled from, :math:`x / \tau`, with suppressed tokens at -inf, in float32 or better.

    >>> tempered(torch.tensor([2.0, 1.0]), temperature=0.5)
    tensor([4., 2.])
    """
    if logits.dtype in (torch.float16, torch.bfloat16):
        logits = logits.float()
    if temperature != 1.0:
        logits = logits / temperature
    if suppress is not None and suppress.numel():
        logits = logits.index_fill(-1, suppress, -torch.inf)
    return logits


def token_logprobs(
    logits: Tensor, tokens: Tensor, *, temperature: float = 1.0, suppress: Tensor | None = None
) -> Tensor:
    r""":math:`\log \pi(y_t) = x_{y_t}/\tau - \log\sum_v e^{x_v/\tau}`.

    Args:
        logits: ``(..., V)`` that predict ``tokens``; already shifted.
        tokens: ``(...)`` int64.
        temperature: τ > 0, the sampler's. Rising: flatter, log-probs draw together.
        suppress: ids that the sampler can never choose.

    Returns:
        ``(...)`` nats.

    >>> token_logprobs(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]), temperature=0.5)
    tensor([-0.1429])
    """
    return categorical_logp(tempered(logits, temperature=temperature, suppress=suppress), tokens)


class Head:
    """Hidden state to logits: the output layer, and the scale or soft cap that the architecture applies after it."""

    def __init__(self, output: nn.Module, *, scale: float = 1.0, cap: float | None = None):
        self.output, self.scale, self.cap = output, scale, cap

    def __call__(self, hidden: Tensor) -> Tensor:
        """Logits ``(..., V)`` of hidden states ``(..., D)``."""
        return self.finish(self.output(hidden))

    def finish(self, logits: Tensor) -> Tensor:
        """What comes after the output layer."""
        logits = logits if self.scale == 1.0 else logits * self.scale
        return logits if self.cap is None else torch.tanh(logits / self.cap) * self.cap


def head_of(model: nn.Module) -> Head:
    """The head of a causal language model.

    Raises:
        ValueError: the model has no output embeddings, so it is no language model.
    """
    output = model.get_output_embeddings()  # type: ignore[operator]
    if output is None:
        raise ValueError(f"policy must be a causal language model, got {type(model).__name__} without an output layer")
    config = model.config
    scale = getattr(config, "logit_scale", None) or 1.0 / (getattr(config, "logits_scaling", None) or 1.0)
    return Head(output, scale=scale, cap=getattr(config, "final_logit_softcapping", None))


def hidden_logprobs(
    hidden: Tensor,
    head: Callable[[Tensor], Tensor],
    tokens: Tensor,
    *,
    temperature: float = 1.0,
    suppress: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Log-prob of each token and entropy of each distribution, from hidden states.

    Never more than one chunk of logits exists. Where a chunk is less than all of them, the output layer is computed
    some words at a time and again in the backward pass (`blockwise`); one that is sharded, or no plain linear layer,
    some rows at a time.

    Args:
        hidden: ``(..., D)`` state from which the token is predicted.
        head: hidden state to logits, from `head_of`.
        tokens: ``(...)`` int64.

    Returns:
        ``(...)`` log-probs and ``(...)`` entropies, nats, float32 or better.
    """
    flat, targets = hidden.reshape(-1, hidden.shape[-1]), tokens.reshape(-1)

    def judge(logits: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
        return law_of(tempered(logits, temperature=temperature, suppress=suppress), wanted)

    def chunk(rows: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
        return judge(head(rows), wanted)

    size = max(1, CHUNK_LOGITS // vocabulary(head, flat))
    if isinstance(head, Head) and is_sharded(head.output):
        logp, nats = _in_one_call(head, flat, targets, judge, size)
    elif len(flat) <= size:
        logp, nats = chunk(flat, targets)
    elif isinstance(head, Head) and type(head.output) is nn.Linear:
        words = CHUNK_LOGITS // (8 * len(flat))  # an eighth stays in the cache
        logp, nats = blockwise(flat, head.output.weight, head.output.bias, targets, factor=head.scale, cap=head.cap,
                               temperature=temperature, suppress=suppress, words=words)  # fmt: skip
    else:
        pairs = zip(flat.split(size), targets.split(size), strict=True)
        saved = torch.is_grad_enabled() and hidden.requires_grad
        done = [checkpoint(chunk, h, t, use_reentrant=False) if saved else chunk(h, t) for h, t in pairs]
        logp, nats = (torch.cat(parts) for parts in zip(*done, strict=True))
    return logp.reshape(tokens.shape), nats.reshape(tokens.shape)


Judge = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


class _Chunked(torch.autograd.Function):
    """The chunks as one step of the graph, so that the weight has one gradient and is asked for once each way."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, judge: Judge, size: int
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(hidden, weight, bias, targets)
        ctx.judge, ctx.size = judge, size
        parts = [judge(functional.linear(h, weight, bias), t)
                 for h, t in zip(hidden.split(size), targets.split(size), strict=True)]  # fmt: skip
        logp, nats = (torch.cat(x) for x in zip(*parts, strict=True))
        return logp, nats

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        hidden, weight, bias, targets = ctx.saved_tensors
        size, asked = ctx.size, ctx.needs_input_grad[:3]
        sums: list[Tensor | None] = [None, None, None]
        pieces = []
        for h, t, *g in zip(*(x.split(size) for x in (hidden, targets, *gradients)), strict=True):
            with torch.enable_grad():
                leaves: list[Any] = [None if x is None else x.detach().requires_grad_() for x in (h, weight, bias)]
                said = ctx.judge(functional.linear(*leaves), t)
            wanted = [i for i in range(3) if asked[i]]
            found = torch.autograd.grad(said, [leaves[i] for i in wanted], g)
            for i, x in zip(wanted, found, strict=True):
                if i == 0:
                    pieces.append(x)
                else:
                    sums[i] = x if sums[i] is None else sums[i].add_(x)  # type: ignore[union-attr]
        return torch.cat(pieces) if pieces else None, sums[1], sums[2], None, None, None


def _in_one_call(head: Head, flat: Tensor, targets: Tensor, judge: Judge, size: int) -> tuple[Tensor, Tensor]:
    """All chunks inside one call of the output layer: its hooks gather the weights once, on every rank alike."""
    output: Any = head.output
    output.forward = lambda hidden: _Chunked.apply(
        hidden, output.weight, output.bias, targets, lambda logits, t: judge(head.finish(logits), t), size
    )
    try:
        return output(flat)  # type: ignore[no-any-return]
    finally:
        del output.forward


def vocabulary(head: Callable[[Tensor], Tensor], flat: Tensor) -> int:
    """How many logits one row makes."""
    if isinstance(head, Head) and type(head.output) is nn.Linear:
        return head.output.out_features
    with torch.no_grad():
        return head(flat[:1]).shape[-1]
