"""A safetensors file as a stream: the header needs names, shapes and dtypes, then one tensor after the other.

The bytes are those of ``safetensors.torch.save_file``, which wants all tensors at once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from .collectives import standing
from .states import KINDS, order, outline
from .unread import pieces_of


def write(path: Path, state: Mapping[str, Tensor]) -> str:
    """Write a new file, asking for each tensor once, in the order of the file; returns the SHA-256 of its bytes.

    Raises:
        OSError: the file is there already, or cannot be written.
        ValueError: a tensor is not of the shape or dtype that was announced.
    """
    planned, digest = outline(state), hashlib.sha256()
    with open(path, "xb") as file:

        def put(data: bytes | memoryview) -> None:
            with standing("the disk", busy=True):  # gigabytes, perhaps
                digest.update(data)
                file.write(data)

        put(header(planned))
        for name in order(planned):
            x = state[name].detach().cpu().contiguous()
            if (x.shape, x.dtype) != (planned[name].shape, planned[name].dtype):
                raise ValueError(f"{name} must be {_what(planned[name])} as was announced, got {_what(x)}")
            put(x.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def header(planned: Mapping[str, Tensor]) -> bytes:
    """Length, JSON and the blanks that let the first tensor begin at a multiple of 8 bytes.

    >>> header({"w": torch.zeros(2)})[8:].decode()
    '{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}  '
    """
    entries, at = {}, 0
    for name in order(planned):
        x = planned[name]
        end = at + x.numel() * x.element_size()
        entries[name] = {"dtype": KINDS[x.dtype], "shape": list(x.shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(entries, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def hash_tensors(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 over name, dtype, shape and bytes of each tensor, in the order of their names.

    >>> hash_tensors({"a": torch.zeros(2)}) == hash_tensors({"a": torch.zeros(2, 1)})
    False
    """
    digest = hashlib.sha256()
    for name in sorted(tensors):
        x = tensors[name]
        digest.update(json.dumps([name, str(x.dtype), list(x.shape)]).encode())
        for piece in pieces_of(x):
            digest.update(piece.view(torch.uint8).numpy().data)
    return digest.hexdigest()


def hash_module(module: nn.Module) -> str:
    """`hash_tensors` of all parameters and persistent buffers: tells whether a reference is still the same model."""
    return hash_tensors({name: x for name, x in module.state_dict(keep_vars=True).items() if isinstance(x, Tensor)})


def _what(x: Tensor) -> str:
    return f"{x.dtype} {tuple(x.shape)}"
