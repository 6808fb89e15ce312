"""From a config to four models in place: policy and critic trained, reference and reward model frozen.

SFT and reward model are made once and kept in ``models/`` of the run's folder as plain Hugging Face folders; what is
trained is always read back from there, so a resumed run stands on the same bytes as a fresh one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ppo_lab import seeding
from ppo_lab.checkpoint import hash_module
from ppo_lab.config import ConfigError, RLHFConfig
from ppo_lab.config.callables import load_callable
from ppo_lab.learners import Learner, processes
from ppo_lab.learners.collectives import everywhere, once
from ppo_lab.learners.ddp import DDPLearner
from ppo_lab.learners.plain import PlainLearner
from ppo_lab.learners.sharding import shards_weights
from ppo_lab.records import Prompts, TextRollout, take

from .assess import Lens
from .corpus import Corpus, encode_prompts, load_corpus
from .corpus.language import check_language
from .evaluate import HeldOut
from .generate import generate
from .models.actor_critic import ActorCritic, Reference, ValueHead, copy_trainable, trunk_of
from .models.adapters import add_adapters
from .models.build import blocks_of, build_policy, context_of, load_policy, load_tokenizer, train_last_layers
from .models.compiled import check_compiler, compile_trunks
from .models.folders import save_folder
from .models.partial import upper_trunk
from .models.recompute import recompute_blocks
from .models.traps import redraw_output
from .prompt_sampling import PromptOrder
from .ptx import PretrainingMix, mix_of
from .reward_model.score import ScoreReader
from .rewarding import RewardModel, build_scorer, check_sources, given, obtain_reward_models
from .score import Reward, Scorer, call
from .sft import train_sft
from .texts import Texts
from .tokens import first_difference, pad_id, same_tokenizer, stop_ids, token_ids, word_tokenizer

log = logging.getLogger(__name__)
Encode = Callable[[list[str]], Prompts]
MISPLACED = {  # docs/kl_estimators.md
    ("k2", "reward"): "it is a biased price there; k1 is not",
    ("k3", "reward"): "its push subtracts the gradient of KL(π_ref‖π) and can point the wrong way; k1's does not",
    ("k1", "loss"): "its expected gradient is zero there; k2's is that of the KL of a token",
    ("k3", "loss"): "its expected gradient is that of the other direction, KL(π_ref‖π); k2's is not",
}


@dataclass(frozen=True)
class Parts:
    """Everything a `Run` works with."""

    config: RLHFConfig
    corpus: Corpus
    tokenizer: Any
    learner: Learner
    scorer: Scorer
    texts: Texts
    prompts: Prompts
    held_out: HeldOut
    lens: Lens
    sampling: dict[str, Any]
    encode: Encode
    reference_sha256: str
    shares_tokenizer: bool  # some reward model reads with the policy's tokenizer
    mix: PretrainingMix | None  # texts beside the surrogate (PPO-ptx)
    order: PromptOrder  # which prompts come next

    def prompts_at(self, step: int) -> Prompts:
        """The prompts of one step, in an order keyed by the seed, each prompt ``samples`` times."""
        return take(self.prompts, self.order.rows(step).repeat_interleave(self.config.sampling.samples))

    def fit_normalizers(self) -> None:
        """Every reward judges answers of the untouched policy: its first test, and gain and bias of its score."""
        cfg = self.config
        order = seeding.permutation(len(self.prompts), cfg.seed, "reference")
        some = take(self.prompts, order[: cfg.reward.references])
        rows = self.learner.share(len(some))
        noise = seeding.uniforms(cfg.seed, "reference", range(len(some))[rows], cfg.sampling.max_new_tokens)
        with self.learner.whole() as actor:
            answers = generate(actor.policy, take(some, rows), noise=noise, **self.sampling)
        seam = first_difference(self.tokenizer, answers.tokens, answers.attention) if self.shares_tokenizer else None
        if seam is not None:  # B30
            log.warning("the reward model reads an answer's text otherwise than it was sampled: %s", seam)
        opinions = self.texts.opinions(self.scorer, answers)
        self.scorer.fit([self.learner.gather(opinion) for opinion in opinions])

    def gold_of(self, rollout: TextRollout) -> float | None:
        """Mean gold reward of a rollout, where the config names one."""
        gold, answers = self.held_out.gold, rollout.responses
        if gold is None:
            return None
        words = self.texts.prompts_of(answers), self.texts.responses_of(answers)
        timeout = self.config.reward.timeout
        asked = (*words, self.texts.columns_of(answers), 0, timeout)
        return float(everywhere(lambda: call("evaluation.gold", gold, *asked)).mean())

    def check_reference(self, sha256: str) -> None:
        """A resumed run must be held to the reference it started from (B35)."""
        if sha256 != self.reference_sha256:
            raise ConfigError(
                f"reference must have sha256 {sha256[:12]}… as in the checkpoint, got {self.reference_sha256[:12]}…; "
                "put the run's models/sft (or policy.path) back as it was"
            )


def prepare(config: RLHFConfig, folder: Path, *, reward: Reward | None = None) -> Parts:
    """Corpus, tokenizer, SFT policy, reward model, critic, learner.

    Raises:
        ConfigError: whatever is wrong with settings, files, models or the quality of the reward model.
    """
    gold, callables = gold_reward(config), {} if reward else check_sources(config)
    check_compiler(wanted=config.compile)
    corpus = load_corpus(config.corpus, seed=config.seed)
    policy, tokenizer, encode = obtain_policy(config, corpus, folder / "models" / "sft")
    prompts, held_out = encode(corpus.train_prompts), encode(corpus.held_out_prompts)
    order = PromptOrder(config.sampling, config.seed, [corpus.train_prompts[i] for i in prompts.index.tolist()],
                        prompts.attention.sum(-1))  # fmt: skip
    sampling = sampling_of(config, policy, tokenizer)
    if config.sampling.suppress:
        log.warning("sampling.suppress %s: never sampled, and masked in policy, old and reference alike",
                    ", ".join(config.sampling.suppress))  # fmt: skip
    kl = config.kl
    if kl.beta > 0 and (kl.estimator, kl.placement) in MISPLACED:
        log.warning("kl.estimator %s in the %s: %s", kl.estimator, kl.placement, MISPLACED[kl.estimator, kl.placement])
    lens = Lens(config.sampling.temperature, sampling["suppress"], config.sampling.batch,
                exact_kl=kl.placement == "loss" and kl.estimator == "exact")  # fmt: skip
    mix, own = mix_of(config, corpus, policy, tokenizer), folder / "models" / "reward_model"
    judges = {} if reward else obtain_reward_models(config, corpus, policy, tokenizer, own)
    if config.policy.trainable_layers is not None:
        train_last_layers(policy, config.policy.trainable_layers)
    if config.policy.lora.rank:
        add_adapters(policy, config.policy.lora, seed=seeding.key(config.seed, "adapters"))
    reference = Reference(copy_trainable(policy))
    reference_sha256 = once(lambda: hash_module(reference.policy))  # before a learner shards it
    frozen: dict[str, nn.Module] = {name: judge.reader() for name, judge in judges.items()}
    frozen["reference"] = reference
    learner = build_learner(config, build_actor_critic(config, policy, tokenizer, judges), frozen)
    scorer = given(config, reward) if reward else build_scorer(config, callables, judges, learner)
    cap, chat = config.sampling.max_new_tokens, config.corpus.chat
    held = HeldOut(
        prompts=take(held_out, slice(0, config.evaluation.prompts)),
        texts=Texts(tokenizer, corpus.held_out_prompts, corpus.held_out_columns, cap, chat),
        scorer=scorer, lens=lens, sampling=sampling, gold=gold, grammar=config.corpus.kind == "grammar",
    )  # fmt: skip
    texts = Texts(tokenizer, corpus.train_prompts, corpus.columns, cap, chat)
    return Parts(config=config, corpus=corpus, tokenizer=tokenizer, learner=learner, scorer=scorer, texts=texts,
                 prompts=prompts, held_out=held, lens=lens, sampling=sampling, encode=encode,
                 reference_sha256=reference_sha256, mix=mix, order=order,
                 shares_tokenizer=any(same_tokenizer(j.tokenizer, tokenizer) for j in judges.values()))  # fmt: skip


def build_learner(config: RLHFConfig, module: nn.Module, frozen: dict[str, nn.Module]) -> Learner:
    """Who owns the weights: one process, copies, or shards of them."""
    optimizer, kind = config.optimizer, processes.kind_of(config.learner.kind)
    every, what = config.learner.recompute_every, config.learner.recompute
    if every is not None:
        for part in (module.policy, module.critic):
            if part is not None:
                recompute_blocks(part, every=every, kind=what)  # type: ignore[arg-type]
    if config.compile:
        critic = [] if module.critic is None else [module.critic]
        readers = [part.model.base_model for part in frozen.values() if isinstance(part, ScoreReader)]
        compile_trunks([trunk_of(module.policy), *critic, trunk_of(frozen["reference"].policy), *readers])  # type: ignore
    settings: dict[str, Any] = dict(
        frozen=frozen, actor_rate=optimizer.actor_rate, critic_rate=optimizer.critic_rate, betas=optimizer.betas,
        eps=optimizer.eps, weight_decay=optimizer.weight_decay, max_norm=optimizer.max_norm,
        mixed_precision=config.precision,
    )  # fmt: skip
    if kind != "zero":
        return (PlainLearner if kind == "plain" else DDPLearner)(module, fused=True, **settings)
    from ppo_lab.learners.zero import ZeroLearner

    return ZeroLearner(module, cfg=config.learner, generator="policy", **settings)


def sampling_of(config: RLHFConfig, policy: Any, tokenizer: Any) -> dict[str, Any]:
    """What `generate` needs besides prompts and noise; one warning names what is filtered."""
    suppressed = token_ids(tokenizer, config.sampling.suppress, field="sampling.suppress")
    if config.corpus.kind == "language":
        check_language(config, tokenizer)
    in_step = (config.learner.kind, config.learner.stage, config.learner.generation) == ("zero", 3, "sharded")
    own_eos = getattr(getattr(policy, "generation_config", None), "eos_token_id", None)
    return {
        "max_new_tokens": config.sampling.max_new_tokens,
        "stop_ids": stop_ids(tokenizer, config.sampling.stop, eos=own_eos),
        "pad_id": pad_id(tokenizer),
        "temperature": config.sampling.temperature,
        "suppress": torch.tensor(sorted(suppressed)) if suppressed else None,
        "batch": config.sampling.batch,
        "in_step": in_step,
        "together": not in_step,  # where each token is a message, a rank that fails cannot tell the others
    }


def obtain_policy(config: RLHFConfig, corpus: Corpus, folder: Path) -> tuple[Any, Any, Encode]:
    """The policy before PPO, its tokenizer and prompt encoder: from the run's folder, or made now and put there.

    Rank 0 makes it, and all ranks load it; a learner that shards weights reads them later, each rank its shards.
    """
    read = not shards_weights(config.learner)
    if config.policy.path is not None and config.sft.steps == 0 and not folder.exists():
        return untrained_policy(config, corpus, read=read)
    once(lambda: None if folder.exists() else make_policy(config, corpus, folder))
    policy, tokenizer = load_policy(str(folder), read=read), load_tokenizer(str(folder))
    return policy, tokenizer, encoder(config, tokenizer, context_of(policy))


def untrained_policy(config: RLHFConfig, corpus: Corpus, *, read: bool = True) -> tuple[Any, Any, Encode]:
    """What the config names or describes, after prompts, stop tokens and sizes were checked against it."""
    if config.policy.path is None:
        tokenizer = word_tokenizer(corpus.train_texts + corpus.train_prompts + corpus.held_out_prompts)
    else:
        tokenizer = load_tokenizer(config.policy.path)
    policy = build_policy(config.policy, tokenizer, seed=seeding.key(config.seed, "policy"), read=read)
    encode = encoder(config, tokenizer, context_of(policy))
    encode(corpus.train_prompts + corpus.held_out_prompts)
    sampling_of(config, policy, tokenizer)
    return policy, tokenizer, encode


def make_policy(config: RLHFConfig, corpus: Corpus, folder: Path) -> None:
    """Supervised fine-tuning; the model is then in ``folder``."""
    policy, tokenizer, _ = untrained_policy(config, corpus)
    log.info("supervised fine-tuning, %d steps", config.sft.steps)
    figures = train_sft(policy, tokenizer, corpus.train_texts, config.sft, seed=seeding.key(config.seed, "sft"))
    save_folder(folder, policy, tokenizer, figures)


def encoder(config: RLHFConfig, tokenizer: Any, context: int) -> Encode:
    """Texts to left-padded prompts under the config's limits."""

    def encode(prompts: list[str]) -> Prompts:
        return encode_prompts(tokenizer, prompts, max_tokens=config.corpus.max_prompt_tokens,
                              overlong=config.corpus.overlong, context=context,
                              max_new_tokens=config.sampling.max_new_tokens, chat=config.corpus.chat)  # fmt: skip

    return encode


def build_actor_critic(
    config: RLHFConfig, policy: Any, tokenizer: Any, judges: dict[str, RewardModel]
) -> ActorCritic:
    """Policy with a value head, and the critic's trunk: from the reward model where that fits, else the policy's."""
    redraw_output(policy)
    generator = seeding.generator(config.seed, "value head")
    head = ValueHead(policy.config.hidden_size, kind=config.critic.head, std=config.critic.head_std,
                     generator=generator)  # fmt: skip
    cfg, trunk = config.critic, trunk_of(policy)
    if cfg.trunk == "shared" or cfg.shared_layers == len(blocks_of(policy)):
        return ActorCritic(policy, head, detach=cfg.detach)
    if cfg.shared_layers:
        upper = upper_trunk(trunk, cfg.shared_layers)
        return ActorCritic(policy, head, upper, shared_layers=cfg.shared_layers, detach=cfg.detach)
    fitting = [judge for judge in judges.values() if judge.fits_critic(tokenizer, policy)]
    if config.critic.init == "reward_model" and not fitting:
        raise ConfigError(
            "critic.init reward_model needs a causal reward model with the policy's tokenizer, and there is none; "
            "use critic.init: policy"
        )
    if cfg.init == "policy" or cfg.trunk == "partial" or not fitting:
        return ActorCritic(policy, head, copy_trainable(trunk))
    return ActorCritic(policy, head, fitting[0].copy_trunk(), origin="reward model")


def gold_reward(config: RLHFConfig) -> Reward | None:
    """The gold reward that is logged and never used to choose."""
    if config.evaluation.gold is None:
        return None
    if config.evaluation.gold == "vader":
        from .gold import vader

        return vader
    return load_callable(config.evaluation.gold, "evaluation.gold")
