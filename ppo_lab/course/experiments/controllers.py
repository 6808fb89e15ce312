"""Notebook 04: what holds the KL of an update at its target? Rules for β, two signs for ε; worlds as in `reuse`."""

from __future__ import annotations

from collections.abc import Sequence

from ppo_lab.config.ppo import PPOConfig
from ppo_lab.core.kl import RULES, next_beta, next_clip
from ppo_lab.course.experiments.reuse import ROWS as EPISODES
from ppo_lab.course.experiments.reuse import STEPS, Adapt, Round, config, rounds

TARGET, ROUNDS, WARM = 0.01, 12, 2  # nats; rounds of a run, and those at its start that are not judged
EPOCHS, RATE = 6, 0.1
SHARP = 20.0  # α of the rules for ε, per nat
BOUNDS = (0.02, 0.6)  # of ε
SIGNS = ("target − KL", "KL − target, as printed")


def beta_rule(rule: str) -> Adapt:
    """β of the next round by `next_beta`; the proportional rule counts the batch's steps against a horizon of 256."""
    slow = {"horizon": 256.0, "n_steps": float(EPISODES * STEPS)} if rule == "proportional" else {}

    def adapt(cfg: PPOConfig, kl: float) -> PPOConfig:
        beta = next_beta(cfg.penalty_beta, kl, target=TARGET, rule=rule, bounds=(1e-3, 1e3), **slow)
        return cfg.model_copy(update={"penalty_beta": beta})

    return adapt


def clip_rule(sign: str) -> Adapt:
    """ε of the next round: by `next_clip`, or with the exponent the other way round."""

    def adapt(cfg: PPOConfig, kl: float) -> PPOConfig:
        seen = kl if sign == SIGNS[0] else 2 * TARGET - kl  # mirrors the exponent
        clip = next_clip(cfg.clip_band[1], seen, target=TARGET, rate=SHARP, bounds=BOUNDS)
        return cfg.model_copy(update={"clip": clip})

    return adapt


def beta_run(seed: int, rule: str, *, beta: float = 1.0) -> list[Round]:
    """PPO with the penalty, β from ``beta`` on by the rule; one of `RULES`, or "fixed"."""
    cfg = config("kl_penalty", EPOCHS, penalty_beta=beta)
    adapt = None if rule == "fixed" else beta_rule(rule)
    return [*rounds(seed, cfg, iterations=ROUNDS, adapt=adapt, rate=RATE)]


def clip_run(seed: int, sign: str, *, clip: float = 0.2) -> list[Round]:
    """PPO-clip, ε from ``clip`` on by one of `SIGNS`, or "fixed"."""
    adapt = None if sign == "fixed" else clip_rule(sign)
    return [*rounds(seed, config("clip", EPOCHS, clip=clip), iterations=ROUNDS, adapt=adapt, rate=RATE)]


def mean_kl(seen: Sequence[Round]) -> float:
    """KL of an update, exact, mean over the rounds that are judged, nats."""
    return sum(r.kl for r in seen[WARM:]) / (len(seen) - WARM)


def study(
    seeds: Sequence[int], kinds: Sequence[str] = ("fixed", *RULES), *, beta: float = 1.0
) -> dict[str, list[list[Round]]]:
    """Runs of each rule for β, a list a rule, paired by seed."""
    return {kind: [beta_run(seed, kind, beta=beta) for seed in seeds] for kind in kinds}
