"""What a forward keeps for the backward pass, and what sampling keeps: activations, logits, the key-value cache.

The items are those that autograd saves for transformers' decoders. Counted on live models of many families by
`measure.saved_bytes`; a test holds the two together.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from ppo_lab.rlhf.logprobs import CHUNK_LOGITS
from ppo_lab.scale.memory.shape import Shape

LOGIT_KEPT = 4  # one log-softmax in float32
SIZE = {"fp32": 4, "bf16": 2, "fp16": 2}  # bytes of a number


@dataclass(frozen=True, slots=True)
class Item:
    """One thing that a block keeps: bytes a token, and whether tensor parallelism divides it."""

    name: str
    bytes: float
    split: bool


def size_of(precision: str) -> int:
    """Bytes of a number in this precision."""
    if precision not in SIZE:
        raise ValueError(f"precision must be one of {', '.join(SIZE)}, got {precision!r}; bf16 is usual")
    return SIZE[precision]


def block_items(shape: Shape, *, length: int, precision: str = "bf16") -> tuple[Item, ...]:
    """What one block keeps for one token of a sequence of ``length``, item by item.

    In half precision RMSNorm works in float32 and keeps its upcast input. Fused attention keeps queries, keys, values
    and its output (keys and values repeated to all heads), one float32 a head, and the padding mask as numbers; the
    other kind keeps the scores, and their softmax in float32.
    """
    e, q, f = size_of(precision), shape.q_width, shape.inner
    pieces = shape.pieces or (4 if shape.gated else 5)
    scores = shape.heads * length * (e if e == 4 else 4 + e)
    return (
        Item("norms: what they read and write", shape.norms * norm_bytes(shape, precision=precision), False),
        Item("queries, keys, values", e * (3 * q + (q + 2 * shape.kv_width if shape.turned else 0)), True),
        Item("their norms", (4 + e) * (q + shape.kv_width) if shape.head_norms else 0, True),
        Item("attention output and its sums" if shape.fused else "attention output and scores",
             e * q + (4 * shape.heads if shape.fused else scores), True),
        Item("padding mask", e * length if shape.fused else 0, False),
        Item("feed-forward: before, inside and after its activation", e * pieces * f, True),
    )  # fmt: skip


def norm_bytes(shape: Shape, *, precision: str) -> float:
    """What one norm keeps for one token: input and output, and for RMSNorm what is between (its input in float32)."""
    e = size_of(precision)
    if shape.norm:
        return shape.norm[e == 2] * shape.width
    if shape.gated:
        return (4 + e + e) * shape.width + 4
    return 2 * e * shape.width + 2 * e


def block_bytes(shape: Shape, *, length: int, precision: str = "bf16", tensor: int = 1) -> float:
    """Bytes that one block keeps for one token."""
    items = block_items(shape, length=length, precision=precision)
    return sum(item.bytes / (tensor if item.split else 1) for item in items)


def selective_bytes(shape: Shape, *, precision: str = "bf16", tensor: int = 1) -> float:
    """What a selectively recomputed block keeps for one token: its input and what each of its linear layers computes.

    Tensor parallelism divides all of these but the input and the two results of the width, which ranks add up.
    """
    e, d = size_of(precision), shape.width
    return e * (d + sum(out if out == d else out / tensor for _, out in shape.matrices))


def kept_bytes(blocks: int, block: float, entry: float, *, every: int) -> float:
    r"""Peak bytes a token when every k-th block is recomputed:
    :math:`r \cdot entry + (N - r) \cdot block + block`, with :math:`r = \lceil N/k \rceil` recomputed blocks.

    A recomputed block keeps its input alone (``entry``; selectively recomputed, `selective_bytes`); while its gradient
    is taken one of them is whole again. Raising ``every``: fewer blocks recomputed, more memory, less time.

    Args:
        blocks: N. ``block``: bytes of one whole block; ``entry``: bytes of what is kept of a recomputed one.
        every: k; blocks 0, k, 2k, … are recomputed.

    Source: Chen et al. 2016, sec. 4.1, with one block a segment.

    >>> [kept_bytes(4, 34.0, 2.0, every=k) for k in (1, 2, 4)]
    [42.0, 106.0, 138.0]
    """
    if blocks < 1 or every < 1:
        raise ValueError(f"blocks and every must be at least 1, got {blocks} and {every}; 1 recomputes every block")
    again = ceil(blocks / every)
    return again * entry + (blocks - again) * block + block


def activation_bytes(
    shape: Shape,
    *,
    rows: int,
    length: int,
    precision: str = "bf16",
    recompute_every: int | None = None,
    recompute: str = "block",
    layers: int | None = None,
    tensor: int = 1,
    peak: bool = True,
) -> float:
    r"""Bytes that the trunk keeps for the backward pass of ``rows`` sequences.

    Without recomputing, tokens × layers × block; else tokens × `kept_bytes`. With ``peak=False`` the block that is
    whole again in the backward pass is left out: what is there when the forward ends.

    Args:
        rows, length: of the micro-batch.
        recompute_every: None: nothing is recomputed; 1: every block. ``recompute``: "block" or "selective".
        layers: on this device; all of them if left out.
        tensor: T of tensor parallelism; what each rank keeps whole (norms, residual) is not divided.

    Source: Korthikanti et al. 2022, sec. 4.2, for T.
    """
    if rows < 0 or length < 1 or tensor < 1 or (recompute_every is not None and recompute_every < 1):
        got = f"rows {rows}, length {length}, tensor {tensor}, recompute_every {recompute_every}"
        raise ValueError(f"rows must be at least 0, the others at least 1, got {got}; None recomputes nothing")
    blocks, tokens = layers if layers is not None else shape.layers, rows * length
    one = block_bytes(shape, length=length, precision=precision, tensor=tensor)
    kept = blocks * one
    if recompute_every and blocks:
        entry: float = size_of(precision) * shape.width
        if recompute == "selective":
            entry = selective_bytes(shape, precision=precision, tensor=tensor)
        kept = kept_bytes(blocks, one, entry, every=recompute_every) - (0 if peak else one)
    # of the final norm's result only the response goes on
    last = norm_bytes(shape, precision=precision) - size_of(precision) * shape.width
    return tokens * (kept + last)


def logits_bytes(shape: Shape, *, rows: int, steps: int, tensor: int = 1) -> float:
    """Bytes that log-probabilities and entropies of ``rows × steps`` tokens take while they are computed.

    `hidden_logprobs` never holds more than a chunk of logits; of each it keeps `LOGIT_KEPT` bytes besides its own 4.
    """
    tokens = min(rows * steps, max(1, CHUNK_LOGITS // shape.vocabulary))
    return tokens * shape.vocabulary * (LOGIT_KEPT + 4) / tensor


def cache_bytes(shape: Shape, *, rows: int, length: int, precision: str = "bf16", tensor: int = 1) -> float:
    r"""Keys and values of every token in every layer: :math:`2 \cdot N \cdot kv \cdot rows \cdot length \cdot e`.

    >>> cache_bytes(Shape(layers=32, width=4096, heads=32, kv_heads=32, inner=1, vocabulary=1), rows=1, length=1)
    524288.0
    """
    return 2 * shape.layers * shape.kv_width * rows * length * size_of(precision) / tensor
