"""Sizes of a transformer, and how many weights they make: by formula for Llama and GPT-2, else as `reading` counted."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches


@dataclass(frozen=True, slots=True)
class Weights:
    """Counted on a model: of its largest block, of all below the heads, of all; (in, out) of a block's matrices."""

    block: int
    trunk: int
    parameters: int
    matrices: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Sizes that memory depends on.

    ``kv_heads`` below ``heads``: grouped queries, whose keys and values are narrower. ``gated``: a feed-forward part of
    three matrices (Llama) instead of two with biases (GPT-2). ``positions``: rows of a learned position table; 0 where
    positions are rotated in. ``tied``: the output layer is the input embedding. The others are left out for Llama and
    GPT-2: `shape_of` reads them.
    """

    layers: int
    width: int
    heads: int
    kv_heads: int
    inner: int  # width of the feed-forward part
    vocabulary: int
    gated: bool = True
    tied: bool = False
    positions: int = 0
    head: int | None = None  # width of one head, where it is not width / heads
    norm: tuple[float, float] | None = None  # bytes a number that a norm keeps, (float32, half); None: RMS where gated
    norms: int = 2  # of a block, over its width
    head_norms: bool = False  # queries and keys are normed too
    pieces: int | None = None  # how often a block keeps ``inner`` numbers; None: 4 where it is gated, else 5
    fused: bool = True  # attention keeps no matrix of scores
    turned: bool = False  # one matrix for queries, keys and values, which are kept before and after rotation
    weights: Weights | None = None

    def __post_init__(self) -> None:
        for name in ("layers", "width", "heads", "kv_heads", "inner", "vocabulary"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}; see SHAPES for real models")
        if (self.head is None and self.width % self.heads) or self.heads % self.kv_heads:
            raise ValueError(
                f"heads must divide width and kv_heads must divide heads, got width {self.width}, heads {self.heads}, "
                f"kv_heads {self.kv_heads}; a head is usually 64 or 128 wide"
            )

    @property
    def q_width(self) -> int:
        """Numbers in the queries of one token, over all heads."""
        return (self.head or self.width // self.heads) * self.heads

    @property
    def kv_width(self) -> int:
        """Numbers in the keys of one token, over all heads."""
        return self.q_width // self.heads * self.kv_heads

    @property
    def matrices(self) -> tuple[tuple[int, int], ...]:
        """(in, out) of each matrix product of a block: what LoRA adapts."""
        if self.weights:
            return self.weights.matrices
        d, kv, f = self.width, self.kv_width, self.inner
        attention = ((d, d), (d, kv), (d, kv), (d, d)) if self.gated else ((d, 3 * d), (d, d))
        return (*attention, *(((d, f), (d, f), (f, d)) if self.gated else ((d, f), (f, d))))

    @property
    def block(self) -> int:
        """Weights of one block: its matrices, biases and norms."""
        if self.weights:
            return self.weights.block
        biases = 0 if self.gated else sum(out for _, out in self.matrices)
        norms = 2 * self.width if self.gated else 4 * self.width
        return sum(a * b for a, b in self.matrices) + biases + norms

    @property
    def embedding(self) -> int:
        """Weights of the token embedding."""
        return self.vocabulary * self.width

    @property
    def trunk(self) -> int:
        """Weights below the heads: what a critic or a reward model has, its one-number head left out.

        >>> SHAPES["7B"].trunk
        6607343616
        """
        if self.weights:
            return self.weights.trunk
        norm = self.width if self.gated else 2 * self.width
        return self.embedding + self.positions * self.width + self.layers * self.block + norm

    @property
    def parameters(self) -> int:
        """Weights of the language model, the output layer included.

        >>> SHAPES["7B"].parameters, SHAPES["70B"].parameters
        (6738415616, 68976648192)
        """
        if self.weights:
            return self.weights.parameters
        return self.trunk + (0 if self.tied else self.embedding)

    def adapters(self, rank: int) -> int:
        """Weights of LoRA adapters of this rank on every matrix of every block (Hu et al. 2022, sec. 4.1).

        >>> SHAPES["7B"].adapters(16) / SHAPES["7B"].parameters < 0.01
        True
        """
        return self.layers * rank * sum(a + b for a, b in self.matrices)


def _llama(layers: int, width: int, heads: int, kv_heads: int, inner: int, vocabulary: int) -> Shape:
    return Shape(layers=layers, width=width, heads=heads, kv_heads=kv_heads, inner=inner, vocabulary=vocabulary)


SHAPES: dict[str, Shape] = {  # Touvron et al. 2023, Llama 2: table 1 and the released configs
    "7B": _llama(32, 4096, 32, 32, 11008, 32000),
    "13B": _llama(40, 5120, 40, 40, 13824, 32000),
    "70B": _llama(80, 8192, 64, 8, 28672, 32000),
    "135M": Shape(layers=30, width=576, heads=9, kv_heads=3, inner=1536, vocabulary=49152, tied=True),  # SmolLM2
}


def named(name: str) -> Shape:
    """The shape of that name; `ValueError` with the nearest name otherwise."""
    if name in SHAPES:
        return SHAPES[name]
    near = get_close_matches(name.upper(), SHAPES, n=1, cutoff=0.3) or [", ".join(SHAPES)]
    raise ValueError(f"model {name!r} is no known shape; did you mean {near[0]}? A folder with config.json works too")
