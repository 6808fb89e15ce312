"""Log-probabilities of sampled tokens: from logits, or in chunks from hidden states so that no (B, T, V) copy lives.

Everything that compares policies (ratio, KL, entropy) takes its log-probs here, under one temperature and one set of
suppressed tokens, so the rollout, the old, the new and the reference policy are the same kind of distribution.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ppo_lab.core.distributions import categorical_logp, entropy
from ppo_lab.learners.collectives import most
from ppo_lab.learners.sharding import checkpoint_sharded

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


def head_of(model: nn.Module) -> Callable[[Tensor], Tensor]:
    """Hidden state to logits, with the scale or soft cap that the architecture applies after its output layer.

    Raises:
        ValueError: the model has no output embeddings, so it is no language model.
    """
    output = model.get_output_embeddings()  # type: ignore[operator]
    if output is None:
        raise ValueError(f"policy must be a causal language model, got {type(model).__name__} without an output layer")
    config = model.config
    scale = getattr(config, "logit_scale", None) or 1.0 / (getattr(config, "logits_scaling", None) or 1.0)
    cap = getattr(config, "final_logit_softcapping", None)

    def head(hidden: Tensor) -> Tensor:
        logits = output(hidden)
        logits = logits if scale == 1.0 else logits * scale
        return logits if cap is None else torch.tanh(logits / cap) * cap

    return head


def hidden_logprobs(
    hidden: Tensor,
    head: Callable[[Tensor], Tensor],
    tokens: Tensor,
    *,
    temperature: float = 1.0,
    suppress: Tensor | None = None,
    sharded: bool = False,
) -> tuple[Tensor, Tensor]:
    """Log-prob of each token and entropy of each distribution, from hidden states.

    Rows go through the output layer a chunk at a time; with gradients on, a chunk's logits are recomputed in the
    backward pass instead of kept. Never more than one chunk of logits exists.

    Args:
        hidden: ``(..., D)`` state from which the token is predicted.
        head: hidden state to logits, from `head_of`.
        tokens: ``(...)`` int64.
        sharded: the output layer is under ZeRO-3; then chunks are recomputed in another way.

    Returns:
        ``(...)`` log-probs and ``(...)`` entropies, nats, float32 or better.
    """
    flat, targets = hidden.reshape(-1, hidden.shape[-1]), tokens.reshape(-1)

    def chunk(rows: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
        logits = tempered(head(rows), temperature=temperature, suppress=suppress)
        return categorical_logp(logits, wanted), entropy(logits)

    size = max(1, CHUNK_LOGITS // vocabulary(head, flat))
    chunks, largest = -(-len(flat) // size), most(len(flat))  # every rank calls the output layer equally often
    spare, spare_targets = ((x[:0],) * (-(-largest // size) - chunks) for x in (flat, targets))
    if largest <= size:
        logp, nats = chunk(flat, targets)
    else:
        pairs = zip(flat.split(size) + spare, targets.split(size) + spare_targets, strict=True)
        saved = torch.is_grad_enabled() and hidden.requires_grad
        again = checkpoint_sharded if sharded else partial(checkpoint, use_reentrant=False)
        done = [again(chunk, h, t) if saved else chunk(h, t) for h, t in pairs]
        logp, nats = (torch.cat(parts) for parts in zip(*done, strict=True))
    return logp.reshape(tokens.shape), nats.reshape(tokens.shape)


def vocabulary(head: Callable[[Tensor], Tensor], flat: Tensor) -> int:
    """How many logits one row makes."""
    with torch.no_grad():
        return head(flat[:1]).shape[-1]
