"""Where randomness comes from: every number is drawn from a stream named by what it is for.

A name is a tuple such as ``(seed, "generate", step, row)``; its hash keys a generator, and nothing here touches a
global one. So a draw does not depend on what was drawn before it, on the batch a row sits in or on how many processes
share the work, and a resumed run has nothing to remember but its step. Reward callables written by others may use the
global generators: `rng_state` and `set_rng_state` carry those through a checkpoint.

`set_threads` is here too, since sums of floats depend on it: same seed, other thread count, other run.
"""

from __future__ import annotations

import base64
import hashlib
import json
import operator
import os
import random
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor


def _digest(parts: tuple[int | str, ...], size: int) -> int:
    """``size`` bytes of BLAKE2b over the parts as a JSON list, so that ``("a", "b")`` and ``("ab",)`` differ."""
    for part in parts:
        if isinstance(part, bool) or not (isinstance(part, str) or hasattr(part, "__index__")):
            raise ValueError(f"seeding parts must be whole numbers or strings, got {part!r}; convert it, as int(seed)")
    plain = [part if isinstance(part, str) else operator.index(part) for part in parts]
    return int.from_bytes(hashlib.blake2b(json.dumps(plain).encode(), digest_size=size).digest(), "big")


def key(*parts: int | str) -> int:
    """A 63-bit number that names a stream, the same on every machine and in every Python.

    ``hash()`` would not do: for strings it changes from process to process.

    >>> key(0, "generate", 1)
    2189655688396552454
    >>> key(1) == key("1")
    False
    """
    return _digest(parts, 8) >> 1


def generator(*parts: int | str) -> torch.Generator:
    """A PyTorch CPU generator of its own for this name, as ``torch.randn(3, generator=generator(seed, "init"))``.

    PyTorch's CPU generator looks at the low 32 bits of its seed only. That is plenty for one stream a purpose; where
    millions of streams must not meet, as one a row and step, use `uniforms`, which has 128 bits.

    >>> torch.equal(torch.rand(3, generator=generator(7, "a")), torch.rand(3, generator=generator(7, "a")))
    True
    """
    return torch.Generator().manual_seed(key(*parts))


def _philox(*parts: int | str) -> np.random.Generator:
    """A counter-based generator with a 128-bit key (Philox, Salmon et al. 2011, SC11)."""
    return np.random.Generator(np.random.Philox(key=_digest(parts, 16)))


def uniforms(seed: int, step: int | str, rows: Tensor | range | Iterable[int], steps: int) -> Tensor:
    """Sampling noise: ``u`` in [0, 1), one independent stream a (seed, step, global row).

    A row's numbers depend neither on the other rows asked for nor on ``steps``: a longer request begins with the
    numbers of a shorter one. So text does not depend on batching, on the number of processes or on the response cap.

    Args:
        seed: of the run.
        step: iteration, or a word that names the draw, as "evaluation".
        rows: global row numbers, ``(B,)``.
        steps: T, numbers a row.

    Returns:
        ``(B, T)`` float64 on the CPU.

    >>> torch.equal(uniforms(0, 1, range(4), 6)[2:, :3], uniforms(0, 1, torch.tensor([2, 3]), 3))
    True
    """
    numbers = rows.tolist() if isinstance(rows, Tensor) else list(rows)
    noise = np.empty((len(numbers), steps))
    for i, row in enumerate(numbers):
        noise[i] = _philox("uniforms", seed, step, row).random(steps)
    return torch.from_numpy(noise)


def permutation(n: int, *parts: int | str) -> Tensor:
    """A shuffle of ``0 … n-1`` that belongs to this name, ``(n,)`` int64: epoch 2 of step 5 has its own.

    >>> permutation(5, 0, "epoch", 1).sort().values.tolist()
    [0, 1, 2, 3, 4]
    """
    return torch.from_numpy(_philox("permutation", *parts).permutation(n))


def seed_globals(*parts: int | str) -> None:
    """Key the global generators of Python, NumPy and PyTorch. Our own code draws from none of them; a reward may.

    >>> seed_globals(0); first = random.random(); seed_globals(0); random.random() == first
    True
    """
    random.seed(key(*parts))
    np.random.seed(key(*parts) % 2**32)
    torch.manual_seed(key(*parts))


def rng_state() -> dict[str, Any]:
    """The global generators of Python, NumPy and PyTorch (CPU, and each CUDA device in use), fit for JSON."""
    version, words, gauss = random.getstate()
    name, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() and torch.cuda.is_initialized() else []
    return {
        "python": [version, _encode(np.array(words, dtype=np.uint32)), gauss],
        "numpy": [str(name), _encode(keys), int(position), int(has_gauss), float(cached)],
        "torch": _encode(torch.get_rng_state().numpy()),
        "cuda": [_encode(state.numpy()) for state in cuda],
    }


def set_rng_state(state: dict[str, Any]) -> None:
    """Put the global generators back where `rng_state` found them.

    Generators of CUDA devices that this machine lacks are left out: there is nothing to set.

    Raises:
        ValueError: a part is missing; the state was not made by `rng_state`.
    """
    missing = {"python", "numpy", "torch", "cuda"} - set(state)
    if missing:
        raise ValueError(f"rng state lacks {sorted(missing)}, got {sorted(state)}; pass what rng_state() returned")
    version, words, gauss = state["python"]
    random.setstate((version, tuple(_decode(words, np.uint32).tolist()), gauss))
    name, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((name, _decode(keys, np.uint32), position, has_gauss, cached))
    torch.set_rng_state(torch.from_numpy(_decode(state["torch"], np.uint8)))
    if torch.cuda.is_available():
        for device, text in enumerate(state["cuda"][: torch.cuda.device_count()]):
            torch.cuda.set_rng_state(torch.from_numpy(_decode(text, np.uint8)), device)


def _encode(words: Any) -> str:
    """Little-endian bytes in base64: one line of a JSON file instead of hundreds."""
    return base64.b64encode(words.astype(words.dtype.newbyteorder("<")).tobytes()).decode("ascii")


def _decode(text: str, dtype: type[np.generic]) -> Any:
    return np.frombuffer(base64.b64decode(text), dtype=np.dtype(dtype).newbyteorder("<")).astype(dtype)


def set_threads(n: int) -> int:
    """Compute with ``n`` threads, here and in child processes; returns the number in force before.

    Tiny models run fastest on one. Raising it helps large matrix products, up to the number of idle cores.

    Raises:
        ValueError: ``n`` is below 1.
    """
    if n < 1:
        raise ValueError(f"threads must be at least 1, got {n}; use 1 for tiny models, else the number of idle cores")
    before = torch.get_num_threads()
    torch.set_num_threads(n)
    os.environ["OMP_NUM_THREADS"] = str(n)
    return before
