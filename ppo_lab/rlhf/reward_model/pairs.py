"""Preference pairs: two answers to one prompt, and which of them was preferred."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from ppo_lab import seeding
from ppo_lab.config import ConfigError, RLHFConfig
from ppo_lab.config.callables import load_callable
from ppo_lab.config.language import RewardModelConfig

from ..corpus import Corpus, encode_prompts
from ..generate import generate
from ..gold import vader
from ..models.build import context_of
from ..score import Reward, checked
from ..tokens import decode_answers, join, pad_id, stop_ids, token_ids

Answer = Callable[[Sequence[str], int], list[str]]  # prompts and a seed to responses
ROUNDS = 20  # of drawing, before too few pairs is an error
SOME = 1e-9  # any difference at all: a tie has no better half


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """``chosen`` was preferred. ``gap`` is by how much the labeller's score of it is higher: below 0, a wrong label.

    Pairs of one ``group`` compare answers that were drawn together, so they share texts.
    """

    prompt: str
    chosen: str
    rejected: str
    gap: float
    group: int

    @property
    def texts(self) -> tuple[str, str]:
        """Both whole texts, chosen first, as the reward model reads them."""
        return join(self.prompt, self.chosen), join(self.prompt, self.rejected)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """No prompt stands on both sides."""

    train: list[Pair]
    held_out: list[Pair]


def preference_pairs(config: RLHFConfig, corpus: Corpus, *, seed: int, answer: Answer | None = None) -> Pairs:
    r"""Pairs as ``config.reward_model`` asks for.

    ``labels: ratings`` takes rated snippets of the human reviews. Otherwise ``answers`` responses to one prompt are
    scored by the labeller and each is compared with each (Ouyang et al. 2022, section 3.5): the first is preferred
    with probability :math:`\sigma((s_1 - s_2) / noise)`, so close calls are often wrong, as people's are. Ties are left
    out. Responses are the policy's own where ``answer`` gives them, which is what PPO will ask about; else they are
    texts of the corpus, without a prompt.

    Args:
        seed: keys which prompts, answers and labels.
        answer: ``f(prompts, seed) -> responses``, for example `answers_of`.

    Raises:
        ConfigError: too little to pair, or a labeller that gives something else than one finite number a text.
    """
    cfg = config.reward_model
    if cfg.labels == "ratings":
        return _rated(config, seed)
    label = vader if cfg.labels == "vader" else load_callable(cfg.labels, "reward_model.labels")

    def draw(split: str, n: int, prompts: list[str], texts: list[str]) -> list[Pair]:
        if answer is None:
            prompts, source = [""], _from_texts(texts)
        else:
            source = answer
        return _draw(split, n, prompts, source, label, cfg, seed)

    return Pairs(
        train=draw("train", cfg.pairs, corpus.train_prompts, corpus.train_texts),
        held_out=draw("held_out", cfg.held_out_pairs, corpus.held_out_prompts, corpus.held_out_texts),
    )


def answers_of(config: RLHFConfig, policy: Any, tokenizer: Any) -> Answer:
    """The policy as an `Answer`: sampled as in PPO, in words."""
    cfg = config.sampling
    suppress = token_ids(tokenizer, cfg.suppress, field="sampling.suppress")

    def answer(prompts: Sequence[str], seed: int) -> list[str]:
        encoded = encode_prompts(
            tokenizer, prompts, max_tokens=config.corpus.max_prompt_tokens, overlong="truncate",
            context=context_of(policy), max_new_tokens=cfg.max_new_tokens, chat=config.corpus.chat,
        )  # fmt: skip
        responses = generate(
            policy, encoded, max_new_tokens=cfg.max_new_tokens, stop_ids=stop_ids(tokenizer, cfg.stop),
            pad_id=pad_id(tokenizer), temperature=cfg.temperature, batch=cfg.batch or 512,
            suppress=torch.tensor(sorted(suppress)) if suppress else None,
            noise=seeding.uniforms(seed, "answers", range(len(prompts)), cfg.max_new_tokens),
        )  # fmt: skip
        return decode_answers(tokenizer, responses, chat=config.corpus.chat)

    return answer


def _draw(
    split: str, n: int, prompts: list[str], answer: Answer, label: Reward, cfg: RewardModelConfig, seed: int
) -> list[Pair]:
    """``n`` labelled pairs that differ enough, from as many rounds as that takes."""
    found: list[Pair] = []
    sides = list(combinations(range(cfg.answers), 2))
    for number in range(ROUNDS):
        groups = -(-(n - len(found)) // len(sides)) + n // 500 + 1  # a few more, since ties are left out
        order = seeding.permutation(len(prompts), "pairs", split, seed, number).tolist()
        asked = [prompts[order[i % len(order)]] for i in range(groups) for _ in range(cfg.answers)]
        said = answer(asked, seeding.key("pairs", split, seed, number))
        score = _scores(label, asked, said, cfg).reshape(groups, cfg.answers)
        gap = torch.stack([score[:, i] - score[:, j] for i, j in sides], dim=-1)
        noise = torch.rand(gap.shape, generator=seeding.generator("labels", split, seed, number), dtype=torch.float64)
        first_wins = prefers_first(gap, noise=cfg.noise, uniform=noise)
        for row, column in (gap.abs() >= max(cfg.min_gap, SOME)).nonzero().tolist():
            first, second = (said[row * cfg.answers + side] for side in sides[column])
            g, won = float(gap[row, column]), bool(first_wins[row, column])
            chosen, rejected, gain = (first, second, g) if won else (second, first, -g)
            prompt, group = asked[row * cfg.answers], number * n + row
            found.append(Pair(prompt=prompt, chosen=chosen, rejected=rejected, gap=gain, group=group))
        if len(found) >= n:
            return found[:n]
    raise ConfigError(
        f"reward_model.min_gap must leave {n} {split} pairs, got {len(found)} after {ROUNDS} "
        f"rounds at {cfg.min_gap}; lower it, or give more and more different texts"
    )


def prefers_first(gap: Tensor, *, noise: float, uniform: Tensor) -> Tensor:
    r"""Whether a rater prefers the first answer, which has probability :math:`\sigma(gap / noise)`; the better without.

    Args:
        gap: by how much the first is better, any shape. noise: in units of the gap; raising it makes more labels wrong.
        uniform: numbers in [0, 1), one a pair.

    >>> prefers_first(torch.tensor([0.3, 0.3]), noise=0.3, uniform=torch.tensor([0.7, 0.8]))
    tensor([ True, False])
    """
    return uniform < (torch.sigmoid(gap / noise) if noise else (gap > 0).double())


def _from_texts(texts: list[str]) -> Answer:
    """Texts of the corpus as answers to no prompt."""
    if len(texts) < 2:
        raise ConfigError(f"reward_model.pairs need at least two texts of the corpus to compare, got {len(texts)}")

    def answer(prompts: Sequence[str], seed: int) -> list[str]:
        chosen = torch.randint(len(texts), (len(prompts),), generator=seeding.generator("texts", seed))
        return [texts[i] for i in chosen]

    return answer


def _scores(label: Reward, prompts: list[str], responses: list[str], cfg: RewardModelConfig) -> Tensor:
    scores = checked(f"reward_model.labels {cfg.labels}", label(prompts, responses), len(responses), 1)
    return scores.double().reshape(-1)


def _rated(config: RLHFConfig, seed: int) -> Pairs:
    """Human ratings. Raters disagreed before their mean was taken, so no noise is added."""
    from ppo_lab.rlhf.reviews import load_reviews, review_pairs

    from ..corpus.sources import review_folder

    cfg, reviews = config.reward_model, load_reviews(review_folder(config.corpus))

    def pairs(n: int, split: str) -> list[Pair]:
        size = cfg.answers if split == "train" else 2  # held-out pairs share no snippet
        rated = review_pairs(reviews, n, seed=seed, min_gap=max(cfg.min_gap, SOME), split=split, group_size=size)
        return [Pair(prompt="", chosen=p.chosen, rejected=p.rejected, gap=p.gap, group=p.group) for p in rated]

    return Pairs(train=pairs(cfg.pairs, "train"), held_out=pairs(cfg.held_out_pairs, "held_out"))
