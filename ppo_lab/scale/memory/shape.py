"""Sizes of a transformer, and how many weights they make. Exact for Llama-like models and GPT-2 (a test counts)."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Sizes that memory depends on.

    ``kv_heads`` below ``heads``: grouped queries, whose keys and values are narrower. ``gated``: a feed-forward part of
    three matrices (Llama) instead of two with biases (GPT-2). ``positions``: rows of a learned position table; 0 where
    positions are rotated in. ``tied``: the output layer is the input embedding.
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

    def __post_init__(self) -> None:
        for name in ("layers", "width", "heads", "kv_heads", "inner", "vocabulary"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}; see SHAPES for real models")
        if self.width % self.heads or self.heads % self.kv_heads:
            raise ValueError(
                f"heads must divide width and kv_heads must divide heads, got width {self.width}, heads {self.heads}, "
                f"kv_heads {self.kv_heads}; a head is usually 64 or 128 wide"
            )

    @property
    def kv_width(self) -> int:
        """Numbers in the keys of one token, over all heads."""
        return self.width // self.heads * self.kv_heads

    @property
    def matrices(self) -> tuple[tuple[int, int], ...]:
        """(in, out) of each matrix product of a block: what LoRA adapts."""
        d, kv, f = self.width, self.kv_width, self.inner
        attention = ((d, d), (d, kv), (d, kv), (d, d)) if self.gated else ((d, 3 * d), (d, d))
        return (*attention, *(((d, f), (d, f), (f, d)) if self.gated else ((d, f), (f, d))))

    @property
    def block(self) -> int:
        """Weights of one block: its matrices, biases and norms."""
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
        norm = self.width if self.gated else 2 * self.width
        return self.embedding + self.positions * self.width + self.layers * self.block + norm

    @property
    def parameters(self) -> int:
        """Weights of the language model, the output layer included.

        >>> SHAPES["7B"].parameters, SHAPES["70B"].parameters
        (6738415616, 68976648192)
        """
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


def shape_of(config: Any) -> Shape:
    """The shape behind a Hugging Face config (Llama-like or GPT-2), or behind a model that has one.

    Raises:
        ValueError: a family whose blocks are built otherwise.
    """
    config = getattr(config, "config", config)
    if config.model_type == "gpt2":
        d = config.n_embd
        return Shape(layers=config.n_layer, width=d, heads=config.n_head, kv_heads=config.n_head,
                     inner=config.n_inner or 4 * d, vocabulary=config.vocab_size, gated=False,
                     tied=config.tie_word_embeddings, positions=config.n_positions)  # fmt: skip
    if config.model_type in ("llama", "mistral"):
        return Shape(layers=config.num_hidden_layers, width=config.hidden_size, heads=config.num_attention_heads,
                     kv_heads=config.num_key_value_heads, inner=config.intermediate_size,
                     vocabulary=config.vocab_size, tied=config.tie_word_embeddings)  # fmt: skip
    raise ValueError(f"model_type must be llama, mistral or gpt2, got {config.model_type!r}; write its Shape by hand")
