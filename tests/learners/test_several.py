"""Settings, kinds and small parts of the learners for several processes, in one."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from learners.modules import TwoHeads
from small_runs import config
from torch import nn

from ppo_lab.config import ConfigError, build
from ppo_lab.config.scale import LearnerConfig
from ppo_lab.learners import Learner, collectives, processes
from ppo_lab.learners.ddp import BUCKET, DDPLearner, _buckets
from ppo_lab.learners.plain import PlainLearner
from ppo_lab.learners.sharding import checkpoint_sharded, is_sharded
from ppo_lab.learners.zero.replica import Replica
from ppo_lab.learners.zero.settings import deepspeed_settings


def zero(**changes):
    return deepspeed_settings(LearnerConfig(kind="zero", **changes), precision="no", max_norm=1.0, elements=1000)


def test_kinds(monkeypatch):
    assert [processes.kind_of(k) for k in ("auto", "plain", "ddp", "zero")] == ["plain", "plain", "ddp", "zero"]
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert [processes.kind_of(k) for k in ("auto", "ddp", "zero")] == ["ddp", "ddp", "zero"] and processes.first()
    with pytest.raises(ValueError, match="learner.kind plain needs 1 process, got 4"):
        processes.kind_of("plain")
    monkeypatch.setenv("RANK", "3")
    assert not processes.first()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"overlap": True, "stage": 1}, "learner.overlap needs learner.stage 2 or 3"),
        ({"offload": "all", "stage": 2}, "learner.offload all needs learner.stage 3"),
        ({"stage": 4}, "stage"),
        ({"patience": 0}, "patience"),
    ],
)
def test_settings_that_cannot_work_are_named(changes, message):
    with pytest.raises(ConfigError, match=message):
        build(LearnerConfig, changes)


def test_fp16_needs_a_loss_scale_and_half_precision_its_own_log_probs():
    with pytest.raises(ConfigError, match="precision fp16 needs learner.kind zero"):
        config(precision="fp16")
    with pytest.raises(ConfigError, match="must be recompute under precision fp16"):
        config(precision="fp16", learner__kind="zero", sampling__old_logp="sampler")


def test_deepspeed_is_told_what_the_config_says():
    three = zero()
    assert three["zero_optimization"]["stage"] == 3 and three["managed_gradient_accumulation"] is False
    assert three["zero_optimization"]["reduce_bucket_size"] == 1024, "no bucket is larger than the model"
    assert three["zero_optimization"]["stage3_param_persistence_threshold"] == 0
    assert "offload_optimizer" not in three["zero_optimization"] and "bf16" not in three
    assert "stage3_prefetch_bucket_size" not in zero(stage=2, overlap=True)["zero_optimization"]
    both = zero(offload="all")["zero_optimization"]
    assert {"offload_optimizer", "offload_param"} <= both.keys()
    cfg = LearnerConfig(kind="zero", offload="optimizer")
    frozen = deepspeed_settings(cfg, precision="fp16", max_norm=None, elements=10**10, frozen=True)
    assert "offload_optimizer" not in frozen["zero_optimization"] and frozen["gradient_clipping"] == 0.0
    assert frozen["zero_optimization"]["reduce_bucket_size"] == cfg.bucket
    assert (frozen["fp16"]["loss_scale"], 2 ** frozen["fp16"]["initial_scale_power"]) == (0, 65536)


def test_ddp_in_one_process_is_plain_to_the_bit():
    found = []
    for kind in (PlainLearner, DDPLearner):
        torch.manual_seed(0)
        learner = kind(TwoHeads(), actor_rate=0.1, critic_rate=0.2)
        assert isinstance(learner, Learner)
        for _ in range(3):
            seen = learner.forward(x=torch.arange(12.0).reshape(4, 3) / 12)
            learner.accumulate(seen["logits"].square().sum() + seen["value"].sum())
            learner.step()
        found.append(learner.state())
    assert found[0].keys() == found[1].keys() and all(torch.equal(x, found[1][name]) for name, x in found[0].items())


def test_buckets_keep_order_dtype_and_size():
    gradients = [torch.zeros(3), torch.zeros(2), torch.zeros(4, dtype=torch.float64), torch.zeros(1)]
    assert [len(b) for b in _buckets(gradients)] == [2, 1, 1]
    large = [torch.empty(BUCKET // 2 + 1, device="meta") for _ in range(3)]
    assert [len(b) for b in _buckets(large)] == [1, 1, 1] and list(_buckets([])) == []


def test_a_replica_has_the_structure_and_the_buffers_and_no_weights():
    module = nn.ModuleDict({"policy": nn.BatchNorm1d(4), "critic": nn.Linear(4, 4)})
    module["tied"] = module["policy"]
    replica = Replica(module, part="policy")
    assert [p.numel() for p in replica.copy.parameters()] == [0] * 4
    assert replica.copy["tied"].weight is replica.copy["policy"].weight
    assert replica.copy["policy"].running_mean is module["policy"].running_mean
    assert len(replica.pairs) == 2 and [p.numel() for p in module.parameters()] == [4, 4, 16, 4]


def test_recomputing_under_shards_gives_the_same_gradients():
    torch.manual_seed(0)
    layer, x = nn.Linear(3, 3), torch.randn(2, 3)
    assert not is_sharded(layer)
    layer.weight.ds_id = 0
    assert is_sharded(layer)
    want = torch.autograd.grad(torch.tanh(layer(x)).sum(), layer.weight)[0]
    checkpoint_sharded(lambda h: torch.tanh(layer(h)), x).sum().backward()  # x asks for no gradient itself
    assert torch.equal(layer.weight.grad, want) and x.grad is None


def test_alone_everything_is_itself():
    assert collectives.most(4) == 4 and collectives.texts(["a"]) == ["a"] and collectives.once(lambda: 3) == 3
    x = torch.ones(2)
    assert collectives.add(x) is x
    with collectives.standing("a reason", busy=True):
        assert collectives.EXCUSES == [("a reason", True)]
    assert not collectives.EXCUSES
    with pytest.raises(KeyError):
        collectives.once(lambda: {}["nothing"])


def test_learner_settings_may_change_on_resume(tmp_path):
    from ppo_lab.logbook import Logbook

    Logbook.open(tmp_path / "run", config(), resume=False, keep=1, trackers=())
    Logbook.open(tmp_path / "run", config(learner__stage=1, learner__kind="ddp"), resume=True, keep=1, trackers=())
    with pytest.raises(ConfigError, match="policy.lora.rank must be 0"):
        Logbook.open(tmp_path / "run", config(policy__lora={"rank": 1}), resume=True, keep=1, trackers=())
    older = (tmp_path / "run" / "config.yaml").read_text().split("learner:")
    text = older[0] + older[1][older[1].index("corpus:") :]
    (tmp_path / "run" / "config.yaml").write_text(text)  # written before there were learners
    Logbook.open(tmp_path / "run", config(), resume=True, keep=1, trackers=())


def test_reports_are_plain_data():
    from ppo_lab.learners.watchdog import Report

    assert set(dataclasses.asdict(Report())) == {"beat", "still", "idle", "where", "waits", "busy", "end"}
