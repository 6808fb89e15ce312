"""The files a run leaves, as far as they are there: a running or interrupted run is read like a finished one."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ppo_lab import metrics
from ppo_lab.config import ConfigError, parse_yaml

MODELS = ("sft", "reward_model")  # in the order in which they are made


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLog:
    """What a run wrote down. ``None`` and empty mean: not there (yet)."""

    name: str
    rows: list[dict[str, Any]]  # metrics.jsonl
    samples: list[dict[str, Any]]  # samples.jsonl
    baseline: dict[str, Any] | None  # evaluation of the untouched SFT policy
    best: dict[str, Any] | None
    config: dict[str, Any]
    config_text: str
    made: dict[str, dict[str, Any]]  # what was measured while SFT and reward model were made
    remarks: tuple[str, ...]  # files that could not be read

    @property
    def step(self) -> int:
        """The last step in the log, 0 before the first."""
        return int(self.rows[-1]["step"]) if self.rows else 0

    @property
    def planned(self) -> int | None:
        """Steps the config asks for; those of a control run are rollouts."""
        config = self.config
        if isinstance(config.get("env"), dict):
            sizes = (config.get("total_steps"), config["env"].get("count"), config.get("rollout"))
            total, count, rollout = (size if isinstance(size, int) else 0 for size in sizes)
            return total // (count * rollout) if count * rollout else None
        steps = config.get("steps")
        return steps if isinstance(steps, int) else None

    @property
    def state(self) -> str:
        """How far the run has come, in words."""
        if self.planned is None:
            return f"{self.step} steps"
        left = "" if self.step >= self.planned else ", unfinished"
        return f"{self.step} of {self.planned} steps{left}"


def read_run(folder: str | Path) -> RunLog:
    """Read a run folder; one torn last line in a log is a run being written, and is left out.

    Raises `ValueError` where there is no metrics.jsonl, or where a log is broken in the middle.
    """
    folder = Path(folder)
    log = folder / "metrics.jsonl"
    if not log.is_file():
        fix = "start it with ppo-lab train" if folder.is_dir() else "give the folder of a run, as runs/demo"
        raise ValueError(f"run must be a folder that holds metrics.jsonl, got {str(folder)!r} without one; {fix}")
    remarks: list[str] = []
    text = _attempt(folder / "config.yaml", str, remarks) or ""
    return RunLog(
        name=folder.resolve().name,
        rows=metrics.read(log),
        samples=metrics.read(path) if (path := folder / "samples.jsonl").is_file() else [],
        baseline=_attempt(folder / "baseline.json", _json, remarks),
        best=_attempt(folder / "best.json", _json, remarks),
        config=_attempt(folder / "config.yaml", _yaml, remarks) or {},
        config_text=text,
        made={name: figures for name in MODELS if (figures := _attempt(folder / "models" / name / "quality.json",
                                                                       _json, remarks))},
        remarks=tuple(dict.fromkeys(remarks)),
    )


def _attempt(path: Path, parse: Any, remarks: list[str]) -> Any:
    """The parsed file; None where it is missing, or broken, which is remarked upon."""
    try:
        return parse(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, ConfigError) as error:
        remarks.append(f"{path.name} could not be read: {str(error).splitlines()[0]}")
        return None


def _json(text: str) -> dict[str, Any]:
    value = metrics.decode(json.loads(text))
    if not isinstance(value, dict):
        raise ValueError(f"expected a JSON object, got {type(value).__name__}")
    return {name: inner for name, inner in value.items() if inner is not None}


def _yaml(text: str) -> dict[str, Any]:
    value = parse_yaml(text, where="config.yaml")
    if not isinstance(value, dict):
        raise ValueError(f"expected settings, got {type(value).__name__}")
    return value
