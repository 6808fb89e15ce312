"""The stations between a rollout and an update, one small function each; notebook 10 prints them."""

from __future__ import annotations

import torch
from torch import Tensor

from ppo_lab import faults
from ppo_lab.config.language import KLConfig, RLHFConfig
from ppo_lab.config.ppo import PPOConfig
from ppo_lab.core.kl import next_beta
from ppo_lab.core.masking import last_step, masked_mean
from ppo_lab.core.returns import gae, next_values
from ppo_lab.learners import Learner
from ppo_lab.records import Responses, StepBatch, TextRollout
from ppo_lab.update import Leash

from .assess import Lens, inputs_of, opinions, ref_kl_sum
from .placing import by_sentence, sentence_ends
from .rewards import kl_price, token_rewards
from .score import Scorer, mask_tokens
from .shaping import shaped_tokens
from .texts import Texts


def judge(
    learner: Learner, responses: Responses, scorer: Scorer, texts: Texts, lens: Lens, cfg: RLHFConfig
) -> TextRollout:
    """Four models look at every answer: policy, reference and critic at each token, the reward at the whole.

    Under ``reward.normalize: running`` the scores of all ranks enter the normaliser before it is applied.
    """
    seen = opinions(learner, responses, lens)
    raw = texts.opinions(scorer, responses)
    if cfg.reward.normalize == "running":
        scorer.fit([learner.gather(opinion) for opinion in raw])
    scores = scorer.scores(raw, responses.stopped, responses.mask.sum(-1))
    parts = None
    if cfg.reward.placement == "sentences":
        ends = sentence_ends(texts.tokenizer, responses.response, responses.mask)
        parts = by_sentence(responses, ends, scores.final, lambda some: _score(some, scorer, texts))
    shaped = shaped_tokens(responses, texts, cfg.reward, gamma=cfg.ppo.gamma)
    token = mask_tokens(scores, responses.mask)
    return TextRollout(
        responses=responses,
        old_logp=seen["logp"] if cfg.sampling.old_logp == "recompute" else responses.logp,
        ref_logp=seen["ref_logp"],
        value=seen["value"],
        entropy=seen["entropy"],
        forward_logp=seen["logp"],
        raw_score=scores.raw,
        score=scores.final,
        token_score=token if shaped is None else shaped + (0 if token is None else token),
        score_spread=scores.spread,
        parts=parts,
    )


def _score(responses: Responses, scorer: Scorer, texts: Texts) -> Tensor:
    """The finished score of answers, ``(B,)``."""
    return scorer.scores(texts.opinions(scorer, responses), responses.stopped, responses.mask.sum(-1)).final


def rewards_of(rollout: TextRollout, *, beta: float, cfg: KLConfig, placement: str = "last") -> Tensor:
    """r_t = -β·KL_t on each token and the score where ``placement`` has it, ``(B, T)``.

    β is 0 here where the KL is in the loss. ``sentences`` takes the parts that `judge` made.
    """
    score, mask, extra = rollout.score, rollout.responses.mask, [rollout.token_score]
    if placement == "sentences":
        if rollout.parts is None:
            raise ValueError("placement sentences needs a score in parts, got none; set reward.placement")
        score, placement = torch.zeros_like(score), "last"
        extra.append(rollout.parts)
    reward = token_rewards(
        score, rollout.old_logp, rollout.ref_logp, mask, beta=price_of(beta, mask, cfg),
        estimator=cfg.estimator if cfg.placement == "reward" else "k1", placement=placement,
    )  # fmt: skip
    for more in extra:
        reward = reward if more is None else reward + more
    return reward


def price_of(beta: float, mask: Tensor, cfg: KLConfig) -> float | Tensor:
    """What a nat costs in the reward: β, 0 where the KL is in the loss, or (B,) under ``kl.reference_length``."""
    if cfg.placement == "loss":
        return 0.0
    if cfg.reference_length is None:
        return beta
    return kl_price(beta, mask.sum(-1), reference_length=cfg.reference_length)


def advantages(rollout: TextRollout, reward: Tensor, cfg: PPOConfig) -> tuple[Tensor, Tensor]:
    """Credit flows back from the last token: GAE and the critic's target (before any standardising), ``(B, T)``.

    A response is an episode: its last valid token terminates it, the cap included, for the reward saw all of it.
    """
    mask = rollout.responses.mask
    end = last_step(mask)
    advantage = gae(reward, rollout.value, next_values(rollout.value, mask), terminated=end, ended=end,
                    gamma=cfg.gamma, lam=cfg.lam, mask=mask)  # fmt: skip
    return advantage, advantage + rollout.value


def step_batch(rollout: TextRollout, advantage: Tensor, target: Tensor, *, cfg: KLConfig, cap: int) -> StepBatch:
    """What `ppo_update` learns from; ``cap`` is ``sampling.max_new_tokens``, whatever the longest answer here."""
    mask = rollout.responses.mask
    if faults.active("padding_counted"):
        mask = torch.ones_like(mask)
    return StepBatch(
        inputs=inputs_of(rollout.responses),
        old_logp=rollout.old_logp,
        old_value=rollout.value,
        advantage=advantage,
        return_=target,
        mask=mask,
        ref_logp=rollout.ref_logp if cfg.placement == "loss" else None,
        length=cap,
    )


def leash_of(beta: float, cfg: KLConfig) -> Leash:
    """The KL in the loss, or nothing where it is in the reward."""
    return Leash(beta if cfg.placement == "loss" else 0.0, cfg.estimator)


def adapt(beta: float, rollout: TextRollout, cfg: KLConfig) -> float:
    """The next β, from the summed k1 a sequence of the rollout just collected (Ziegler et al. 2019, sec. 2.2)."""
    if cfg.controller == "fixed":
        return beta
    kl = float(mean_ref_kl(rollout))
    n = len(rollout.responses)
    return next_beta(beta, kl, target=cfg.target, rule=cfg.controller, horizon=cfg.horizon, n_steps=n)


def mean_ref_kl(rollout: TextRollout) -> Tensor:
    """KL(π‖π_ref) from samples of π, nats a sequence."""
    return masked_mean(ref_kl_sum(rollout.forward_logp, rollout.ref_logp, rollout.responses.mask))
