"""A reward model judges the policy it was trained on, and then the one that PPO makes: accuracy before and after."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ppo_lab import seeding
from ppo_lab.config import RLHFConfig, load_config
from ppo_lab.rlhf import Run
from ppo_lab.rlhf.gold import vader
from ppo_lab.rlhf.models.build import load_reward_model, load_tokenizer
from ppo_lab.rlhf.reward_model import answers_of, compared, matched, score_texts
from ppo_lab.rlhf.tokens import join

JUDGE = "shipped/reward_model"
ANSWERS = 4  # to each held-out prompt
STEPS = 12


def judged(run: Run, judge: Any, tokenizer: Any, seed: int) -> tuple[Tensor, Tensor]:
    """Score and gold, (prompts, answers) each, of fresh answers of the policy as it is now."""
    prompts = [prompt for prompt in run.parts.corpus.held_out_prompts for _ in range(ANSWERS)]
    with run.learner.whole() as actor:
        said = answers_of(run.config, actor.policy, run.parts.tokenizer)(prompts, seeding.key(seed, "shift"))
    scores = score_texts(judge, tokenizer, [join(p, s) for p, s in zip(prompts, said, strict=True)], batch=256)
    return scores.reshape(-1, ANSWERS), vader(prompts, said).reshape(-1, ANSWERS)


def shifted(seed: int, folder: Path) -> list[dict[str, Any]]:
    """Rows before PPO, half way and after it, on a loose leash: KL, mean gold, accuracies, mean gap of the pairs."""
    config = load_config("rlhf/start", [
        "kl.beta=0.02", "optimizer.actor_rate=1e-3", f"steps={STEPS}", "evaluation.every=1000", f"seed={seed}",
    ])  # fmt: skip
    assert isinstance(config, RLHFConfig)
    run = Run(config, folder=folder)
    judge, tokenizer = load_reward_model(JUDGE, seed=0), load_tokenizer(JUDGE)
    start = judged(run, judge, tokenizer, seed)
    rows = [_row(seed, 0, 0.0, start, start)]
    for i, step in enumerate(run, start=1):
        if i in (STEPS // 2, STEPS):
            rows.append(_row(seed, i, step.ref_kl_sum, start, judged(run, judge, tokenizer, seed)))
    return rows


def _row(seed: int, step: int, kl: float, start: tuple[Tensor, Tensor], now: tuple[Tensor, Tensor]) -> dict[str, Any]:
    before, after = compared(*start), compared(*now)
    found = matched(*before, *after)
    plain = [(score, valence(gold)) for score, gold in (start, now)]
    other = matched(*compared(*plain[0]), *compared(*plain[1]), widest=10.0)
    return {"seed": seed, "step": step, "kl": round(kl, 3), "gold": round(float(now[1].mean()), 4),
            "gap": round(float(after[0].mean()), 4), "before": round(found.before, 5), "after": round(found.after, 5),
            "matched_before": round(found.matched_before, 5), "matched_after": round(found.matched_after, 5),
            "pairs": found.pairs, "valence_before": round(other.matched_before, 5),
            "valence_after": round(other.matched_after, 5), "by_gap": by_gap(*after)}  # fmt: skip


def valence(gold: Tensor) -> Tensor:
    r"""VADER's sum of word valences s before it is squashed, :math:`c = s/\sqrt{s^2 + 15}`.

    Near c = ±1 a small gap of c is a wide one of s.

    >>> [round(float(x), 3) for x in valence(torch.tensor([0.0, 0.25, 0.8]))]
    [0.0, 1.0, 5.164]
    """
    gold = gold.double()
    return gold * (15 / (1 - gold.square()).clamp(min=1e-6)).sqrt()


def by_gap(gap: Tensor, right: Tensor, edges: tuple[float, ...] = (0.1, 0.2, 0.4, 0.6, 0.8, 1.0)) -> str:
    """Accuracy and count between the edges, as text: count/accuracy, "-" where there is no pair."""
    place = torch.bucketize(gap.double(), torch.tensor(edges, dtype=torch.float64))
    parts = []
    for k in range(len(edges) + 1):
        here = right[place == k].double()
        parts.append(f"{len(here)}/{float(here.mean()):.4f}" if len(here) else "0/-")
    return " ".join(parts)
