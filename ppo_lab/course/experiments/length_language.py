"""Notebook 11: the same experiment where the best length is known: texts of at most 3 or 12 tokens, four rewards.

PPO on tables (`ppo_lab.rlhf.known_optimum`) against π*'s exact length. Under one reward every text is worth the same:
there π* is the reference, and any change of length is an artefact. `VARIANTS` are what is suspected of making one.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from ppo_lab.exact.language import Language
from ppo_lab.exact.lengths import best_logp, mean_length, mood_language

T, LONG = 3, 12
BETA, ITERATIONS, SAMPLES = 0.2, 40, 128
SCALES = {"same": 1.0, "mean": 1.0, "praise": 0.25, "blame": 0.25}
VARIANTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {  # settings of the update, of the optimizer
    "λ 1": ({"lam": 1.0}, {}),
    "λ 0.95": ({"lam": 0.95}, {}),
    "λ 1, whitened": ({"lam": 1.0, "standardize": "rollout"}, {}),
    "λ 1, slow critic": ({"lam": 1.0}, {"critic_rate": 0.005}),
    "λ 0.95, slow critic": ({"lam": 0.95}, {"critic_rate": 0.005}),
    "λ 0.95, slow critic, whitened": ({"lam": 0.95, "standardize": "rollout"}, {"critic_rate": 0.005}),
}
PLAIN = "λ 1"


@cache
def language(worth: str, cap: int) -> Language:
    """The world of one reward and cap."""
    return mood_language(cap, worth, scale=SCALES[worth])


def lengths(worth: str, cap: int, variant: str, seed: int, *, iterations: int = ITERATIONS) -> list[float]:
    """Exact mean length of PPO's policy after every step, the untouched reference first."""
    from ppo_lab.rlhf.known_optimum import OPTIMIZER, PPO, solve_by_ppo

    here, (update, optimizer) = language(worth, cap), VARIANTS[variant]
    cfg, rates = PPO.model_copy(update=update), OPTIMIZER.model_copy(update=optimizer)
    steps = solve_by_ppo(here, beta=BETA, seed=seed, iterations=iterations, samples=SAMPLES, cfg=cfg, optimizer=rates)
    return [mean_length(here, here.ref_logp), *(mean_length(here, step.logp) for step in steps)]


def best(worth: str, cap: int) -> float:
    """Mean length of π*."""
    here = language(worth, cap)
    return mean_length(here, best_logp(here, beta=BETA))


def prediction(worth: str, remedy: str, *, near: float = 0.05) -> str:
    """What π* says under the long cap: of none against the reference, of a remedy against none; ``near`` tokens are 0.

    >>> [prediction(*x) for x in (("mean", "none"), ("praise", "none"), ("same", "none"), ("mean", "spread"))]
    ['shorter', 'longer', 'as before', 'as without']
    """
    here = language(worth, LONG)
    usual, plain = mean_length(here, here.ref_logp), best(worth, LONG)
    if remedy == "none":
        return _compared(plain - usual, near, "", "as before")
    treated = best_logp(here, beta=BETA, remedy=remedy, reference_length=T if remedy == "L_ref/L" else usual)
    return _compared(mean_length(here, treated) - plain, near, " than without", "as without")


def _compared(gap: float, near: float, than: str, same: str) -> str:
    return same if abs(gap) < near else ("longer" if gap > 0 else "shorter") + than


def row(worth: str, cap: int, variant: str, seed: int) -> dict[str, Any]:
    """One run: length of the reference, of π*, of PPO at its end and at its shortest."""
    curve = lengths(worth, cap, variant, seed)
    found = {"reference": curve[0], "best": best(worth, cap), "end": curve[-1], "lowest": min(curve)}
    return {"worth": worth, "cap": cap, "variant": variant, "seed": seed, **{k: round(v, 4) for k, v in found.items()}}


def plan() -> Iterator[tuple[str, int, str]]:
    """Every reward under both caps as it should be run; suspects where π* keeps the length and where it does not."""
    for worth in SCALES:
        yield from ((worth, cap, PLAIN) for cap in (T, LONG))
    for worth in ("same", "mean"):
        yield from ((worth, LONG, variant) for variant in VARIANTS if variant != PLAIN)
