"""Training a reward model on pairs: Bradley–Terry, a pinned zero point, L2."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ppo_lab import seeding
from ppo_lab.config import ConfigError
from ppo_lab.config.language import RewardModelConfig
from ppo_lab.core.preferences import bradley_terry_loss, score_centering
from ppo_lab.core.schedules import warmup_cosine

from ..models.build import head_layer, random_state, train_last_layers
from ..tokens import encode_texts, pad_id, pad_rows
from .pairs import Pair, Pairs
from .quality import Quality, measure
from .score import ScoreReader, score_texts

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

WARMUP = 0.1  # share of the steps in which the rate rises
BETAS = (0.9, 0.98)  # a score begins as noise: a shorter memory of early gradients leaves that plateau sooner


def train_reward_model(
    model: nn.Module, tokenizer: PreTrainedTokenizerBase, pairs: Pairs, cfg: RewardModelConfig, *, seed: int
) -> Quality:
    r"""Fit scores to preferences, in place, and measure them on the held-out pairs.

    Minimises :math:`-\log\sigma(r_w - r_l) + c\,(r_w + r_l)^2`, mean over pairs, c = ``cfg.center``. Dropout is on as
    the model has it; order and dropout hang on ``seed`` alone.

    Args:
        model: sequence classification with one label; only its trainable parameters move, and of a model with
            ``cfg.trainable_layers`` only the last blocks, what follows them and the score. In eval mode afterwards.
        tokenizer: the model's own.
        pairs: from `preference_pairs`.

    Source: Ouyang et al. 2022, eq. 1; Eisenstein et al. 2023, eq. 2, for the second term.
    """
    if not pairs.train or not pairs.held_out:
        raise ConfigError(
            f"reward_model.pairs and held_out_pairs must leave pairs on both sides, got {len(pairs.train)} and "
            f"{len(pairs.held_out)}"
        )
    if cfg.trainable_layers is not None:
        train_last_layers(model, cfg.trainable_layers, field="reward_model.trainable_layers")
        head_layer(model).requires_grad_(True)
    started, reader = time.perf_counter(), ScoreReader(model)
    losses = _fit(reader, tokenizer, pairs.train, cfg, seed)
    model.eval()
    difference = differences(reader, tokenizer, pairs.held_out)
    gaps = torch.tensor([pair.gap for pair in pairs.held_out])
    train = differences(reader, tokenizer, pairs.train[: len(pairs.held_out)])  # as many say enough
    return Quality(
        labels=measure(difference),
        clean=measure(torch.where(gaps > 0, difference, -difference)),
        train_accuracy=float((train > 0).double().mean()),
        pairs=len(pairs.train),
        held_out_pairs=len(pairs.held_out),
        loss=tuple(round(float(loss), 6) for loss in losses),
        seconds=time.perf_counter() - started,
    )


def differences(reader: ScoreReader, tokenizer: PreTrainedTokenizerBase, pairs: Sequence[Pair]) -> Tensor:
    """Score of the chosen less score of the rejected, ``(N,)``."""
    texts = [pair.texts for pair in pairs]
    scores = score_texts(reader, tokenizer, [text for both in texts for text in both], batch=256)
    return scores[0::2] - scores[1::2]


def _fit(
    reader: ScoreReader, tokenizer: PreTrainedTokenizerBase, pairs: Sequence[Pair], cfg: RewardModelConfig, seed: int
) -> list[Tensor]:
    rows = encode_texts(tokenizer, [text for pair in pairs for text in pair.texts], close=True)
    trained = [p for p in reader.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=cfg.rate, betas=BETAS, weight_decay=cfg.weight_decay, fused=True)
    steps = list(_steps(pairs, cfg, seed))
    losses = []
    reader.train()
    with random_state("reward training", seed):
        for step, chosen in enumerate(steps):
            rate = warmup_cosine(step + 1, total=len(steps) + 1, warmup=max(1.0, WARMUP * len(steps)))
            for group in optimizer.param_groups:
                group["lr"] = cfg.rate * rate
            won, lost = _scores(reader, [rows[2 * i + side] for side in (0, 1) for i in chosen], pad_id(tokenizer))
            loss = (bradley_terry_loss(won, lost) + cfg.center * score_centering(won, lost)).mean()
            loss.backward()
            nn.utils.clip_grad_norm_(trained, 1.0)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.detach())
    return losses


def _steps(pairs: Sequence[Pair], cfg: RewardModelConfig, seed: int) -> Iterator[list[int]]:
    """Pairs of each step. Groups are shuffled, not pairs, so a step's pairs share their texts."""
    groups: dict[int, list[int]] = {}
    for i, pair in enumerate(pairs):
        groups.setdefault(pair.group, []).append(i)
    members = list(groups.values())
    for epoch in range(cfg.epochs):
        order = seeding.permutation(len(members), "reward training", seed, epoch).tolist()
        queue = [i for g in order for i in members[g]]
        yield from (queue[at : at + cfg.batch] for at in range(0, len(queue), cfg.batch))


def _scores(reader: ScoreReader, rows: Sequence[list[int]], fill: int) -> tuple[Tensor, Tensor]:
    """Scores of the first and of the second half of the rows; a text that comes twice is read once."""
    texts = sorted(set(map(tuple, rows)), key=lambda text: (len(text), text))
    scores = torch.cat([reader(*pad_rows(bucket, fill, side="right")) for bucket in _buckets(texts)])
    place = {text: i for i, text in enumerate(texts)}
    won, lost = scores[[place[tuple(row)] for row in rows]].chunk(2)
    return won, lost


def _buckets(texts: Sequence[tuple[int, ...]]) -> Iterator[Sequence[tuple[int, ...]]]:
    """Texts, sorted by length, in forwards of their own where a long one would pad a short one by half or more."""
    start = 0
    for i, text in enumerate(texts):
        if len(text) > 1.5 * len(texts[start]):
            yield texts[start:i]
            start = i
    yield texts[start:]
