"""Checkpoints that survive a power cut: ``checkpoints/000012/`` with ``weights.safetensors`` and ``state.json``.

Both are written under a temporary name, flushed to the disk and only then renamed, so a folder under its final name is
complete. ``state.json`` comes last and holds the SHA-256 of the weights and of itself. Nothing is ever unpickled.
Tensors are asked for and written one at a time, and read as they are wanted.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from ppo_lab.learners import tensorfile
from ppo_lab.learners.collectives import standing
from ppo_lab.learners.states import KINDS, Stored, outline
from ppo_lab.learners.tensorfile import hash_module as hash_module
from ppo_lab.learners.tensorfile import hash_tensors as hash_tensors
from ppo_lab.metrics.log import NOT_FINITE, decode, encode

SCHEMA = 1
WEIGHTS, STATE = "weights.safetensors", "state.json"
PARTIAL, ASIDE = ".partial", ".aside"  # being written or removed · replaced by a save of the same step


class CheckpointError(ValueError):
    """A checkpoint cannot be written or trusted; the message says which file, why and what to do."""


def save(
    folder: Path,
    step: int,
    tensors: Mapping[str, Tensor],
    state: Mapping[str, Any],
    *,
    keep: int,
    protect: Collection[int] = (),
) -> Path:
    """Write ``folder/checkpoints/STEP`` (six digits), then remove all but the newest ``keep`` and the protected steps.

    Until the last rename, earlier checkpoints stay as they are, whatever happens: ``kill -9``, Ctrl-C, a full disk.
    What an interrupted save left behind is cleared by the next one. Any process may read, but only one may write.

    Args:
        folder: the run's folder.
        step: 0 or more.
        tensors: by name; every one with at least one element. Each is asked for once, in the order of
            `learners.states.order`, and forgotten when it is written.
        state: what JSON can hold without loss: dicts with string keys, lists (tuples come back as lists), strings,
            whole and floating numbers (nan and inf too), bools, None.
        keep: how many to keep, at least 1. Higher: more disk, more places to go back to.
        protect: steps never removed, such as the best one.

    Returns:
        The folder written.

    Raises:
        CheckpointError: ``state`` or ``tensors`` cannot be written, or the disk is full.
    """
    if keep < 1 or step < 0:
        raise CheckpointError(f"checkpoint needs keep >= 1 and step >= 0, got {keep} and {step}; keep 2 to be safe")
    _check_plain(state, "state")
    for name, x in outline(tensors).items():
        if x.numel() == 0:
            raise CheckpointError(f"tensor {name} must not be empty, got {tuple(x.shape)}; gather the shards first")
        if x.dtype not in KINDS:
            raise CheckpointError(f"tensor {name} must be of a dtype that safetensors knows, got {x.dtype}; convert it")
    home = folder / "checkpoints"
    home.mkdir(parents=True, exist_ok=True)
    with standing("removing what a kill left", busy=True):
        _recover(home)
    final = home / f"{step:06d}"
    try:
        _write(final.with_suffix(PARTIAL), step, tensors, encode(state))
        _swap_in(final)
    except _disk_errors() as error:
        raise _disk_message(final, tensors, error) from error
    finally:
        shutil.rmtree(final.with_suffix(PARTIAL), ignore_errors=True)
    with standing("removing checkpoints", busy=True):
        for old in set(steps(folder)[:-keep]) - {step, *protect}:
            _remove(_at(folder, old))
    return final


def steps(folder: Path) -> list[int]:
    """Steps that have a checkpoint, ascending."""
    home = folder / "checkpoints"
    names = [p.name for p in home.iterdir()] if home.is_dir() else []
    return sorted({int(name.removesuffix(ASIDE)) for name in names if re.fullmatch(rf"\d{{6,}}({ASIDE})?", name)})


def latest(folder: Path) -> Path | None:
    """The newest checkpoint of a run, to be given to `load`; ``None`` where there is none."""
    found = steps(folder)
    return _at(folder, found[-1]) if found else None


def load(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """All tensors (on the CPU) and state of a checkpoint, after every byte was checked against its hash.

    Raises:
        CheckpointError: as `stored`.
    """
    tensors, state = stored(path)
    return dict(tensors), state


def stored(path: Path, *, sound: bool = False) -> tuple[Stored, dict[str, Any]]:
    """Tensors, to be read from the file as they are wanted, and state of a checkpoint.

    Args:
        path: the checkpoint's folder.
        sound: every byte was checked a moment ago, by another process perhaps; do not read them all again.

    Raises:
        CheckpointError: a file is missing, torn, changed, of another schema or step; names the file, what it should be,
            what it is, and the newest earlier checkpoint that is sound.
    """
    try:
        state = _checked_state(path)
        return _checked_tensors(path, None if sound else state["weights_sha256"]), decode(state["state"])
    except CheckpointError as error:
        earlier = _sound_before(path)
        fix = f"delete {path} to resume from {earlier}" if earlier else "no earlier checkpoint is sound, start again"
        raise CheckpointError(f"{error}; {fix}") from error.__cause__


def _write(folder: Path, step: int, tensors: Mapping[str, Tensor], state: dict[str, Any]) -> None:
    if shutil.disk_usage(folder.parent).free < _size(tensors):  # known before all ranks gather for it
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    folder.mkdir()
    digest = tensorfile.write(folder / WEIGHTS, tensors)
    _flush(folder / WEIGHTS)
    head = {"schema": SCHEMA, "step": step, "weights_sha256": digest, "state_sha256": _json_sha256(state)}
    with open(folder / STATE, "x", encoding="utf-8") as file:
        json.dump(head | {"state": state}, file, indent=1, allow_nan=False)
        file.flush()
        os.fsync(file.fileno())
    _flush(folder)


def _swap_in(final: Path) -> None:
    """Give the finished folder its name; one that had it before steps aside until then."""
    if final.exists():
        os.rename(final, final.with_suffix(ASIDE))
    os.rename(final.with_suffix(PARTIAL), final)
    _flush(final.parent)
    shutil.rmtree(final.with_suffix(ASIDE), ignore_errors=True)


def _recover(home: Path) -> None:
    """Undo what a killed `save` left: half-written or half-removed folders go, one that stood aside comes back."""
    for left in home.glob(f"*{PARTIAL}"):
        shutil.rmtree(left, ignore_errors=True)
    for left in home.glob(f"*{ASIDE}"):
        if left.with_suffix("").exists():
            shutil.rmtree(left, ignore_errors=True)
        else:
            os.rename(left, left.with_suffix(""))


def _remove(path: Path) -> None:
    """All at once under its own name, file by file under a temporary one."""
    gone = path.with_suffix(PARTIAL)
    os.rename(path, gone)
    shutil.rmtree(gone, ignore_errors=True)


def _flush(path: Path) -> None:
    """Ask the disk to keep it; folders can be asked on POSIX only."""
    if path.is_dir() and os.name != "posix":
        return
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        with standing("the disk", busy=True):  # of a large file it takes minutes
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _json_sha256(state: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()


def _disk_errors() -> tuple[type[Exception], ...]:
    from safetensors import SafetensorError

    return OSError, SafetensorError


def _size(tensors: Mapping[str, Tensor]) -> int:
    return sum(x.numel() * x.element_size() for x in outline(tensors).values())


def _disk_message(final: Path, tensors: Mapping[str, Tensor], error: Exception) -> CheckpointError:
    shutil.rmtree(final.with_suffix(PARTIAL), ignore_errors=True)
    needed, free = _size(tensors) / 1e6, shutil.disk_usage(final.parent).free / 1e6
    full = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or "os error 28" in str(error)
    what = "the disk is full" if full else str(error)
    return CheckpointError(
        f"{final} could not be written: {what} (needs {needed:.1f} MB, {free:.1f} MB free); make room or keep fewer "
        f"checkpoints, then resume from {_sound_before(final) or 'the start'}"
    )


def _check_plain(value: Any, where: str) -> None:
    """Refuse what would come back from strict JSON as something else."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            if not isinstance(name, str):
                raise CheckpointError(f"{where} must have string keys, got {name!r}; write str(key)")
            _check_plain(inner, f"{where}.{name}")
    elif isinstance(value, list | tuple):
        for i, inner in enumerate(value):
            _check_plain(inner, f"{where}[{i}]")
    elif isinstance(value, str) and value in NOT_FINITE:
        raise CheckpointError(f"{where} must not be the string {value!r}, which stands for the number; rename it")
    elif value is not None and type(value) not in (str, int, float, bool):
        kind = type(value).__name__
        raise CheckpointError(f"{where} must be plain data, got {kind}; use .item(), .tolist() or tensors=")


def _checked_state(path: Path) -> dict[str, Any]:
    file = path / STATE
    if not file.is_file():
        raise CheckpointError(f"{file} is missing")
    try:
        whole = json.loads(file.read_bytes())
    except ValueError as error:
        raise CheckpointError(f"{file} is torn or not JSON ({error})") from error
    needed = ("schema", "step", "weights_sha256", "state_sha256", "state")
    if not isinstance(whole, dict) or any(name not in whole for name in needed):
        raise CheckpointError(f"{file} must hold {', '.join(needed)}")
    if whole["schema"] != SCHEMA:
        raise CheckpointError(f"{file} must be of schema {SCHEMA}, got {whole['schema']!r}, of another ppo_lab")
    if (step := _step(path)) is not None and step != whole["step"]:
        raise CheckpointError(f"{file} must be of step {step}, as its folder says, got {whole['step']!r}")
    if _json_sha256(whole["state"]) != whole["state_sha256"]:
        raise CheckpointError(f"{file} was changed: its state does not match its SHA-256 {whole['state_sha256']}")
    return whole


def _checked_tensors(path: Path, digest: str | None) -> Stored:
    file = path / WEIGHTS
    if not file.is_file():
        raise CheckpointError(f"{file} is missing")
    if digest is not None and (found := _sha256(file)) != digest:
        raise CheckpointError(f"{file} is torn or was changed: SHA-256 must be {digest}, got {found}")
    try:
        return Stored(file)
    except _disk_errors() as error:
        raise CheckpointError(f"{file} cannot be read ({error})") from error


def _sound(path: Path) -> bool:
    try:
        return _sha256(path / WEIGHTS) == _checked_state(path)["weights_sha256"]
    except (CheckpointError, OSError):
        return False


def _at(folder: Path, step: int) -> Path:
    """Where this step's checkpoint lies: under its name, or aside if a kill came between the two renames."""
    path = folder / "checkpoints" / f"{step:06d}"
    return path if path.exists() or not path.with_suffix(ASIDE).exists() else path.with_suffix(ASIDE)


def _step(path: Path) -> int | None:
    """The step that a folder's name says; ``None`` for a name of the user's own."""
    return int(path.stem) if path.stem.isdigit() else None


def _sound_before(path: Path) -> Path | None:
    """The newest sound checkpoint of the same run before this one."""
    run, step = path.parent.parent, _step(path)
    earlier = [n for n in steps(run) if step is not None and n < step]
    return next((p for n in reversed(earlier) if _sound(p := _at(run, n))), None)
