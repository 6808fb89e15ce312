"""Best-of-n against the same reward models: one pool of the untouched policy's answers, every n at once."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from ppo_lab import seeding
from ppo_lab.course.experiments.overoptimisation import JUDGES, Arm, config_of
from ppo_lab.course.experiments.preferences import shipped
from ppo_lab.evaluate.best_of_n import best_of_n, best_of_n_kl
from ppo_lab.rlhf import Run
from ppo_lab.rlhf.gold import vader
from ppo_lab.rlhf.reward_model import answers_of

PROMPTS, POOL = 32, 96
NS = (1, 2, 4, 8, 16, 32, 64)


@functools.lru_cache(maxsize=1)
def pool(seed: int, prompts: tuple[str, ...]) -> tuple[list[str], list[str], Tensor]:
    """`POOL` answers to each prompt, a row each, and their gold ``(prompts, POOL)``."""
    policy, tokenizer, _ = shipped()
    asked = [prompt for prompt in prompts for _ in range(POOL)]
    said = answers_of(config_of(JUDGES[0], seed), policy, tokenizer)(asked, seeding.key(seed, "best of n"))
    return asked, said, vader(asked, said).reshape(-1, POOL)


def rows(run: Run, arm: Arm, seed: int, gold_std: float) -> Iterator[dict[str, Any]]:
    """A row an n: KL by the formula, expected proxy (in deviations of the untouched policy) and gold.

    ``run`` is only asked for its reward model, before or after training.
    """
    prompts = tuple(run.parts.corpus.held_out_prompts[:PROMPTS])
    asked, said, gold = pool(seed, prompts)
    opinions = run.scorer.opinions(asked, said, {}, run.config.sampling.max_new_tokens)
    score = run.scorer.scores(opinions, torch.ones(len(said), dtype=torch.bool)).final.reshape(-1, POOL)
    for n in NS:
        means = {key: float(best_of_n(score, value, n=n).mean()) for key, value in (("proxy", score), ("gold", gold))}
        yield {"arm": arm.name, "seed": seed, "n": n, "kl": round(best_of_n_kl(n), 5), "gold_std": gold_std,
               "proxy": round(means["proxy"], 4), "gold": round(means["gold"], 5)}  # fmt: skip
