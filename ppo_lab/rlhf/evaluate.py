"""Held-out prompts, greedy and sampled with the same noise every time, so that only the weights differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ppo_lab import seeding
from ppo_lab.config.language import RLHFConfig
from ppo_lab.learners import Learner, collectives
from ppo_lab.learners.collectives import everywhere
from ppo_lab.records import EvalMetrics, Prompts, Responses, take

from .assess import Lens, opinions, ref_kl_sum
from .generate import generate, trim
from .gold import grammatical_share
from .score import Reward, Scorer, call
from .texts import Texts, table
from .tokens import join


@dataclass(frozen=True)
class HeldOut:
    """What an evaluation needs besides the weights."""

    prompts: Prompts
    texts: Texts
    scorer: Scorer
    lens: Lens
    sampling: dict[str, Any]  # max_new_tokens, stop_ids, pad_id, temperature, suppress, batch
    gold: Reward | None
    grammar: bool


def answer(learner: Learner, held: HeldOut, *, seed: int, greedy: bool) -> Responses:
    """This rank's share of answers to the held-out prompts."""
    rows = learner.share(len(held.prompts))
    noise = seeding.uniforms(seed, "evaluation", range(rows.start, rows.stop), held.sampling["max_new_tokens"])
    with learner.whole() as actor:
        return trim(generate(actor.policy, take(held.prompts, rows), noise=None if greedy else noise, **held.sampling))


def judged(learner: Learner, held: HeldOut, responses: Responses, cfg: RLHFConfig) -> dict[str, Any]:
    """Score, gold, KL and words of these answers; the normalisers are read, never fed."""
    seen = opinions(learner, responses, held.lens)
    opinion, length = held.texts.opinions(held.scorer, responses), responses.mask.sum(-1)
    scores = held.scorer.scores(opinion, responses.stopped, length)
    prompts, words = held.texts.prompts_of(responses), held.texts.responses_of(responses)
    judged: dict[str, Any] = {
        "score": scores.final,
        "ref_kl_sum": ref_kl_sum(seen["logp"], seen["ref_logp"], responses.mask),
        "length": length,
        "prompt": prompts,
        "response": words,
    }
    if held.gold is not None:
        columns = held.texts.columns_of(responses)
        asked = (prompts, words, columns, 0, cfg.reward.timeout)
        gold = held.gold
        judged["gold"] = everywhere(lambda: call("evaluation.gold", gold, *asked) if words else torch.zeros(0))
    return judged


def evaluate(learner: Learner, held: HeldOut, cfg: RLHFConfig) -> tuple[EvalMetrics, list[dict[str, Any]]]:
    """Metrics over all held-out prompts, and sample rows of the first ``log.samples`` of them (sampled, not greedy).

    The objective that chooses the best checkpoint is score - β₀·KL with the config's β₀, so that an adaptive β
    does not move the goal; gold has no part in it.
    """
    sampled = judged(learner, held, answer(learner, held, seed=cfg.seed, greedy=False), cfg)
    greedy = judged(learner, held, answer(learner, held, seed=cfg.seed, greedy=True), cfg)

    def mean(values: Tensor) -> float:
        return float(learner.gather(values.double()).mean())

    score, kl = mean(sampled["score"]), mean(sampled["ref_kl_sum"])
    grammatical = None
    if held.grammar:
        n = cfg.corpus.sentences
        grammatical = mean(torch.tensor([grammatical_share([text], sentences=n) for text in whole_texts(sampled)]))
    metrics = EvalMetrics(
        eval_score=score,
        eval_ref_kl_sum=kl,
        eval_objective=score - cfg.kl.beta * kl,
        eval_response_length=mean(sampled["length"]),
        eval_score_greedy=mean(greedy["score"]),
        eval_gold=mean(sampled["gold"]) if "gold" in sampled else None,
        eval_gold_greedy=mean(greedy["gold"]) if "gold" in greedy else None,
        eval_grammatical=grammatical,
    )
    n = cfg.log.samples
    named = [k for k in ("score", "gold", "ref_kl_sum", "length") if k in sampled]
    numbers = {k: learner.gather(sampled[k])[:n].tolist() for k in named}
    prompts, responses = collectives.texts(sampled["prompt"]), collectives.texts(sampled["response"])
    return metrics, table(prompts[:n], responses[:n], **numbers)


def whole_texts(sampled: dict[str, Any]) -> list[str]:
    """Prompt and response as one text, row by row."""
    return [join(p, r) for p, r in zip(sampled["prompt"], sampled["response"], strict=True)]
