"""PPO on a language whose optimum is known: the stations of `Run`, one by one, on tables instead of transformers.

Sampling, KL in the reward, GAE and the update are the functions that train real models; only the models are tables
(`ppo_lab.exact.tabular`) and the reward is looked up. γ = 1, temperature 1 and no scaling of the score, or the optimum
would be another one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ppo_lab import seeding
from ppo_lab.config.language import KLConfig
from ppo_lab.config.ppo import OptimizerConfig, PPOConfig
from ppo_lab.exact.language import Language, enumerate_model
from ppo_lab.exact.optimum import Comparison, compare
from ppo_lab.exact.tabular import TabularActorCritic, TabularReference
from ppo_lab.learners.plain import PlainLearner
from ppo_lab.learners.rates import rate_multiplier
from ppo_lab.records import Prompts, TextRollout, UpdateMetrics
from ppo_lab.update import ppo_update

from .assess import Lens, make_assess, opinions
from .corpus.language import PROMPT, language_of, words_of
from .generate import generate
from .steps import advantages, leash_of, rewards_of, step_batch
from .tokens import encode_texts

if TYPE_CHECKING:
    from .train import Run

# One setting for β from 0.05 to 0.5. What counts is the narrow clip: at 0.2 and a small β, the policy has left rare
# prefixes before it knows what they are worth.
PPO = PPOConfig(epochs=4, minibatches=1, clip=0.05, value_coef=1.0, value_clip=None, standardize="none")
OPTIMIZER = OptimizerConfig(actor_rate=0.1, critic_rate=0.1, max_norm=None, schedule="linear")


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where the policy stands after a step, exactly, and what the update reported."""

    step: int
    samples: int  # sequences drawn so far
    exact: Comparison
    logp: Tensor  # (S,) of every sequence
    update: UpdateMetrics


def solve_by_ppo(
    language: Language,
    *,
    beta: float,
    seed: int,
    iterations: int = 300,
    samples: int = 256,
    cfg: PPOConfig = PPO,
    optimizer: OptimizerConfig = OPTIMIZER,
    kl: KLConfig | None = None,
) -> Iterator[Progress]:
    """Train a table from π_ref towards π*, yielding one `Progress` a step.

    Args:
        language: what can be said, and what it pays.
        beta: price of a nat of KL(π‖π_ref).
        seed: of the sampling noise and the permutations.
        iterations: PPO steps.
        samples: sequences a step.
        cfg, optimizer: of the update, as in any run.
        kl: where the KL stands and how it is estimated; None: k1 in the reward. Its β is not read.
    """
    kl = kl or KLConfig()
    model = TabularActorCritic(language)
    learner = PlainLearner(
        model, frozen={"reference": TabularReference(language)}, device="cpu",
        actor_rate=optimizer.actor_rate, critic_rate=optimizer.critic_rate, betas=optimizer.betas, eps=optimizer.eps,
        weight_decay=optimizer.weight_decay, max_norm=optimizer.max_norm,
    )  # fmt: skip
    lens = Lens(exact_kl=kl.placement == "loss" and kl.estimator == "exact")
    assess, ref_logp = make_assess(lens), language.ref_logp
    for step in range(iterations):
        noise = seeding.uniforms(seed, step, range(samples), language.length)
        rollout = observe(learner, language, noise, lens)
        reward = rewards_of(rollout, beta=beta, cfg=kl)
        advantage, target = advantages(rollout, reward, cfg)
        batch = step_batch(rollout, advantage, target, cfg=kl, cap=language.length)
        rate = rate_multiplier(step, optimizer, total=iterations)
        update = ppo_update(learner, batch, assess, cfg, seed=seeding.key(seed, step), actor=rate, critic=rate,
                            leash=leash_of(beta, kl))  # fmt: skip
        logp = language.logp_of(model.policy.table().detach())
        exact = compare(logp, ref_logp, language.reward, beta=beta)
        yield Progress(step=step + 1, samples=(step + 1) * samples, exact=exact, logp=logp, update=update)


def observe(learner: PlainLearner, language: Language, noise: Tensor, lens: Lens) -> TextRollout:
    """Sequences sampled with this noise ``(B, T)``, what policy, critic and reference say of them, and their reward."""
    rows = len(noise)
    nothing = Prompts(tokens=torch.zeros(rows, 1, dtype=torch.long), index=torch.zeros(rows, dtype=torch.long),
                      attention=torch.ones(rows, 1, dtype=torch.bool))  # fmt: skip
    stop = set() if language.stop is None else {language.stop}
    with learner.whole() as actor:
        responses = generate(actor.policy, nothing, max_new_tokens=language.length, stop_ids=stop, pad_id=0,
                             noise=noise)  # fmt: skip
    seen = opinions(learner, responses, lens)
    score = language.reward[language.index_of(responses.response)]
    return TextRollout(
        responses=responses, old_logp=seen["logp"], forward_logp=seen["logp"], ref_logp=seen["ref_logp"],
        value=seen["value"], entropy=seen["entropy"], raw_score=score, score=score,
    )  # fmt: skip


def enumerate_run(run: Run) -> tuple[Language, Tensor, Tensor]:
    """The language of a run over ``corpus.kind: language``, and log π and log π_ref of its sequences, ``(S,)`` each."""
    cfg, tokenizer, learner = run.config, run.parts.tokenizer, run.learner
    language = language_of(cfg.corpus, cfg.seed)
    ids = tokenizer.convert_tokens_to_ids(words_of(language))
    ids += [] if language.stop is None else [tokenizer.eos_token_id]
    prompt = torch.tensor(encode_texts(tokenizer, [PROMPT])[0])
    suppress = tokenizer.convert_tokens_to_ids(list(cfg.sampling.suppress))

    def logp(model: Any) -> Tensor:
        return enumerate_model(model, language, prompt, ids, suppress=suppress, temperature=cfg.sampling.temperature)

    with learner.whole() as actor:
        return language, logp(actor.policy), logp(learner.frozen["reference"].policy)  # type: ignore[attr-defined]


def compare_run(run: Run) -> Comparison:
    """A run's present policy against the optimum over its own reference, at the config's β, by enumeration."""
    language, logp, ref_logp = enumerate_run(run)
    return compare(logp, ref_logp, language.reward, beta=run.config.kl.beta)
