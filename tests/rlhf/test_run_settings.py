"""Settings of the recipe on a tiny model: bad input, weak rewards, warm-up, KL in the loss, sharing, precision."""

from __future__ import annotations

import math

import pytest
import torch
from small_runs import BASE, config

from ppo_lab import checkpoint
from ppo_lab.config import ConfigError
from ppo_lab.core.masking import masked_sum
from ppo_lab.rlhf import Run
from ppo_lab.rlhf.score import RewardError
from ppo_lab.rlhf.steps import rewards_of


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"corpus__max_prompt_tokens": 2}, "corpus.max_prompt_tokens allows 2 tokens"),
        ({"sampling__stop": ["nonsense"]}, "sampling.stop must name single tokens"),
        ({"sampling__suppress": ["nonsense"]}, "sampling.suppress must name single tokens"),
        ({"policy__path": "/no/such/model"}, "policy.path must name an existing folder"),
        ({"policy__trainable_layers": 9}, "policy.trainable_layers must be at most the 2 blocks"),
        ({"evaluation__gold": "no_such_module:f"}, "evaluation.gold: importing no_such_module"),
        ({"reward__sources": [{"kind": "callable", "path": "mine"}]}, "reward.sources.0.path must read module:"),
        ({"corpus__kind": "jsonl", "corpus__path": "/no/such.jsonl"}, "corpus.path must name an existing file"),
    ],
)
def test_bad_input_is_known_before_any_training(tmp_path, changes, message):
    with pytest.raises(ConfigError, match=message):
        Run(config(**changes), folder=tmp_path / "run")
    assert not (tmp_path / "run" / "models").exists()


def test_a_weak_reward_model_stops_ppo_and_may_be_allowed_on_resume(tmp_path):
    weak = {"pairs": 8, "held_out_pairs": 40, "epochs": 1, "threshold": 0.99}
    changes = dict(steps=1, reward__sources=[{"kind": "model"}], reward_model=weak)
    with pytest.raises(ConfigError, match="reward_model.threshold asks for held-out pair accuracy 0.99"):
        Run(config(**changes), folder=tmp_path / "run")
    allowed = config(**changes | {"reward_model": weak | {"allow_weak_reward_model": True}})
    run = Run(allowed, folder=tmp_path / "run", resume=True)
    assert next(iter(run)).step == 1
    critic = run.learner.module.critic
    assert type(critic).__name__ == "LlamaModel", "the critic starts from the reward model"


def test_a_warming_critic_learns_alone(tmp_path):
    run = Run(config(steps=1, critic__warmup=1), folder=tmp_path / "run")
    before = {n: p.clone() for n, p in run.learner.module.named_parameters()}
    step = next(iter(run))
    moved = {n for n, p in run.learner.module.named_parameters() if not torch.equal(p, before[n])}
    assert moved and not any(n.startswith("policy.") for n in moved)
    assert step.update.policy_steps == 0 < step.update.optimizer_steps and step.actor_rate == 0.0


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3", "exact"])
def test_kl_in_the_loss(tmp_path, estimator):
    run = Run(config(steps=2, kl__placement="loss", kl__estimator=estimator), folder=tmp_path / "run")
    first, second = run
    assert first.update.ref_kl_loss is not None and first.non_score_reward == 0.0
    if estimator in ("k2", "k3", "exact"):
        assert second.update.ref_kl_loss > 0
    mask = run.last_rollout.responses.mask
    reward = rewards_of(run.last_rollout, beta=run.beta, cfg=run.config.kl)
    assert torch.allclose(masked_sum(reward, mask, dim=-1), run.last_rollout.score)


@pytest.mark.parametrize(
    ("estimator", "placement", "word"),
    [("k1", "reward", None), ("k2", "reward", "biased price"), ("k3", "reward", "can point the wrong way"),
     ("k1", "loss", "gradient is zero"), ("k2", "loss", None), ("k3", "loss", "other direction")],
)  # fmt: skip
def test_an_estimator_out_of_its_place_is_named_once(tmp_path, caplog, estimator, placement, word):
    Run(config(steps=1, sft__steps=1, kl__placement=placement, kl__estimator=estimator), folder=tmp_path / "run")
    told = [r.message for r in caplog.records if "kl.estimator" in r.message]
    assert len(told) == (word is not None) and all(f"{estimator} in the {placement}: " in t and word in t for t in told)


def test_shared_trunk_is_one_object_and_belongs_to_the_actor_b24(tmp_path, recwarn):
    run = Run(config(steps=2, critic__trunk="shared"), folder=tmp_path / "run")
    list(run)
    module = run.learner.module
    groups = module.parameter_groups()
    names = [n for group in groups.values() for n, _ in group]
    assert len(names) == len({id(p) for group in groups.values() for _, p in group})
    assert {n.split(".")[0] for n, _ in groups["critic"]} == {"head"}
    again = Run(config(steps=2, critic__trunk="shared"), folder=tmp_path / "run", resume=True)
    assert again.learner.module.critic is None
    assert not [w for w in recwarn if "duplicate" in str(w.message)]


def test_last_layers_only(tmp_path):
    run = Run(config(steps=2, policy__trainable_layers=1), folder=tmp_path / "run")
    before = {n: p.clone() for n, p in run.learner.module.named_parameters()}
    list(run)
    module, reference = run.learner.module, run.learner.frozen["reference"].policy
    still = [n for n, p in module.policy.named_parameters() if torch.equal(p, before[f"policy.{n}"])]
    assert any("layers.0." in n for n in still) and not any("layers.1." in n for n in still)
    frozen, trained = (f"model.layers.{i}.mlp.up_proj.weight" for i in (0, 1))
    theirs, mine = dict(reference.named_parameters()), dict(module.policy.named_parameters())
    assert theirs[frozen] is mine[frozen], "frozen layers are in memory once"
    assert not torch.equal(theirs[trained], mine[trained])
    stored, _ = checkpoint.load(checkpoint.latest(run.folder))
    assert not any("policy.model.layers.0." in name or "critic.layers.0." in name for name in stored)


def test_a_process_reward_is_added_token_by_token(tmp_path):
    from ppo_lab.config.language import KLConfig

    cap = BASE["sampling"]["max_new_tokens"]
    with pytest.raises(RewardError, match=rf"return \(\d+,\) .* or \(\d+, {cap}\)"):
        Run(config(steps=1), folder=tmp_path / "bad", reward=lambda p, r, **_: torch.zeros(len(r), 3))
    ramp = torch.arange(cap) / 10
    run = Run(config(steps=1), folder=tmp_path / "run", reward=lambda p, r, **_: ramp.expand(len(r), cap))
    step, rollout = next(iter(run)), run.last_rollout
    mask = rollout.responses.mask
    assert torch.equal(rollout.token_score, torch.where(mask, ramp[: mask.shape[1]], torch.zeros(())))
    assert torch.allclose(rewards_of(rollout, beta=0.0, cfg=KLConfig()), rollout.token_score)
    assert step.score_mean == 0.0 and step.reward_mean > 0


def test_answers_are_weighed_by_the_cap_and_not_by_the_longest_one(tmp_path, monkeypatch):
    from ppo_lab.rlhf import train

    seen = []

    def watched(learner, batch, *args, **options):
        seen.append(batch)
        return ppo_update(learner, batch, *args, **options)

    ppo_update = train.ppo_update
    monkeypatch.setattr(train, "ppo_update", watched)
    words = ". the it a and is was in not i we while that but to picture this very movie has".split()
    short = dict(sampling__max_new_tokens=40, sampling__stop=words)  # all answers end before the cap
    run = Run(config(steps=1, ppo__reduction="fixed_length", **short), folder=tmp_path / "run")
    next(iter(run))
    assert seen[0].mask.shape[-1] < seen[0].length == 40


def test_folders_are_not_mixed(tmp_path):
    run = Run(config(steps=1), folder=tmp_path / "run")
    list(run)
    with pytest.raises(ConfigError, match="folder must be new"):
        Run(config(steps=1), folder=tmp_path / "run")
    with pytest.raises(ConfigError, match=r"ppo.epochs must be 2 as in .* got 3"):
        Run(config(steps=1, ppo__epochs=3), folder=tmp_path / "run", resume=True)
    with pytest.raises(ConfigError, match="folder must hold a run to resume"):
        Run(config(steps=1), folder=tmp_path / "none", resume=True)


def test_bf16_runs_with_float32_values_b27(tmp_path):
    run = Run(config(steps=1, precision="bf16"), folder=tmp_path / "run")
    step = next(iter(run))
    assert run.last_rollout.value.dtype == torch.float32 and math.isfinite(step.update.value_loss)


def test_suppressed_tokens_warn_once_and_stay_out_of_every_ratio_b08(tmp_path, caplog):
    run = Run(config(steps=1, sampling__suppress=["<eos>"]), folder=tmp_path / "run")
    step = next(iter(run))
    assert [r.message for r in caplog.records if "suppress" in r.message] and step.stop_rate == 0.0
    assert sum("suppress" in r.message for r in caplog.records) == 1
    assert step.update.first_ratio_error < 1e-6 and step.sampler_mismatch < 1e-4
