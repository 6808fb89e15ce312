"""A critic on the policy's lower blocks: the first M are run once for both, from there on each has blocks of its own.

Hidden states stand for embeddings in the upper part, so no architecture is rewritten here. Whether a model bears that
is tried on a few tokens when it is split.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from ppo_lab.config import ConfigError
from ppo_lab.learners.plain import evaluating

from ..generate import positions
from .build import blocks_of

TRIED = ("gpt2", "llama", "mistral", "qwen2")  # split by a test; others must be in memory to be tried
TOLERANCE = 1e-4  # relative, of a float32 forward in two parts


class Nothing(nn.Module):
    """In the place of an embedding that the upper part does not need: adds 0."""

    def forward(self, *_: Tensor, **__: Tensor) -> Tensor:
        """0, of no shape."""
        return torch.zeros(())


def upper_trunk(trunk: nn.Module, shared: int) -> nn.Module:
    """A trainable copy of a trunk without its embeddings and its first ``shared`` blocks, called by ``inputs_embeds``.

    Frozen parameters are shared with the original, as `copy_trainable` does. Raising ``shared``: less memory and time,
    and fewer layers in which the critic can differ from the policy.

    Raises:
        ConfigError: fewer blocks than that, or a model that does not give the same states in two parts.
    """
    blocks = blocks_of(trunk)
    if not 0 < shared < len(blocks):
        raise ConfigError(
            f"critic.shared_layers must lie between 0 (separate) and the {len(blocks)} blocks of the policy (shared), "
            f"got {shared}; half of them is a start"
        )
    inside = {id(m) for block in blocks for m in block.modules()}
    left_out = [m for m in trunk.modules() if isinstance(m, nn.Embedding) and id(m) not in inside]
    memo: dict[int, object] = {id(p): p for p in trunk.parameters() if not p.requires_grad}
    memo |= {id(m): Nothing() for m in (*left_out, *blocks[:shared])}
    upper = copy.deepcopy(trunk, memo)
    kept = blocks_of(upper)
    del kept[:shared]
    upper.config.num_hidden_layers = len(kept)  # type: ignore[union-attr]
    if getattr(upper.config, "layer_types", None):
        upper.config.layer_types = upper.config.layer_types[shared:]  # type: ignore[union-attr, index]
    check_split(trunk, upper, shared)
    return upper


def in_memory(model: nn.Module) -> bool:
    """Whether the weights have been read: until then a parameter is all NaN."""
    return not any(bool(p[(0,) * p.dim()].isnan()) for p in model.parameters())


@contextmanager
def output_of(block: nn.Module) -> Iterator[list[Tensor]]:
    """What a block says inside the ``with``, one entry a call."""
    held: list[Tensor] = []
    handle = block.register_forward_hook(lambda _, __, out: held.append(out[0] if isinstance(out, tuple) else out))
    try:
        yield held
    finally:
        handle.remove()


def check_split(trunk: nn.Module, upper: nn.Module, shared: int) -> None:
    """Both parts one after the other must say what the whole trunk says, padding on the left included."""
    model = getattr(trunk.config, "model_type", type(trunk).__name__)
    if not in_memory(trunk):
        if model in TRIED:
            return
        raise ConfigError(f"critic.trunk partial must be tried on {model} in memory, and its weights are read in "
                          "shards; use separate or shared, or learner.stage 2")  # fmt: skip
    tokens = torch.arange(12).view(2, 6) % trunk.get_input_embeddings().num_embeddings  # type: ignore[operator]
    attention = torch.ones(2, 6, dtype=torch.bool)
    attention[0, :2] = False
    options = dict(attention_mask=attention.long(), position_ids=positions(attention), use_cache=False)
    try:
        with torch.no_grad(), evaluating(trunk), evaluating(upper), output_of(blocks_of(trunk)[shared - 1]) as held:
            whole = trunk(input_ids=tokens, **options).last_hidden_state[attention]
            parts = upper(inputs_embeds=held[0], **options).last_hidden_state[attention]
        gap = float((whole - parts).abs().max() / whole.abs().max())
    except (RuntimeError, TypeError, ValueError, AttributeError, KeyError, IndexError) as error:
        raise ConfigError(f"critic.trunk partial cannot split {model} ({error}); use separate or shared") from error
    if not gap <= TOLERANCE:
        raise ConfigError(f"critic.trunk partial must split {model} without changing what it says, got a difference of "
                          f"{gap:.1g}; use separate or shared")  # fmt: skip
