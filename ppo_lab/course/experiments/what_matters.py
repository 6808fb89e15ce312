"""Notebook 07: one detail of the implementation changed at a time, everything else and the seeds kept.

A `Switch` is a setting of the real trainer or a fault planted in it. Control runs are on CartPole and, where a detail
shows better there, on Pendulum; what concerns words runs from the shipped language models.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ppo_lab import faults
from ppo_lab.config import ControlConfig, RLHFConfig, load_config
from ppo_lab.config.base import build, override
from ppo_lab.metrics import encode

from .trained import TASKS, Trained, signal, summary, train

BASE = "as usual"


@dataclass(frozen=True, slots=True)
class Switch:
    """One detail turned."""

    name: str
    point: str  # row of the course map
    changes: tuple[str, ...] = ()  # overrides
    fault: str | None = None  # planted for the whole run
    against: str = BASE  # the switch that it differs from in one thing


CARTPOLE = (
    Switch(BASE, "C14"),
    Switch("advantages as they are", "C1", ("ppo.standardize=none",)),
    Switch("value clip 0.2", "C2", ("ppo.value_clip=0.2",)),
    Switch("constant rate", "C5", ("optimizer.schedule=constant",)),
    Switch("λ 0", "C6", ("ppo.lam=0",)),
    Switch("λ 1", "C6", ("ppo.lam=1",)),
    Switch("1 epoch", "C7", ("ppo.epochs=1",)),
    Switch("16 epochs", "C7", ("ppo.epochs=16",)),
    Switch("quotient of probabilities", "C8", fault="ratio_from_probabilities"),
    Switch("entropy bonus 0.01", "C11", ("ppo.entropy_coef=0.01",)),
    Switch("entropy bonus 0.1", "C11", ("ppo.entropy_coef=0.1",)),
    Switch("no gradient clipping", "C12", ("optimizer.max_norm=null",)),
    Switch("16 epochs, stop at KL 0.01", "C13", ("ppo.epochs=16", "ppo.target_kl=0.01"), against="16 epochs"),
    Switch("ε 0.1", "A12", ("ppo.clip=0.1",)),
    Switch("ε 0.3", "A12", ("ppo.clip=0.3",)),
)
PENDULUM = (Switch(BASE, "C14"), Switch("rewards as they are", "C3", ("normalize.reward=false",)))
TEXT = (
    Switch(BASE, "C14"),
    Switch("padding is read", "C4", fault="padding_attended"),
    Switch("padding is counted", "C9", fault="padding_counted"),
    Switch("reference off by one token", "C10", fault="reference_shifted"),
    Switch("temperature 0.7", "C10", ("sampling.temperature=0.7",)),
    Switch("reference without the temperature", "C10", ("sampling.temperature=0.7",), "reference_temperature_lost",
           against="temperature 0.7"),
)  # fmt: skip
SWITCHES = {"CartPole-v1": CARTPOLE, "Pendulum-v1": PENDULUM}
_RARELY = {"evaluation": {"every": 10**6, "episodes": 1}, "checkpoint": {"every": 10**6}}
SETTINGS: dict[str, dict[str, Any]] = {  # written out, so that a shipped config may change and these runs do not
    "CartPole-v1": {
        "name": "cartpole", "env": {"id": "CartPole-v1", "count": 32}, "rollout": 64, "total_steps": 30720,
        "ppo": {"gamma": 0.98, "lam": 0.9, "epochs": 6, "minibatches": 8},
        "optimizer": {"actor_rate": 2e-3, "critic_rate": 2e-3}, **_RARELY,
    },
    "Pendulum-v1": {
        "name": "pendulum", "env": {"id": "Pendulum-v1", "count": 16}, "rollout": 200, "total_steps": 48000,
        "normalize": {"reward": True}, "ppo": {"gamma": 0.9, "epochs": 10, "minibatches": 16},
        "optimizer": {"actor_rate": 1e-3, "critic_rate": 2e-3}, **_RARELY,
    },
}  # fmt: skip
TEXT_SETTINGS = ("name=text", "steps=5", "evaluation.every=1000", "checkpoint.every=1000")
SIGNALS = (  # what a log shows, and how a run becomes one number
    ("advantage_mean", "mean"), ("advantage_std", "mean"), ("return_mean", "last"), ("value_loss", "mean"),
    ("explained_variance", "mean"), ("policy_kl_exact", "mean"), ("clip_fraction", "mean"), ("ratio_max", "max"),
    ("first_ratio_error", "max"), ("entropy", "last"), ("gradient_norm_max", "max"), ("early_stop", "mean"),
    ("value_clip_fraction", "mean"), ("actor_rate", "last"),
)  # fmt: skip
TEXT_SIGNALS = (
    ("sampler_mismatch", "max"), ("first_ratio_error", "max"), ("non_score_reward", "mean"), ("entropy", "last"),
    ("distinct_2", "last"), ("policy_kl_k3", "max"), ("score_std", "mean"), ("tokens", "mean"),
)  # fmt: skip


def find(name: str, among: tuple[Switch, ...] = CARTPOLE) -> Switch:
    """The switch of that name.

    Raises:
        ValueError: there is none.
    """
    for switch in among:
        if switch.name == name:
            return switch
    raise ValueError(f"{name!r} is not a switch; known: {', '.join(s.name for s in among)}")


def config(env: str, switch: Switch, *, seed: int, total: int | None = None) -> ControlConfig:
    """The settings of a control run; ``total`` shortens it."""
    changes = [*switch.changes, f"seed={seed}"] + ([] if total is None else [f"total_steps={total}"])
    return build(ControlConfig, override(SETTINGS[env], changes))


def turned(switch: Switch) -> AbstractContextManager[None]:
    """What is planted by the switch is active inside the ``with`` block; nothing, where it is a setting only."""
    return faults.planted(switch.fault) if switch.fault else nullcontext()


def run(env: str, switch: Switch, *, seed: int, total: int | None = None) -> Trained:
    """One control run with the switch turned."""
    with turned(switch):
        return train(config(env, switch, seed=seed, total=total))


def digest(rows: list[dict[str, Any]]) -> str:
    """A fingerprint of a log, times and memory left out: equal where every logged number is equal to the bit."""
    kept = [{k: v for k, v in row.items() if not k.startswith(("seconds", "peak_memory"))} for row in rows]
    return hashlib.sha256(json.dumps(encode(kept)).encode()).hexdigest()[:12]


def not_finite(rows: list[dict[str, Any]]) -> int:
    """Updates whose log has a number that is not finite in what was learned from."""
    names = ("policy_loss", "gradient_norm", "first_ratio_error")
    return sum(any(row[name] != row[name] or abs(row[name]) == float("inf") for name in names) for row in rows)


def control_row(env: str, switch: Switch, seed: int) -> dict[str, Any]:
    """One control run as it is recorded: `summary`, the signals, the log's fingerprint."""
    done = run(env, switch, seed=seed)
    signals = {name: signal(done.rows, name, how) for name, how in SIGNALS}
    return {"env": env, "switch": switch.name, "seed": seed, **summary(done, TASKS[env]), **signals,
            "not_finite": not_finite(done.rows), "log": digest(done.rows)}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Written:
    """A finished language run: its log, and what the policy is worth on held-out prompts, measured without fault."""

    rows: list[dict[str, Any]]
    worth: dict[str, float]
    epochs: int
    cpu: float = field(default=0.0)


def text_config(switch: Switch, *, seed: int) -> RLHFConfig:
    """The settings of a language run."""
    return load_config("rlhf/start", [*TEXT_SETTINGS, *switch.changes, f"seed={seed}"])  # type: ignore[return-value]


def write(switch: Switch, *, seed: int) -> Written:
    """One language run from the shipped models; the fault is taken out before the policy is judged."""
    from ppo_lab.rlhf import Run
    from ppo_lab.rlhf.evaluate import evaluate

    cpu, cfg = time.process_time(), text_config(switch, seed=seed)
    with tempfile.TemporaryDirectory() as folder:
        with turned(switch):
            made = Run(cfg, folder=Path(folder) / "run")
            rows = [step.row() for step in made]
        judged, _ = evaluate(made.learner, made.parts.held_out, cfg)
    worth = {"score": judged.eval_score, "kl": judged.eval_ref_kl_sum, "gold": judged.eval_gold or 0.0,
             "grammatical": judged.eval_grammatical or 0.0}  # fmt: skip
    return Written(rows, worth, cfg.ppo.epochs, time.process_time() - cpu)


def text_row(switch: Switch, seed: int) -> dict[str, Any]:
    """One language run as it is recorded; ``counted``: positions in the update for each response token."""
    done = write(switch, seed=seed)
    rows = done.rows
    counted = sum(sum(row["log_ratio_histogram"]) for row in rows) / done.epochs / sum(row["tokens"] for row in rows)
    worth = {name: float(f"{value:.5g}") for name, value in done.worth.items()}
    signals = {name: signal(rows, name, how) for name, how in TEXT_SIGNALS}
    return {"switch": switch.name, "seed": seed, **worth, **signals, "first_kl": float(f"{rows[0]['ref_kl_sum']:.5g}"),
            "counted": round(counted, 4), "not_finite": not_finite(rows), "log": digest(rows),
            "cpu": round(done.cpu, 1)}  # fmt: skip
