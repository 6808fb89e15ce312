"""The log on disk: one strict JSON object a line, append-only, cut back on resume.

JSON knows no NaN, so numbers that are not finite travel as the strings ``"nan"``, ``"inf"`` and ``"-inf"``, and any
parser can read the file. A process killed while writing leaves at most one torn line, the last.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn, TextIO

NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
TEXT = frozenset({"prompt", "response"})  # fields of samples.jsonl whose "nan" is a word


def encode(value: Any) -> Any:
    """The value with every number that is not finite as a string.

    >>> encode({"kl": float("inf"), "counts": (1, 2)})
    {'kl': 'inf', 'counts': [1, 2]}
    """
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if isinstance(value, Mapping):
        return {key: encode(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [encode(inner) for inner in value]
    return value


def decode(value: Any) -> Any:
    """The inverse of `encode`; texts of a sample stay texts.

    >>> decode({"kl": "-inf", "response": "nan"})
    {'kl': -inf, 'response': 'nan'}
    """
    if isinstance(value, str):
        return NOT_FINITE.get(value, value)
    if isinstance(value, dict):
        return {key: inner if key in TEXT else decode(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [decode(inner) for inner in value]
    return value


def write_line(file: TextIO, row: Mapping[str, Any]) -> None:
    """Append one row to an open log, and push it out of the process at once.

    Raises `ValueError`, before anything is written, for a value that is no JSON (a tensor: log ``x.item()``).
    """
    try:
        line = json.dumps(encode(row), allow_nan=False)  # ASCII: readable under any encoding
    except TypeError as error:
        name, kind = next((n, type(v).__name__) for n, v in row.items() if not _plain(v))
        raise ValueError(f"log field {name} must be plain JSON, got {kind}; log a number, as {name}.item()") from error
    file.write(line + "\n")
    file.flush()


def read(path: str | Path) -> list[dict[str, Any]]:
    """All rows of a log, numbers decoded; a torn last line is dropped, as of a run being written.

    Raises `FileNotFoundError` for a missing file and `ValueError` naming the line for a broken one in the middle.
    """
    return [decode(row) for _, row in _rows(Path(path))]


def truncate(path: str | Path, step: int) -> None:
    """Drop the rows after ``step`` and a torn last line. A missing log stays missing.

    Rows that stay keep their bytes. The new file replaces the old one in one move, so a kill leaves either, whole.
    """
    path = Path(path)
    if not path.exists():
        return
    kept = b"".join(line + b"\n" for line, row in _rows(path) if _step_of(path, row) <= step)
    if len(kept) != path.stat().st_size:
        temporary = path.with_name(f".{path.name}.tmp")
        with open(temporary, "wb") as file:
            file.write(kept)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)


def _rows(path: Path) -> Iterator[tuple[bytes, dict[str, Any]]]:
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line, parse_constant=_refuse)
        except ValueError as error:  # also of bytes that are not UTF-8
            if number == len(lines):  # no newline behind it: torn
                return
            raise ValueError(f"{path} line {number} must be one strict JSON object, got {_cut(line)} ({error}); "
                             "restore the file, or delete that line") from error
        if not isinstance(row, dict):
            raise ValueError(f"{path} line {number} must be a JSON object, got {_cut(line)}; delete that line")
        yield line, row


def _plain(value: Any) -> bool:
    try:
        json.dumps(encode(value))
    except TypeError:
        return False
    return True


def _refuse(token: str) -> NoReturn:
    raise ValueError(f"{token} is not JSON, numbers that are not finite are written as strings")


def _step_of(path: Path, row: dict[str, Any]) -> int:
    if not isinstance(row.get("step"), int):
        raise ValueError(f"{path}: every row must have a whole number as step, got {row.get('step')!r}; is this a log?")
    return row["step"]


def _cut(line: bytes) -> str:
    text = line.decode("utf-8", "replace")
    return repr(text if len(text) <= 60 else text[:57] + "...")
