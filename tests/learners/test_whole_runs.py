"""Whole runs on two processes equal one process: ddp, ZeRO 1 to 3, every way to share the rows out, and checkpoints."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from learners.gloo import TESTS
from learners.whole_runs import assert_equal_runs, keep, kept, record, settings, start

from ppo_lab import checkpoint
from ppo_lab.checkpoint import hash_module
from ppo_lab.rlhf import logprobs
from ppo_lab.rlhf.export import export
from ppo_lab.rlhf.models.build import load_policy, load_reward_model, load_tokenizer, quiet
from ppo_lab.scale.launch import launch

pytestmark = pytest.mark.distributed
WORLD = 2
ZERO: dict[str, Any] = {"kind": "zero"}
FEW: dict[str, Any] = {"steps": 2, "evaluation": {"every": 1}, "checkpoint": {"every": 1}}
ONE_ROW = {"sampling": {"prompts": 1, "samples": 1}}
STOP = {"ppo": {"target_kl": 1e-5, "epochs": 3, "minibatches": 1}, "optimizer": {"actor_rate": 3e-3}}
STOPS = ". a and are but great had has i in is it not of the this to very was we were while".split()
# one answer's summed KL has no mean to lie in: over ten tokens float32 rounds log-probs of size 4 by more than 1e-6
ONE_SHORT_ROW = {"sampling": {**ONE_ROW["sampling"], "max_new_tokens": 4}}
LENGTHS = {"sampling": {"prompts": 3, "stop": STOPS}}
ADAPTERS = {"policy": {"lora": {"rank": 2}}}
SELECTIVE = {"recompute_every": 1, "recompute": "selective"}
HALVES = {"policy": {"trainable_layers": 1}}
RUNS: dict[str, dict[str, Any]] = {
    "ddp": {"learner": {"kind": "ddp"}},
    "zero1": {"learner": {**ZERO, "stage": 1}},
    "zero2": {"learner": {**ZERO, "stage": 2}},
    "zero3": {"learner": ZERO},
    "one_row": {"learner": ZERO, **FEW, **ONE_ROW},
    "early_stop1": {"learner": {**ZERO, "stage": 1}, **FEW, **STOP},
    "early_stop3": {"learner": ZERO, **FEW, **STOP},
    "lengths": {"learner": ZERO, **FEW, **LENGTHS, "reward": {"normalize": "running"}},
    "sharded": {"learner": {**ZERO, "generation": "sharded"}, **FEW, **LENGTHS},
    "recomputed": {"learner": {**ZERO, "recompute_every": 1}, **FEW},
    "recomputed2": {"learner": {**ZERO, "stage": 2, "recompute_every": 2}, **FEW, **HALVES},
    "overlap2": {"learner": {**ZERO, "stage": 2, "overlap": True}, **FEW},
    "overlap3": {"learner": {**ZERO, "overlap": True}, **FEW},
    "selective_ddp": {"learner": {"kind": "ddp", **SELECTIVE}, **FEW},
    "selective2": {"learner": {**ZERO, "stage": 2, **SELECTIVE}, **FEW},
    "selective3": {"learner": {**ZERO, **SELECTIVE}, **FEW},
    "chunks": {"learner": ZERO, **FEW},
    "adapters": {"learner": {**ZERO, "recompute_every": 1}, **FEW, **ADAPTERS},
    "last_layers": {"learner": ZERO, **FEW, **HALVES},
    "offload": {"learner": {**ZERO, "offload": "all"}, **FEW},
    "offload2": {"learner": {**ZERO, "offload": "optimizer", "stage": 2}, **FEW, **STOP},
    "shared": {"learner": {**ZERO, "persistence_threshold": 1000}, "critic": {"trunk": "shared", "warmup": 1}, **FEW},
    "partial": {"learner": ZERO, **FEW, "critic": {"trunk": "partial", "shared_layers": 1}},
    "partial_cut": {"learner": {**ZERO, "recompute_every": 1}, **FEW, **ADAPTERS,
                    "critic": {"trunk": "partial", "shared_layers": 1, "detach": True, "warmup": 1}},
    "partial_ddp": {"learner": {"kind": "ddp"}, **FEW, "critic": {"trunk": "partial", "shared_layers": 1}},
    "ptx": {"learner": ZERO, **FEW, "ppo": {"ptx_coef": 0.5, "ptx_batch": 5, "micro_batch": 2}},
    "ptx_ddp": {"learner": {"kind": "ddp"}, **FEW, "ppo": {"ptx_coef": 0.5, "ptx_batch": 3}, **ONE_SHORT_ROW},
    "average": {"learner": ZERO, **FEW, "policy": {"ema": 0.6}, "critic": {"trunk": "shared"}},
    "average2": {"learner": {**ZERO, "stage": 2, "offload": "optimizer"}, **FEW, "policy": {"ema": 0.6}},
    "average_ddp": {"learner": {"kind": "ddp"}, **FEW, "policy": {"ema": 0.6}},
    "ensemble": {"learner": ZERO, **FEW, "reward": {"combine": "min"}, "reward_model": {"members": 2}, **LENGTHS},
    "exact_kl": {"learner": ZERO, "kl": {"placement": "loss", "estimator": "exact"}, **FEW},
}
READY: dict[str, dict[str, Any]] = {name: {"policy": {"path": f"HOME/{name}"}, "sft": {"steps": 0}, **FEW,
                                           "reward": {"sources": [{"kind": "model", "path": "HOME/judge"}]}}
                                    for name in ("tied", "untied")}  # fmt: skip
RUNS |= {"tied": {"learner": ZERO, **READY["tied"]},
         "untied": {"learner": {**ZERO, "generation": "sharded"}, **READY["untied"]}}  # fmt: skip
HALF = {"bf16": {"learner": ZERO, "precision": "bf16", **FEW}, "fp16": {"learner": ZERO, "precision": "fp16", **FEW},
        "bf16_last": {"learner": ZERO, "precision": "bf16", **FEW, **HALVES}}  # fmt: skip
EXACT = {"bf16": "chunks", "fp16": "chunks", "bf16_last": "last_layers"}  # the same run in float32
BREAKS = {"learner": ZERO, "steps": 2, "evaluation": {"every": 2}, "checkpoint": {"every": 2},
          "reward": {"sources": [{"kind": "callable", "path": "learners.whole_runs:by_length"}]}}  # fmt: skip
OVERFLOW = {"learner": ZERO, "precision": "fp16", **FEW, "ppo": {"value_coef": 20.0, "epochs": 6}}

THEN = {"average": ["resume"], "average2": ["resume"], "early_stop1": ["resume"], "early_stop3": ["resume"],
        "zero1": ["held"], "zero2": ["held"], "zero3": ["held"], "adapters": ["held"],
        "last_layers": ["held"], "tied": ["held"], "untied": ["held"]}  # fmt: skip
CHUNK = 2000  # logits: several chunks a forward, and of another number on each rank


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``base/models``: made once; ``one``: every run on one process; ``two``: on two."""
    home = tmp_path_factory.mktemp("whole_runs")
    run = start(settings(), home / "made", None)
    run.close()
    shutil.copytree(home / "made" / "models", home / "base" / "models")
    make_ready(home)
    return home


def make_ready(home: Path) -> None:
    """Models in folders of several files: ``tied``, ``untied`` (in bfloat16), and ``judge``, a reward model."""
    policy, tokenizer = (load(str(home / "base" / "models" / "sft")) for load in (load_policy, load_tokenizer))
    judge = load_reward_model(str(home / "base" / "models" / "reward_model"), seed=0)
    with quiet():
        policy.save_pretrained(home / "tied", max_shard_size="20KB")
        judge.save_pretrained(home / "judge", max_shard_size="20KB")
        policy.config.tie_word_embeddings = False
        policy.lm_head.weight = torch.nn.Parameter(policy.lm_head.weight.detach() * 0.9)
        policy.to(torch.bfloat16).save_pretrained(home / "untied", max_shard_size="10KB")
    for name in ("tied", "untied", "judge"):
        assert len(list((home / name).glob("*.safetensors"))) > 2
        tokenizer.save_pretrained(home / name)


def placed(home: Path, sections: dict[str, Any]) -> dict[str, Any]:
    """With the folder that HOME stands for."""
    return json.loads(json.dumps(sections).replace("HOME", str(home)))  # type: ignore[no-any-return]


def alone(home: Path, name: str, sections: dict[str, Any]) -> Any:
    """The same run on one process, recorded once."""
    sections = placed(home, {**sections, "learner": {"kind": "plain"}})
    folder, models = home / "one" / name, None if name in READY else home / "base" / "models"
    if not folder.exists():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(logprobs, "CHUNK_LOGITS", CHUNK if name == "chunks" else logprobs.CHUNK_LOGITS)
            keep(record(start(settings(**sections), folder, models)), home / "one" / f"{name}.0")
    return kept(home / "one" / f"{name}.0")


def together(home: Path, runs: dict[str, dict[str, Any]], *, world: int, timeout: float = 400) -> Path:
    """All runs on several processes, in one launch; where they were recorded."""
    out = home / f"world{world}"
    out.mkdir(exist_ok=True)
    job = {"models": str(home / "base" / "models"), "out": str(out), "runs": runs}
    (out / "job.json").write_text(json.dumps(job))
    path = {"PYTHONPATH": f"{TESTS.parent}:{TESTS}"}
    script = TESTS / "learners" / "rank_runs.py"
    launch([str(script), str(out / "job.json")], processes=world, timeout=timeout, show=None, environment=path)
    return out


@pytest.fixture(scope="module")
def two(home: Path) -> Path:
    """Every run on two processes."""
    runs: dict[str, dict[str, Any]] = {name: {"settings": placed(home, s), "then": list(THEN.get(name, ()))}
                                       for name, s in (RUNS | HALF).items()}  # fmt: skip
    for name in READY:
        runs[name]["ready"] = True
    runs["chunks"]["chunk"] = CHUNK
    runs["breaks"] = {"settings": BREAKS, "breaks": True}
    runs["overflow"] = {"settings": OVERFLOW, "then": ["resume"]}
    alone(home, "one_row", RUNS["one_row"])
    half_way = home / "half_way"
    shutil.copytree(home / "one" / "one_row", half_way)
    shutil.rmtree(half_way / "checkpoints" / "000002")
    runs["from_plain"] = {"settings": RUNS["one_row"], "from": str(half_way)}
    return together(home, runs, world=WORLD)


@pytest.mark.parametrize("name", RUNS)
def test_two_processes_equal_one(home: Path, two: Path, name: str) -> None:
    one = alone(home, name, RUNS[name])
    for rank in range(WORLD):
        assert_equal_runs(kept(two / f"{name}.{rank}"), one)
    if "target_kl" in RUNS[name].get("ppo", {}):
        assert [row["early_stop"] for row in one[1]] == [1, 1], "the case is not met"


@pytest.mark.parametrize("name", ["lengths", "sharded"])
def test_ranks_that_stop_at_different_lengths_do_not_wait_for_each_other(two: Path, name: str) -> None:
    """Rank 0 has two of the three rows. Padding has log-prob 0, a token never."""
    seen = kept(two / f"{name}.0")[0]
    lengths = [(seen[f"{step}.logp"] != 0).sum(-1) for step in (1, 2)]
    assert any(int(x[:2].max()) != int(x[2:].max()) for x in lengths), lengths


@pytest.mark.parametrize("name", HALF)
def test_half_precision_stays_near_float32(home: Path, two: Path, name: str) -> None:
    """The first step's first gradient: weights of 8 or 11 bits, products of the same."""
    one, half = alone(home, EXACT[name], RUNS[EXACT[name]]), kept(two / f"{name}.0")
    assert torch.equal(half[0]["1.tokens"], kept(two / f"{name}.1")[0]["1.tokens"])
    norm, exact = half[1][0]["gradient_norm"], one[1][0]["gradient_norm"]
    assert 0 < abs(norm - exact) < 0.05 * exact  # not equal: it was computed in half precision
    state, _ = checkpoint.load(two / name / "checkpoints" / "000002")
    assert int(state["count.optimizer_steps"] + state["count.skipped_steps"]) == 4
    assert {x.dtype for key, x in state.items() if key.startswith(("model.", "exp_"))} == {torch.float32}


def test_a_gradient_beyond_fp16_is_no_step_and_halves_the_scale(two: Path) -> None:
    state, _ = checkpoint.load(two / "overflow" / "checkpoints" / "000002")
    skipped, taken = int(state["count.skipped_steps"]), int(state["count.optimizer_steps"])
    assert skipped >= 2 and taken >= 2 and skipped + taken == 12
    assert float(state["scale.cur_scale"]) == 2.0 ** (16 - (skipped - 1)), "the first is forgiven, each other halves"
    assert all(bool(x.isfinite().all()) for x in state.values())
    assert int(state["step.head.out.bias"]) == taken, "Adam has not seen the others"


@pytest.mark.parametrize("name", ["zero1", "zero2", "zero3", "adapters", "last_layers", "tied", "untied"])
def test_every_rank_holds_its_share(two: Path, name: str) -> None:
    for rank in range(WORLD):
        held = json.loads((two / f"{name}.held.{rank}.json").read_text())
        assert {"trained", "reference", "reward_0", "optimizer"} == held.keys()
        for what, (here, whole) in held.items():
            parts = WORLD if what == "optimizer" or RUNS[name]["learner"].get("stage", 3) == 3 else 1
            assert abs(here * parts / whole - 1) <= 0.01, (what, here, whole)


@pytest.mark.parametrize("name", ["early_stop1", "early_stop3", "average", "average2", "overflow"])
def test_resumed_at_the_same_size_to_the_bit(two: Path, name: str) -> None:
    for rank in range(WORLD):
        whole, again = kept(two / f"{name}.{rank}"), kept(two / f"{name}_resumed.{rank}")
        assert again[1] == whole[1][1:] and again[0].keys() < whole[0].keys()
        assert all(torch.equal(x, whole[0][key]) for key, x in again[0].items())
    (a, _), (b, _) = (checkpoint.load(two / f / "checkpoints" / "000002") for f in (name, f"{name}_resumed"))
    assert a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)
    assert ("scale.cur_scale" in a) == (name == "overflow")


def test_a_checkpoint_of_one_process_goes_on_in_two(home: Path, two: Path) -> None:
    one = alone(home, "one_row", RUNS["one_row"])
    later = {key: x for key, x in one[0].items() if key.startswith("2.")}
    assert_equal_runs(kept(two / "from_plain.1"), (later, one[1][1:]))


@pytest.mark.parametrize("name", READY)
def test_a_reference_that_was_never_whole_has_the_hash_of_the_whole_one(home: Path, two: Path, name: str) -> None:
    alone(home, name, RUNS[name])
    hashes = [checkpoint.load(folder / name / "checkpoints" / "000002")[1]["reference_sha256"]
              for folder in (two, home / "one")]  # fmt: skip
    assert hashes[0] == hashes[1] == hash_module(load_policy(str(home / name)))


def test_an_error_of_one_rank_is_raised_on_all_and_leaves_a_checkpoint_of_the_last_step(home: Path, two: Path) -> None:
    """Step 1 was due no checkpoint; step 2 goes on from there in the same processes."""
    for rank in range(WORLD):
        said = (two / f"breaks.said.{rank}").read_text()
        assert said.startswith("rank 1: RewardError: ") and "nobody knows this word" in said
        assert "A checkpoint of the last finished step is in" in said
    assert checkpoint.steps(two / "breaks") == [1, 2]
    one = alone(home, "breaks", BREAKS)
    assert checkpoint.steps(home / "one" / "breaks") == [2]
    later = {key: x for key, x in one[0].items() if key.startswith("2.")}
    assert_equal_runs(kept(two / "breaks.0"), (later, one[1][1:]))


@pytest.mark.parametrize("name", ["ddp", "zero1", "zero2", "zero3"])
def test_every_learner_writes_one_format(home: Path, two: Path, name: str) -> None:
    alone(home, "zero3", RUNS["zero3"])
    plain, state = checkpoint.load(home / "one" / "zero3" / "checkpoints" / "000005")
    mine, its_state = checkpoint.load(two / name / "checkpoints" / "000005")
    assert mine.keys() == plain.keys()
    assert [(x.shape, x.dtype) for x in mine.values()] == [(plain[key].shape, plain[key].dtype) for key in mine]
    assert all(torch.allclose(x.double(), plain[key].double(), rtol=0, atol=2e-5) for key, x in mine.items())
    assert its_state["reference_sha256"] == state["reference_sha256"]


@pytest.mark.parametrize("name", ["early_stop1", "early_stop3", "adapters"])
def test_a_checkpoint_of_two_processes_goes_on_in_one(home: Path, two: Path, tmp_path: Path, name: str) -> None:
    shutil.copytree(two / name, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "000002")
    config = settings(**{**RUNS[name], "learner": {"kind": "plain"}})
    again, one = record(start(config, tmp_path / "run", None, resume=True)), alone(home, name, RUNS[name])
    assert_equal_runs(again, ({key: x for key, x in one[0].items() if key.startswith("2.")}, one[1][1:]))


@pytest.mark.parametrize("name", ["zero3", "adapters"])
def test_an_export_of_shards_is_whole(home: Path, two: Path, tmp_path: Path, name: str) -> None:
    alone(home, name, RUNS[name])
    logits = []
    for folder in (two / name, home / "one" / name):
        written = export(folder, tmp_path / folder.parent.name)
        assert written["bytes"] >= 4 * written["parameters"] > 0 and written["max_logit_difference"] <= 1e-5
        model = load_policy(str(tmp_path / folder.parent.name)).eval()
        with torch.no_grad():
            logits.append(model(torch.arange(20)[None]).logits)
    assert torch.allclose(*logits, atol=1e-5, rtol=0)


@pytest.mark.soak
def test_four_processes_equal_one(home: Path) -> None:
    names = ("ddp", "zero1", "zero2", "zero3", "one_row", "early_stop3", "sharded", "chunks", "adapters", *READY)
    runs: dict[str, dict[str, Any]] = {name: {"settings": placed(home, RUNS[name])} for name in names}
    runs["zero3"]["then"] = ["held"]
    runs["chunks"]["chunk"] = CHUNK
    for name in READY:
        runs[name]["ready"] = True
    alone(home, "one_row", RUNS["one_row"])
    shutil.copytree(home / "one" / "one_row", home / "half_way4")
    shutil.rmtree(home / "half_way4" / "checkpoints" / "000002")
    runs["from_plain"] = {"settings": RUNS["one_row"], "from": str(home / "half_way4")}
    out = together(home, runs, world=4, timeout=900)
    for name in names:
        for rank in range(4):
            assert_equal_runs(kept(out / f"{name}.{rank}"), alone(home, name, RUNS[name]))
    one = alone(home, "one_row", RUNS["one_row"])
    later = {key: x for key, x in one[0].items() if key.startswith("2.")}
    assert_equal_runs(kept(out / "from_plain.3"), (later, one[1][1:]))
    held = [json.loads((out / f"zero3.held.{rank}.json").read_text()) for rank in range(4)]
    assert all(abs(here * 4 / whole - 1) <= 0.01 for models in held for here, whole in models.values())
