"""Folders that are whole or not there: written beside their place, described by a manifest, renamed into it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp

MANIFEST = "manifest.json"


class FetchError(RuntimeError):
    """Something could not be had, or is not what it should be. The message ends with what to do."""


def cache_root() -> Path:
    """``$PPO_LAB_CACHE`` where it is set, else ``~/.cache/ppo_lab``."""
    return Path(os.environ.get("PPO_LAB_CACHE") or "~/.cache/ppo_lab").expanduser()


def sha256_of(path: Path) -> str:
    """Checksum of a file's bytes, as ``sha256sum`` prints it."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def weights_sha256(path: Path) -> str:
    """Checksum of the tensors in a safetensors file: name, dtype, shape and bytes of each, in order of names.

    Unlike the file's own checksum it does not move when a library writes another header around the same numbers.
    Format: 8 bytes of header length (little-endian), a JSON header, the tensors' bytes.
    """
    digest = hashlib.sha256()
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
        for name in sorted(header.keys() - {"__metadata__"}):
            entry = header[name]
            start, end = entry["data_offsets"]
            file.seek(8 + size + start)
            digest.update(f"{name} {entry['dtype']} {entry['shape']}\n".encode())
            digest.update(file.read(end - start))
    return digest.hexdigest()


def expect(what: str, got: str, expected: str, fix: str) -> None:
    """Two checksums that must agree."""
    if got != expected:
        raise FetchError(f"{what}: expected sha256 {expected}, got {got}. {fix}")


def seal(folder: Path, facts: Mapping[str, object]) -> None:
    """Write the manifest: ``facts``, every file with its size and checksum, and the checksum of that index."""
    files = {
        path.relative_to(folder).as_posix(): {"bytes": path.stat().st_size, "sha256": sha256_of(path)}
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != MANIFEST
    }
    manifest = {**facts, "files": files, "index_sha256": _index_sha256(files)}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


def verify(folder: Path) -> dict[str, object]:
    """The manifest of a sealed folder, after every file was read and found as it was sealed.

    Raises `FetchError` naming the file, what was expected, what was found, and the command that mends it.
    """
    fix = f"The cached copy was changed or cut short; fix: ppo-lab fetch {folder.name} --force"
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        files, index = manifest["files"], manifest["index_sha256"]
        expect(f"{folder / MANIFEST} (its index)", _index_sha256(files), index, fix)
        for name, entry in files.items():
            path = folder / name
            if not path.is_file():
                raise FetchError(f"{path}: expected a file of {entry['bytes']:,} bytes, got none. {fix}")
            if path.stat().st_size != entry["bytes"]:
                raise FetchError(f"{path}: expected {entry['bytes']:,} bytes, got {path.stat().st_size:,}. {fix}")
            expect(str(path), sha256_of(path), entry["sha256"], fix)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise FetchError(f"{folder / MANIFEST}: expected a whole manifest, got {error!r}. {fix}") from error
    return manifest


def _index_sha256(files: Mapping[str, Mapping[str, object]]) -> str:
    lines = (f"{entry['sha256']} {entry['bytes']} {name}\n" for name, entry in sorted(files.items()))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


@contextmanager
def replacing(target: Path) -> Iterator[tuple[Path, Path]]:
    """Two empty folders on the target's disk, ``work`` and ``result``; the result becomes the target if all went well.

    Otherwise the target stays as it was. Whatever a killed run left behind is removed first: the caller holds the lock.
    """
    for leftover in target.parent.glob(f".{target.name}.part-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    part = Path(mkdtemp(prefix=f".{target.name}.part-", dir=target.parent))
    work, result = part / "work", part / "result"
    try:
        work.mkdir()
        result.mkdir()
        yield work, result
        if target.exists():
            target.rename(part / "old")
        result.rename(target)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def folder_bytes(folder: Path) -> int:
    """Bytes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
