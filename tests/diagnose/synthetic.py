"""A run folder that looks like one: 40 steps of a policy learning to praise films. Numbers are drawn, not trained."""

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np

from ppo_lab import metrics
from ppo_lab.config import RLHFConfig, dump
from ppo_lab.records import EvalMetrics, StepMetrics, UpdateMetrics

SAMPLES = (  # prompt, before, score, gold, after, score, gold, KL
    ("this is", "a dull cast and the plot is thin .", -0.9, -0.4, "a perfect cast and a lovely pace .", 2.2, 0.8, 4.2),
    ("it is", "not a good film but the music is fine .", 0.1, 0.2, "a wonderful film .", 1.9, 0.85, 5.1),
    ("well ,", "the script is <slow> & tired .", -1.1, -0.3, "it is “brilliant” .", 1.6, 0.6, 3.9),
)  # fmt: skip


def evaluation(progress: float) -> EvalMetrics:
    score, kl = -0.05 + 2.1 * progress, 4.8 * progress
    return EvalMetrics(
        eval_score=score,
        eval_ref_kl_sum=kl,
        eval_objective=score - 0.05 * kl,
        eval_response_length=11.4 - progress,
        eval_score_greedy=score + 0.3,
        eval_gold=-0.02 + 0.79 * progress**1.2,
        eval_gold_greedy=0.1 + 0.75 * progress,
        eval_grammatical=0.98 - 0.02 * progress,
    )


def update_metrics(done: float, noise: np.ndarray, rng: np.random.Generator) -> UpdateMetrics:
    k3 = float(0.012 * (1 - 0.6 * done) * np.exp(0.25 * noise[0]))
    centres = np.linspace(-2, 2, 41)
    density = np.exp(-(centres**2) / (4 * max(k3, 1e-4))) + 0.002 * np.exp(-np.abs(centres) / 0.3)
    return UpdateMetrics(
        policy_loss=float(-0.012 + 0.004 * noise[1]),
        value_loss=float(0.45 * np.exp(-2 * done) + 0.02 * noise[2] ** 2),
        entropy=float(2.1 - 1.05 * (1 - np.exp(-3.2 * done)) + 0.03 * noise[3]),
        policy_kl_k1=float(k3 + 0.002 * noise[4]),
        policy_kl_k3=k3,
        clip_fraction=min(1.0, 9 * k3),
        active_clip_fraction=min(1.0, 4.5 * k3),
        value_clip_fraction=float(0.12 * np.exp(-done)),
        ratio_max=1.5 + 60 * k3,
        first_ratio_error=0.0,
        log_ratio_histogram=tuple(int(n) for n in rng.multinomial(5600, density / density.sum())),
        gradient_norm=float(0.6 * np.exp(0.2 * noise[5])),
        gradient_norm_max=float(1.1 * np.exp(0.3 * abs(noise[5]))),
        optimizer_steps=16,
        policy_steps=16,
        early_stop=0,
    )


def step_metrics(step: int, steps: int, rng: np.random.Generator, every: int = 10) -> StepMetrics:
    done, noise = step / steps, rng.normal(size=8)
    progress = float(1 - np.exp(-3.2 * done))
    score, kl = float(-0.05 + 2.1 * progress + 0.05 * noise[6]), float(max(0.0, 4.8 * progress + 0.15 * noise[7]))
    rate = 1 - (step - 1) / steps
    return StepMetrics(
        step=step,
        update=update_metrics(done, noise, rng),
        score_mean=score,
        score_std=0.95 - 0.4 * progress,
        reward_mean=score - 0.05 * kl,
        non_score_reward=-0.05 * kl,
        ref_kl_sum=kl,
        ref_kl_token=kl / 11,
        sampler_mismatch=8e-6,
        explained_variance=-0.15 + 0.85 * progress,
        advantage_mean=0.3 * (1 - progress),
        advantage_std=0.55,
        value_mean=score * progress,
        return_mean=score - 0.04 * kl,
        response_length=11.4 - progress,
        stop_rate=0.985 + 0.01 * progress,
        distinct_1=0.06,
        distinct_2=0.31 - 0.14 * progress,
        beta=0.05,
        actor_rate=3e-4 * rate,
        critic_rate=1e-3 * rate,
        tokens=1400,
        seconds_rollout=float(0.21 + 0.01 * noise[0] ** 2),
        seconds_score=0.14,
        seconds_update=float(0.47 + 0.02 * noise[1] ** 2),
        peak_memory_mb=612.0 + min(step, 3),
        raw_score_mean=score * 3.1 + 0.4,
        gold_mean=-0.02 + 0.79 * progress**1.2,
        evaluation=evaluation(progress) if step % every == 0 or step == steps else None,
    )


def rows(steps: int = 40, seed: int = 0, every: int = 10) -> list[dict]:
    rng = np.random.default_rng(seed)
    return [step_metrics(step, steps, rng, every).row() for step in range(1, steps + 1)]


def samples(steps: int = 40) -> list[dict]:
    before = [
        {"step": 0, "prompt": prompt, "response": text, "score": score, "gold": gold, "ref_kl_sum": 0.0, "length": 9}
        for prompt, text, score, gold, *_ in SAMPLES
    ]
    after = [
        {"step": steps, "prompt": prompt, "response": text, "score": score, "gold": gold, "ref_kl_sum": kl, "length": 9}
        for prompt, _, _, _, text, score, gold, kl in SAMPLES
    ]
    return before + after


def write_rows(path: Path, lines: list[dict]) -> None:
    with open(path, "w", encoding="utf-8") as file:
        for line in lines:
            metrics.write_line(file, line)


def make_run(folder: Path, steps: int = 40, planned: int | None = None) -> Path:
    """Everything a finished (or, with ``planned`` > ``steps``, an interrupted) run leaves."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.yaml").write_text(dump(RLHFConfig(name="demo", steps=planned or steps)), encoding="utf-8")
    write_rows(folder / "metrics.jsonl", rows(steps))
    write_rows(folder / "samples.jsonl", samples(steps))
    (folder / "best.json").write_text(json.dumps({"step": steps, "eval_objective": 1.7}))
    (folder / "baseline.json").write_text(json.dumps(asdict(evaluation(0.0))))
    bins = [{"confidence": 0.55 + 0.1 * i, "accuracy": 0.53 + 0.1 * i, "count": 200} for i in range(5)]
    quality = {"accuracy": 0.874, "margin": 1.63, "log_loss": 0.31, "ece": 0.02, "bins": bins}
    clean = quality | {"accuracy": 0.951, "bins": [row | {"accuracy": row["confidence"]} for row in bins]}
    for model, figures in {
        "sft": {"loss": [4.6 - 0.01 * i for i in range(100)], "loss_first": 4.6, "loss_last": 1.4, "tokens": 550398},
        "reward_model": quality | {"clean": clean},
    }.items():
        place = folder / "models" / model
        place.mkdir(parents=True, exist_ok=True)
        (place / "quality.json").write_text(json.dumps(figures))
    return folder
