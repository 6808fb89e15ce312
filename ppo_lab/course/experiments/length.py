"""Notebook 11: the cap times four, β and the reward's scale as they were; three rewards, remedies.

Runs are paired by seed. One starts from the shipped policy that imitated long reviews, so its first rollout is of the
untouched policy. A row says how it began (step 1), how it ended (mean of the last steps), and keeps what is drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ppo_lab.config import RLHFConfig, load_config

T, LONG = 12, 48  # caps: one sentence, four sentences
STEPS, LAST = 8, 3  # PPO steps of a run; steps at its end that are averaged
REWARDS = {"mean_mood": "length-neutral", "praise": "growing", "blame": "shrinking"}
WEIGHTS = {"mean_mood": 2.0, "praise": 1.0, "blame": 1.0}
REMEDIES: dict[str, tuple[str, ...]] = {
    "none": (),
    "controller": ("kl.controller=proportional", "kl.target=2", "kl.horizon=128"),
    "L_ref/L": (f"kl.reference_length={T}",),
    "score/L": ("reward.divide_by=length",),
    "spread": ("reward.placement=spread",),
    "sentences": ("reward.placement=sentences",),
    "λ 1": ("ppo.lam=1",),
}
USUAL = 45.0  # mean length of the untouched policy's answers under the long cap
KEPT = {
    "length": "response_length", "kl": "ref_kl_sum", "kl_token": "ref_kl_token", "score": "raw_score_mean",
    "total": "reward_mean", "beta": "beta", "pushed_long": "pushed_down_long", "pushed_middle": "pushed_down_middle",
    "reward_long": "reward_token_long", "reward_middle": "reward_token_middle",
}  # fmt: skip
CURVES = ("length", "kl", "score", "total")
SENTENCES = "ppo_lab.rlhf.moods"


def config(reward: str, cap: int, remedy: str = "none", *, seed: int = 0, steps: int = STEPS) -> RLHFConfig:
    """The settings of one run; ``score/L`` weighs the reward by the usual length, so that its scale stays."""
    weight = WEIGHTS[reward] * (USUAL if remedy == "score/L" else 1.0)
    source = f"reward.sources=[{{kind: callable, path: '{SENTENCES}:{reward}', weight: {weight}}}]"
    changes = [source, f"sampling.max_new_tokens={cap}", f"seed={seed}", f"steps={steps}", f"evaluation.every={steps}",
               "evaluation.prompts=8", "corpus.size=1500", *REMEDIES[remedy]]  # fmt: skip
    found = load_config("rlhf/length", changes)
    assert isinstance(found, RLHFConfig)
    return found


def run_row(reward: str, cap: int, remedy: str, seed: int, folder: Path, *, steps: int = STEPS) -> dict[str, Any]:
    """Train one run in ``folder`` and describe it in a row."""
    from ppo_lab import rlhf

    run = rlhf.Run(config(reward, cap, remedy, seed=seed, steps=steps), folder=folder)
    logged = [step.row() for step in run]
    scale = USUAL if remedy == "score/L" else 1.0
    return {"reward": reward, "cap": cap, "remedy": remedy, "seed": seed, **summary(logged, scale=scale)}


def summary(logged: Sequence[Mapping[str, Any]], *, scale: float = 1.0) -> dict[str, Any]:
    """First step, mean of the last ones, and curves of a log; raw scores over ``scale``. What no step had is None."""
    found: dict[str, Any] = {}
    for key, name in KEPT.items():
        factor = scale if key == "score" else 1.0
        series = [row[name] / factor if name in row else None for row in logged]
        end = [x for x in series[-LAST:] if x is not None]
        found[f"{key}_start"] = _short(series[0])
        found[f"{key}_end"] = _short(sum(end) / len(end) if end else None)
        if key in CURVES:
            found[f"{key}_curve"] = [_short(x) for x in series]
    return found


def _short(x: float | None) -> float | None:
    return None if x is None else float(f"{x:.5g}")


# --- what is read from rows ------------------------------------------------------------------------------------------

Rows = Iterable[Mapping[str, Any]]


def column(rows: Rows, key: str, **where: Any) -> list[Any]:
    """``key`` of the rows that match, in the order of their seeds: columns are paired."""
    chosen = sorted((row for row in rows if all(row[k] == v for k, v in where.items())), key=lambda row: row["seed"])
    return [row[key] for row in chosen]


def change(rows: Rows, key: str, **where: Any) -> list[float]:
    """End minus start of every run."""
    rows = [*rows]
    return [b - a for a, b in zip(column(rows, f"{key}_start", **where), column(rows, f"{key}_end", **where),
                                  strict=True)]  # fmt: skip


def against(one: Sequence[float], other: Sequence[float]) -> list[float]:
    """Paired differences, ``other`` minus ``one``."""
    return [b - a for a, b in zip(one, other, strict=True)]


def second_half(rows: Rows, key: str, **where: Any) -> list[float]:
    """What was gained from the middle of each run to its end, both over `LAST` steps."""
    gains = []
    for curve in column(rows, f"{key}_curve", **where):
        middle = len(curve) // 2
        now, then = sum(curve[-LAST:]) / LAST, sum(curve[middle - 1 : middle - 1 + LAST]) / LAST
        gains.append(now - then)
    return gains


STORY = {  # what is told of the cap times four: the sentence, and the paired numbers that must lie beyond the limit
    "kl": ("the accumulated KL grows with the cap (nats a sequence, long minus short cap)", "least"),
    "score": ("the score gains no more under the long cap (gain, long minus short)", "most"),
    "long": ("long answers are pushed down more than shorter ones (share of tokens, long minus middle third)", "least"),
    "length": ("answers become shorter under the long cap (tokens, end minus start)", "most"),
    "token": ("KL a token looks controlled: no higher than under the short cap", "most"),
    "stall": ("the total reward stalls: nothing is gained in the second half (reward)", "most"),
}


def story(rows: Rows, reward: str) -> dict[str, list[float]]:
    """The paired numbers of each sentence of `STORY` for one reward; each is held against 0."""
    rows = [row for row in rows if row["reward"] == reward and row["remedy"] == "none"]
    long_, middle = (column(rows, f"pushed_{third}_end", cap=LONG) for third in ("long", "middle"))
    pushed = [(a, b) for a, b in zip(middle, long_, strict=True) if a is not None and b is not None]
    return {
        "kl": against(column(rows, "kl_end", cap=T), column(rows, "kl_end", cap=LONG)),
        "score": against(change(rows, "score", cap=T), change(rows, "score", cap=LONG)),
        "long": [b - a for a, b in pushed],
        "length": change(rows, "length", cap=LONG),
        "token": against(column(rows, "kl_token_end", cap=T), column(rows, "kl_token_end", cap=LONG)),
        "stall": second_half(rows, "total", cap=LONG),
    }


EXPECTED = {  # of each remedy: what should follow, the paired numbers held against it, and the limits
    "controller": ("the controller keeps the KL nearer to its target than a fixed β (nats, |KL − 2|)", {"most": 0.0}),
    "L_ref/L": ("the KL times L_ref/L makes answers longer than without (tokens)", {"least": 0.0}),
    "score/L": ("the score over L makes answers shorter than without: the trap (tokens)", {"most": 0.0}),
    "spread": ("the score, spread, leaves the length where it was, within a tenth of the cap (tokens)",
               {"least": -LONG / 10, "most": LONG / 10}),
    "sentences": ("paid by sentence, the same score is reached sooner (score at the end, more than without)",
                  {"least": 0.0}),
    "λ 1": ("with λ 1 answers stay longer than with 0.95 (tokens)", {"least": 0.0}),
}  # fmt: skip


def effect(rows: Rows, remedy: str, reward: str = "mean_mood") -> list[float]:
    """The paired numbers that `EXPECTED` is about: with the remedy minus without, under the long cap."""
    rows = [row for row in rows if row["reward"] == reward and row["cap"] == LONG]
    key = {"controller": "kl_end", "sentences": "score_end"}.get(remedy, "length_end")
    one, other = column(rows, key, remedy="none"), column(rows, key, remedy=remedy)
    if remedy == "controller":
        one, other = ([abs(x - 2.0) for x in side] for side in (one, other))
    return against(one, other)


def whole_story(verdicts: Sequence[str]) -> str:
    """The story holds where every sentence does, and does not where one does not.

    >>> whole_story(["held here", "cannot tell here"]), whole_story(["held here", "did not hold here"])
    ('cannot tell here', 'did not hold here')
    """
    from ppo_lab.course.claims import VERDICTS

    held, fell, _ = VERDICTS
    return fell if fell in verdicts else held if {*verdicts} == {held} else VERDICTS[2]
