"""Pressure on a proxy: reward models from few noisy pairs, PPO on a loose leash, and gold beside the score all the way.

A star, not a grid: one arm in the middle, and from it the number of pairs, the size of the reward model, β, or one
switch is changed. All arms of a seed share prompts and sampling noise, so differences between arms are paired.

The usual reward model stands on the policy's own trunk. A small one needs a trunk of its own: one block of width 32,
fine-tuned on the same texts by the same settings as the policy was. The critic starts from the policy in every arm,
since the small trunk is no start for it.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ppo_lab import seeding
from ppo_lab.config import RLHFConfig, load_config
from ppo_lab.config.language import PolicyConfig
from ppo_lab.records import Responses, take
from ppo_lab.rlhf import Run
from ppo_lab.rlhf.diversity import diversity
from ppo_lab.rlhf.evaluate import answer, judged
from ppo_lab.rlhf.generate import generate, trim
from ppo_lab.rlhf.gold import grammatical_share
from ppo_lab.rlhf.tokens import join

STEPS = 12
AT = (1, 2, 3, 4, 6, 8, 12)  # steps after which held-out prompts are answered: dense where KL is small
SAMPLES, LENGTH = 512, 8  # for diversity: answers, and tokens of each that are counted
SMALL = PolicyConfig(layers=1, width=32, heads=4, context=64)
PAIRS = (1000, 2000, 4000)
BETAS = (0.0, 0.05, 0.2)
MIDDLE = 2000
AVERAGE = "average"


@dataclass(frozen=True, slots=True)
class Arm:
    """One setting of the star; ``settings`` are further overrides of the config."""

    name: str
    pairs: int = MIDDLE
    small: bool = False
    beta: float = 0.0
    settings: tuple[str, ...] = ()


JUDGES = (
    Arm("middle", settings=("policy.ema=0.8",)),
    *(Arm(f"pairs {n}", pairs=n) for n in PAIRS if n != MIDDLE),
)
LEASHES = (Arm("small", small=True), *(Arm(f"beta {beta:g}", beta=beta) for beta in BETAS if beta))
MEMBERS = 4
SWITCHES = (
    *(Arm(rule, settings=(f"reward_model.members={MEMBERS}", f"reward.combine={rule}"))
      for rule in ("mean", "min", "mean_minus_std")),
    Arm("ptx", settings=("ppo.ptx_coef=0.5",)),
)  # fmt: skip


def config_of(arm: Arm, seed: int, trunk: str | None = None) -> RLHFConfig:
    """What a run of this arm does; ``trunk``: folder of the small language model, where the arm asks for one."""
    found = load_config("rlhf/start", [
        f"name=hack_{seed}", f"seed={seed}", f"steps={STEPS}", f"kl.beta={arm.beta}", "reward.sources=[{kind: model}]",
        f"reward_model.pairs={arm.pairs}", "reward_model.answers=8", "reward_model.noise=0.15",
        "reward_model.held_out_pairs=400", "reward_model.allow_weak_reward_model=true", "reward.batch=256",
        "critic.init=policy", "sampling.prompts=64", "ppo.epochs=2", "ppo.minibatches=2",
        "optimizer.actor_rate=8e-4", "optimizer.schedule=constant",
        "evaluation.every=1000", "evaluation.prompts=96", "checkpoint.every=1000",
        *([f"reward_model.path={trunk}"] if arm.small else []), *arm.settings,
    ])  # fmt: skip
    assert isinstance(found, RLHFConfig)
    return found


def small_trunk(folder: Path) -> str:
    """The small language model, made once: same texts, steps and rate as the shipped policy, seed 0."""
    from ppo_lab.course.experiments.preferences import shipped
    from ppo_lab.rlhf.models.build import build_policy
    from ppo_lab.rlhf.models.folders import save_folder
    from ppo_lab.rlhf.sft import train_sft

    if not folder.exists():
        _, tokenizer, corpus = shipped()
        model = build_policy(SMALL, tokenizer, seed=0)
        sft = load_config("rlhf/demo", world=RLHFConfig).sft
        save_folder(folder, model, tokenizer, train_sft(model, tokenizer, corpus.train_texts, sft, seed=0))
    return str(folder)


def started(arm: Arm, seed: int, work: Path) -> Run:
    """A run of this arm; reward models that an earlier arm of the seed trained on the same pairs are taken over."""
    config = config_of(arm, seed, small_trunk(work / "small") if arm.small else None)
    folder, kept = work / f"{arm.name}_{seed}", work / f"judges_{arm.pairs}_{arm.small}_{seed}"
    if kept.exists():
        shutil.copytree(kept, folder / "models")
    run = Run(config, folder=folder)
    kept.mkdir(exist_ok=True)
    for model in (folder / "models").glob("reward_model*"):
        shutil.copytree(model, kept / model.name, dirs_exist_ok=True)
    return run


def curve(run: Run, arm: Arm, seed: int) -> Iterator[dict[str, Any]]:
    """Train; a row before the first step and after each of `AT`: KL, proxy, gold, share of grammatical texts.

    Means over 96 held-out prompts with the same noise each time. ``proxy`` is in deviations of the untouched policy's
    scores; gold is VADER's, and ``gold_std`` its deviation over the untouched policy's answers. A run that keeps an
    average of its weights, which its training never sees, has rows of the arm `AVERAGE` besides.
    """
    where = {"arm": arm.name, "seed": seed}
    accuracy = round(judge_accuracy(run), 4)
    before = look(run)
    spread = round(float(before["gold"].std()), 5)
    yield {**where, "step": 0, **means(before), "kl": 0.0, "gold_std": spread, "accuracy": accuracy}
    for i, _ in enumerate(run, start=1):
        if i in AT:
            yield {**where, "step": i, **means(look(run)), "gold_std": spread, "accuracy": accuracy}
            if run.config.policy.ema is not None and i in AT[-3:]:
                with run.learner.averaged():
                    yield {**where, "arm": AVERAGE, "step": i, **means(look(run)), "gold_std": spread,
                           "accuracy": accuracy}  # fmt: skip


def judge_accuracy(run: Run) -> float:
    """Share of the held-out pairs, labels without mistakes, that the run's first reward model orders rightly."""
    from ppo_lab.rlhf.models.folders import read_figures

    figures = read_figures(run.folder / "models" / "reward_model")
    assert figures is not None
    return float(figures["clean"]["accuracy"])


def look(run: Run) -> dict[str, Any]:
    """Answers to the held-out prompts, judged; see `rlhf.evaluate.judged`."""
    answers = answer(run.learner, run.parts.held_out, seed=run.config.seed, greedy=False)
    return judged(run.learner, run.parts.held_out, answers, run.config)


def means(seen: dict[str, Any]) -> dict[str, float]:
    """KL, proxy, gold, grammatical share."""
    said = [join(p, r) for p, r in zip(seen["prompt"], seen["response"], strict=True)]
    return {"kl": round(float(seen["ref_kl_sum"].double().mean()), 4),
            "proxy": round(float(seen["score"].double().mean()), 4),
            "gold": round(float(seen["gold"].double().mean()), 5),
            "grammatical": round(grammatical_share(said), 4)}  # fmt: skip


def sampled(run: Run, temperature: float = 1.0, *, untouched: bool = False) -> tuple[Responses, dict[str, Any]]:
    """`SAMPLES` answers to held-out prompts of the trained policy or the untouched one, the same noise, judged."""
    parts, n = run.parts, SAMPLES
    prompts = take(parts.held_out.prompts, torch.arange(n) % len(parts.held_out.prompts))
    noise = seeding.uniforms(run.config.seed, "diversity", range(n), run.config.sampling.max_new_tokens)
    options = {**parts.sampling, "temperature": temperature}
    with run.learner.whole() as actor:
        policy = run.learner.frozen["reference"].policy if untouched else actor.policy  # type: ignore[attr-defined]
        answers = trim(generate(policy, prompts, noise=noise, **options))
    return answers, judged(run.learner, parts.held_out, answers, run.config)


def diversity_row(
    answers: Responses, seen: dict[str, Any], arm: str, seed: int, temperature: float = 1.0
) -> dict[str, Any]:
    """How different answers are, at a fixed length, with gold and grammar beside."""
    found = diversity(answers.response, answers.mask, length=LENGTH)
    said = means(seen)
    return {"arm": arm, "seed": seed, "temperature": temperature,
            "distinct_2": found.distinct_2, "entropy_2": found.entropy_2, "unique": round(found.unique, 4),
            "repeated": round(found.repeated, 4), "proxy": said["proxy"], "gold": said["gold"],
            "grammatical": said["grammatical"]}  # fmt: skip


def ugliest(
    seen: dict[str, Any], arm: Arm, seed: int, *, gold_mean: float, gold_std: float
) -> Iterator[dict[str, Any]]:
    """Of judged answers the one whose proxy is farthest above its gold, and the same of the grammatical ones.

    Both in deviations of the untouched policy's answers. The rule was fixed before a run was made; the first of equals.
    """
    gap = widest(seen["score"], seen["gold"], gold_mean=gold_mean, gold_std=gold_std)
    said = [join(p, r) for p, r in zip(seen["prompt"], seen["response"], strict=True)]
    grammatical = torch.tensor([grammatical_share([text]) > 0 for text in said])
    for among, where in (("all", torch.ones_like(grammatical)), ("grammatical", grammatical)):
        if where.any():
            i = int(gap.masked_fill(~where, -torch.inf).argmax())
            numbers = {"proxy": seen["score"][i], "gold": seen["gold"][i], "gap": gap[i]}
            yield {"arm": arm.name, "seed": seed, "among": among, "text": said[i],
                   **{key: round(float(x), 4) for key, x in numbers.items()}}  # fmt: skip


def widest(proxy: Tensor, gold: Tensor, *, gold_mean: float, gold_std: float) -> Tensor:
    """Proxy less gold, gold standardised as the proxy is, ``(N,)`` float64.

    >>> widest(torch.tensor([1.0]), torch.tensor([0.5]), gold_mean=0.0, gold_std=0.5)
    tensor([0.], dtype=torch.float64)
    """
    return proxy.double() - (gold.double() - gold_mean) / gold_std
