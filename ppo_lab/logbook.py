"""A run on disk: config, metrics, samples, checkpoints, the best step; cut back to a checkpoint when it resumes.

``config.yaml`` complete settings · ``metrics.jsonl`` one strict JSON object a step · ``samples.jsonl`` answers to
fixed prompts · ``baseline.json`` the evaluation before training · ``best.json`` the best step so far ·
``checkpoints/STEP``. Only rank 0 writes. Trackers get the same numbers besides.
"""

from __future__ import annotations

import errno
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Protocol

import yaml
from torch import Tensor

from ppo_lab import checkpoint, metrics
from ppo_lab.config.base import Config, ConfigError, build, dump, parse_yaml
from ppo_lab.learners.collectives import SharedError, everywhere, once, rank, world
from ppo_lab.learners.states import finish

try:
    import fcntl
except ImportError:  # Windows: nothing is held
    fcntl = None  # type: ignore[assignment]

_HELD: dict[Path, IO[str]] = {}  # folders that this process trains in
LOGS = ("metrics.jsonl", "samples.jsonl")
FREE = {"reward_model.allow_weak_reward_model", "reward_model.threshold", "reward.timeout", "checkpoint.keep",
        "log.trackers"}  # fmt: skip  # settings that change no number of a run, so a resumed one may change them
FREE_SECTION = "learner."  # all of these, nor do they: beyond rounding


def begun(folder: Path) -> bool:
    """Whether a folder holds anything of a run that could be lost; a start that failed leaves its config.yaml alone."""
    return (folder / "config.yaml").is_file() and any(
        (folder / name).exists() for name in (*LOGS, "baseline.json", "models", "checkpoints")
    )


def hold(folder: Path) -> None:
    """From now on this process alone trains in the folder. The system lets go where a process ends, however it ends.

    Raises:
        ConfigError: another process trains in it.
    """
    if fcntl is None or folder.resolve() in _HELD:
        return
    file = open(folder / ".lock", "a", encoding="utf-8")
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):  # else a file system without locks
            file.close()
            raise ConfigError(
                f"folder must be of one process at a time, got {folder}, in which another one trains; wait for it "
                "(a notebook lets go after run.close()), or choose another --folder"
            ) from error
    _HELD[folder.resolve()] = file


class LogError(RuntimeError):
    """A line of the log could not be written; what was written before stands."""


class Saves(Protocol):
    """What `Logbook.saving_on_error` needs of a run."""

    def save(self) -> None:
        """Write a checkpoint of the last finished step."""
        ...


class Logbook:
    """The folder of one run. `open` it, append to it, save into it."""

    def __init__(self, folder: Path, *, keep: int, trackers: tuple[str, ...] = ()):
        self.folder, self.keep, self.writes = folder, keep, rank() == 0
        self.best: dict[str, float] | None = self._json("best.json")
        self.trackers = _trackers(trackers, folder) if self.writes else []

    @classmethod
    def open(cls, folder: Path, config: Config, *, resume: bool, keep: int, trackers: tuple[str, ...]) -> Logbook:
        """Start a folder, or go on in one.

        Raises:
            ConfigError: a new run in a folder that holds one, a resumed run without one or with another config, a
                folder that cannot be written, or one in which another process trains.
        """
        once(lambda: cls._begin(folder, config, resume=resume))
        return cls(folder, keep=keep, trackers=trackers)

    @staticmethod
    def _begin(folder: Path, config: Config, *, resume: bool) -> None:
        saved = folder / "config.yaml"
        if resume and not saved.exists():
            raise ConfigError(f"folder must hold a run to resume, got {folder} without config.yaml; leave out --resume")
        if not resume and begun(folder):
            raise ConfigError(
                f"folder must be new, got {folder}, which holds a run; add --resume to go on with it, choose another "
                "--folder, or delete it"
            )
        if resume:
            _same_config(saved, config)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            hold(folder)
            _replace(saved, dump(config))
        except OSError as error:
            raise ConfigError(f"folder must be writable, got {folder} ({error}); choose another --folder") from error

    def resume_from(self) -> tuple[Mapping[str, Tensor], dict[str, Any]] | None:
        """Tensors, to be read as they are wanted, and state of the newest checkpoint; None where there is none.

        Rank 0 has checked every byte, and the logs were cut back to it.
        """
        newest = once(self._newest_sound)
        loaded = None if newest is None else checkpoint.stored(newest, sound=True)
        step = 0 if loaded is None else int(loaded[1]["step"])
        if self.writes:
            for name in LOGS:
                metrics.truncate(self.folder / name, -1 if loaded is None else step)
            if loaded is None:
                (self.folder / "baseline.json").unlink(missing_ok=True)
        self.best = None if loaded is None else loaded[1]["best"]
        if self.writes:
            self._write_best()
        return loaded

    def _newest_sound(self) -> Path | None:
        newest = checkpoint.latest(self.folder)
        if newest is not None:
            checkpoint.stored(newest)
        return newest

    def log(self, row: Mapping[str, Any]) -> None:
        """Append one step to metrics.jsonl, and tell the trackers its numbers."""
        if not self.writes:
            return
        self._append("metrics.jsonl", [row])
        numbers = {k: v for k, v in row.items() if isinstance(v, (int, float)) and k != "step"}
        for tracker in self.trackers:
            tracker.log(numbers, step=row["step"])

    def samples(self, step: int, rows: Iterable[Mapping[str, Any]]) -> None:
        """Append answers to the fixed prompts."""
        if self.writes:
            self._append("samples.jsonl", [{"step": step, **row} for row in rows])

    def note_baseline(self, row: Mapping[str, Any]) -> None:
        """The evaluation of the untouched policy."""
        if self.writes:
            _replace(self.folder / "baseline.json", json.dumps(metrics.encode(row), indent=1))

    def has_baseline(self) -> bool:
        """Whether the untouched policy was evaluated; the same answer on every rank."""
        return once((self.folder / "baseline.json").exists)

    def note_best(self, step: int, objective: float) -> bool:
        """Remember the step if its held-out objective is the highest so far; True if it is. NaN is never."""
        if not objective > (-math.inf if self.best is None else self.best["eval_objective"]):
            return False
        self.best = {"step": step, "eval_objective": objective}
        if self.writes:
            self._write_best()
        return True

    def save(self, step: int, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """A checkpoint; the best step's one stays besides the newest. Rank 0 writes what all ranks gather.

        Raises:
            CheckpointError: it could not be written; in several processes a `SharedError` of all of them says so.
        """
        everywhere(lambda: self._save(step, tensors, state))

    def _save(self, step: int, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        try:
            if self.writes:
                protect = [] if self.best is None else [int(self.best["step"])]
                state = {"step": step, "best": self.best, **state}
                checkpoint.save(self.folder, step, tensors, state, keep=self.keep, protect=protect)
        finally:
            finish(tensors)  # whoever writes nothing, or could not go on, takes part all the same

    @contextmanager
    def saving_on_error(self, run: Saves) -> Iterator[None]:
        """Nothing already computed is lost: a failure between updates leaves a checkpoint of the last finished step.

        In several processes it takes all ranks to write one, so the failure has to be one of all: a `SharedError`.
        """
        try:
            yield
        except (Exception, KeyboardInterrupt) as error:
            if world() > 1 and not isinstance(error, SharedError):  # the others know nothing of it
                error.add_note(f"The last checkpoint in {self.folder}, if there is one, is whole; use --resume.")
                raise
            try:
                run.save()
                error.add_note(f"A checkpoint of the last finished step is in {self.folder}; resume with --resume.")
            except Exception as second:
                error.add_note(f"No checkpoint of the last finished step could be written: {second}")
            raise

    def close(self) -> None:
        """Flush the trackers, let go of the folder."""
        held = _HELD.pop(self.folder.resolve(), None)
        if held is not None:
            held.close()
        for tracker in self.trackers:
            tracker.finish()
        self.trackers = []

    def _append(self, name: str, rows: list[Mapping[str, Any]]) -> None:
        try:
            with open(self.folder / name, "a", encoding="utf-8") as file:
                for row in rows:
                    metrics.write_line(file, row)
        except OSError as error:
            raise LogError(
                f"{self.folder / name} must be writable, got {error.strerror or error}; free some disk, then resume"
            ) from error

    def _write_best(self) -> None:
        if self.best is None:
            (self.folder / "best.json").unlink(missing_ok=True)
        else:
            _replace(self.folder / "best.json", json.dumps(metrics.encode(self.best)))

    def _json(self, name: str) -> Any:
        path = self.folder / name
        return metrics.decode(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None


def _replace(path: Path, text: str) -> None:
    """Write under another name, then rename: the file is whole or not there."""
    temporary = path.with_name(f".{path.name}.tmp")
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def _same_config(saved: Path, config: Config) -> None:
    given = build(type(config), parse_yaml(saved.read_text(encoding="utf-8"), where=str(saved)))  # of an older version,
    before, now = yaml.safe_load(dump(given)), yaml.safe_load(dump(config))  # perhaps: with today's defaults
    names = {n for n in _flat(before).keys() | _flat(now).keys() if n not in FREE and not n.startswith(FREE_SECTION)}
    changed = sorted(k for k in names if _flat(before).get(k) != _flat(now).get(k))
    if changed:
        name = changed[0]
        raise ConfigError(
            f"{name} must be {_flat(before).get(name)!r} as in {saved}, got {_flat(now).get(name)!r}"
            + (f" (also different: {', '.join(changed[1:])})" if changed[1:] else "")
            + "; a resumed run keeps its config: drop the change, or start a new --folder"
        )


def _flat(data: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(data, dict):
        return {prefix[:-1]: data}
    return {k: v for key, inner in data.items() for k, v in _flat(inner, f"{prefix}{key}.").items()}


def _trackers(names: tuple[str, ...], folder: Path) -> list[Any]:
    """accelerate's trackers by name, started."""
    if not names:
        return []
    from accelerate.tracking import LOGGER_TYPE_TO_CLASS

    started = []
    for name in names:
        known = {str(key): cls for key, cls in LOGGER_TYPE_TO_CLASS.items()}
        if name not in known:
            raise ConfigError(f"log.trackers must be among {', '.join(sorted(known))}, got {name!r}")
        cls = known[name]
        try:
            arguments = {"logging_dir": str(folder)} if cls.requires_logging_directory else {}
            tracker = cls(run_name="tracker", **arguments)
            tracker.start()
        except ImportError as error:
            raise ConfigError(f"log.trackers {name} needs its package ({error}); pip install {name}") from error
        started.append(tracker)
    return started
