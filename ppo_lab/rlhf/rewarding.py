"""Where rewards come from: trained here, a folder or hub name, a callable, the lexicon."""

from __future__ import annotations

import copy
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ppo_lab import seeding
from ppo_lab.config import ConfigError, RLHFConfig
from ppo_lab.config.callables import load_callable
from ppo_lab.learners import Learner
from ppo_lab.learners.collectives import most, once
from ppo_lab.learners.sharding import shards_weights
from ppo_lab.learners.unread import whole_copy

from .corpus import Corpus
from .corpus.language import language_reward
from .gold import vader
from .models.actor_critic import trunk_of
from .models.build import build_reward_model, load_reward_model, load_tokenizer, resolve
from .models.folders import save_folder
from .reward_model import (
    Quality,
    ScoreReader,
    answers_of,
    preference_pairs,
    read_quality,
    require_quality,
    score_texts,
    train_reward_model,
)
from .score import Reward, Scorer, Source
from .shaping import potential_of
from .tokens import join, same_tokenizer

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RewardModel:
    """A scalar model with its own tokenizer, and how good it is on held-out pairs where that was measured."""

    model: nn.Module
    tokenizer: Any
    quality: Quality | None = None

    def fits_critic(self, tokenizer: Any, policy: nn.Module) -> bool:
        """Causal, and of the policy's tokenizer: only then may a value be read from it at every token."""
        causal = self.model.config.model_type == policy.config.model_type  # type: ignore[union-attr]
        return causal and same_tokenizer(self.tokenizer, tokenizer)

    def reader(self) -> ScoreReader:
        """What the learner keeps frozen: tokens and attention in, scores out."""
        return ScoreReader(self.model)

    def copy_trunk(self) -> nn.Module:
        """The network below the score, to be trained as a critic."""
        return copy.deepcopy(trunk_of(self.model)).requires_grad_(True)


def check_sources(config: RLHFConfig) -> dict[int, Reward]:
    """Callables by source number, imported before any work is done; models are looked at when they are loaded."""
    found: dict[int, Reward] = {}
    if config.reward.potential is not None:
        potential_of(config.reward.potential)
    for i, source in enumerate(config.reward.sources):
        if source.kind == "callable":
            found[i] = load_callable(source.path, f"reward.sources.{i}.path")
        elif source.kind == "vader":
            found[i] = vader
        elif source.kind == "language":
            found[i] = language_reward(config.corpus, config.seed)
    return found


def obtain_reward_models(
    config: RLHFConfig, corpus: Corpus, policy: Any, tokenizer: Any, folder: Path
) -> dict[str, RewardModel]:
    """The reward models that the sources name, by `names_of`: from this run's folder, made now, or loaded.

    Raises:
        ConfigError: a model that is missing, or too weak on held-out pairs to start PPO on.
    """
    models: dict[str, RewardModel] = {}
    for i, source in enumerate(config.reward.sources):
        for member, name in enumerate(names_of(config, i)):
            if source.path is None:
                models[name] = _own(config, corpus, policy, tokenizer, folder, member)
            else:
                models[name] = _loaded(config, source.path, field=f"reward.sources.{i}.path")
            quality = models[name].quality
            if quality is not None:
                require_quality(quality, config.reward_model)
    return models


def _loaded(config: RLHFConfig, path: str, *, field: str) -> RewardModel:
    model = load_reward_model(path, seed=config.seed, field=field, read=not shards_weights(config.learner))
    return RewardModel(model, load_tokenizer(path, field=field), read_quality(resolve(path, field=field)))


def _own(config: RLHFConfig, corpus: Corpus, policy: Any, tokenizer: Any, folder: Path, member: int) -> RewardModel:
    """A Bradley–Terry model of this run; rank 0 makes it, and all load it."""
    folder = folder if member == 0 else folder.with_name(f"{folder.name}_{member}")
    once(lambda: _make(config, corpus, policy, tokenizer, folder, member))
    return _loaded(config, str(folder), field="reward_model.path")


def _make(config: RLHFConfig, corpus: Corpus, policy: Any, tokenizer: Any, folder: Path, member: int) -> None:
    """Member 0 is the model of a run without an ensemble; the others have seeds of their own."""
    cfg, base = config.reward_model, seeding.key(config.seed, "reward model")
    seed = base if member == 0 else seeding.key(config.seed, "reward model", member)
    if not folder.exists():
        policy = whole_copy(policy)
        if cfg.path is None:
            own, model = tokenizer, build_reward_model(policy, seed=seed)
        else:
            model, own = load_reward_model(cfg.path, seed=seed), load_tokenizer(cfg.path, field="reward_model.path")
        log.info("reward model %d of %d: %d pairs, labels from %s", member + 1, cfg.members, cfg.pairs, cfg.labels)
        drawn = base if cfg.member_pairs == "same" else seed
        pairs = preference_pairs(config, corpus, seed=drawn, answer=answers_of(config, policy, tokenizer))
        quality = train_reward_model(model, own, pairs, cfg, seed=seed)
        log.info("reward model: held-out pair accuracy %.3f", quality.accuracy)
        save_folder(folder, model, own, quality.figures())


def build_scorer(
    config: RLHFConfig, callables: dict[int, Reward], models: dict[str, RewardModel], learner: Learner
) -> Scorer:
    """All sources behind one scorer. Reward models are asked through the learner, which owns their weights."""
    sources = []
    for i, source in enumerate(config.reward.sources):
        if i in callables:
            sources.append(Source(source.path or source.kind, callables[i], source.weight, source.least))
        for name in names_of(config, i):
            reward = ask(learner, name, models[name].tokenizer, config.reward.batch)
            sources.append(Source(name, reward, source.weight, source.least, trusted=True))
    return Scorer(sources, config.reward)


def names_of(config: RLHFConfig, source: int) -> list[str]:
    """What the learner calls the models of a source: one, of the trained one as many as it has members."""
    found = config.reward.sources[source]
    if found.kind != "model":
        return []
    members = config.reward_model.members if found.path is None else 1
    return [f"reward_{source}" if m == 0 else f"reward_{source}_{m}" for m in range(members)]


def ask(learner: Learner, name: str, tokenizer: Any, batch: int) -> Reward:
    """A reward callable that reads prompt and response with the model's own tokenizer."""

    def reward(prompts: Sequence[str], responses: Sequence[str], **columns: list) -> Tensor:
        texts = [join(p, r) for p, r in zip(prompts, responses, strict=True)]
        calls = -(-most(len(texts)) // batch)
        return score_texts(lambda **inputs: learner.score(name, **inputs), tokenizer, texts, batch=batch, calls=calls)

    return reward


def given(config: RLHFConfig, reward: Reward) -> Scorer:
    """One callable handed over in Python."""
    if not callable(reward):
        kind = type(reward).__name__
        raise ConfigError(f"reward must be a callable reward(prompts, responses, **columns), got {kind}")
    return Scorer([Source(getattr(reward, "__name__", "reward"), reward)], config.reward)
