"""The registry knows every field there is, and the log survives what happens to files."""

import io
import json
import math
import os
from dataclasses import fields, is_dataclass
from typing import get_args, get_type_hints

import pytest

from ppo_lab import metrics
from ppo_lab.metrics import GROUPS, PEERS, REGISTRY
from ppo_lab.metrics.metric import peers
from ppo_lab.records import ControlEvaluation, ControlMetrics, EvalMetrics, StepMetrics, UpdateMetrics

# Everything these trainers log, read in their sources; an alias outside of these sets is a slip of the pen.
LOGGED = {
    "trl": {
        "eps", "objective/kl", "objective/entropy", "objective/non_score_reward", "objective/rlhf_reward", "lr",
        "objective/scores", "policy/approxkl_avg", "policy/clipfrac_avg", "loss/policy_avg", "loss/value_avg",
        "val/clipfrac_avg", "policy/entropy_avg", "val/ratio", "val/ratio_var", "val/num_eos_tokens", "episode",
    },
    "openrlhf": {
        "policy_loss", "actor_lr", "actor_grad_norm", "entropy_loss", "ppo_clip_ratio", "ppo_kl", "vllm_kl", "kl",
        "reward", "return", "response_length", "total_length", "critic_loss", "values", "critic_lr", "critic_grad_norm",
        "rollout/reward_mean", "rollout/reward_std", "rollout/response_length_mean", "rollout/truncated_rate",
        "timing/make_experience", "timing/ppo_train", "timing/broadcast", "timing/generation", "timing/step_total",
        "eval_{dataset}_pass1", "eval_response_length_mean", "eval_truncated_rate",
    },
    "verl": {
        "actor/pg_loss", "actor/kl_loss", "actor/entropy", "actor/pg_clipfrac", "actor/pg_clipfrac_lower",
        "actor/ppo_kl", "actor/grad_norm", "actor/lr", "actor/reward_kl_penalty", "actor/reward_kl_penalty_coeff",
        "critic/vf_loss", "critic/vf_clipfrac", "critic/vpred_mean", "critic/grad_norm", "critic/lr",
        "critic/score/mean", "critic/rewards/mean", "critic/advantages/mean", "critic/returns/mean",
        "critic/values/mean", "critic/vf_explained_var", "response_length/mean", "response_length/clip_ratio",
        "training/rollout_probs_diff_max", "training/global_step", "timing_s/gen", "timing_s/update_actor",
        "perf/max_memory_allocated_gb", "val-core/{dataset}/reward/mean@{n}",
    },
    "cleanrl": {
        "charts/episodic_return", "charts/episodic_length", "charts/learning_rate", "charts/SPS", "losses/value_loss",
        "losses/policy_loss", "losses/entropy", "losses/old_approx_kl", "losses/approx_kl", "losses/clipfrac",
        "losses/explained_variance",
    },
    "sb3": {
        "train/entropy_loss", "train/policy_gradient_loss", "train/value_loss", "train/approx_kl",
        "train/clip_fraction", "train/loss", "train/explained_variance", "train/std", "train/n_updates",
        "train/clip_range", "train/clip_range_vf", "train/learning_rate", "rollout/ep_rew_mean",
        "rollout/ep_len_mean", "eval/mean_reward", "eval/mean_ep_length",
    },
}  # fmt: skip


EVERY = pytest.mark.parametrize("entry", REGISTRY.values(), ids=list(REGISTRY))


def names_of(record: type) -> set[str]:
    """The flat metric names of a record: its fields, and those of the records inside."""
    found: set[str] = set()
    for name, hint in get_type_hints(record).items():
        inner = [t for t in (hint, *get_args(hint)) if is_dataclass(t)]
        found |= names_of(inner[0]) if inner else {name}
    return found


def test_every_field_has_an_entry_and_every_entry_a_field():
    assert names_of(StepMetrics) | names_of(ControlMetrics) == set(REGISTRY)
    parts = {field.name for record in (UpdateMetrics, EvalMetrics, ControlEvaluation) for field in fields(record)}
    assert parts < set(REGISTRY)
    assert all(name == entry.name for name, entry in REGISTRY.items())


@EVERY
def test_an_entry_is_complete(entry):
    for text in (entry.title, entry.formula, entry.reduction, entry.mask, entry.reads):
        assert text == text.strip() and text
    assert entry.reads.endswith(".") and len(entry.reads) < 330
    assert entry.group in GROUPS
    assert (entry.healthy is None) == (entry.source == "")
    if entry.healthy is not None:
        low, high = entry.healthy
        assert low < high and entry.judge(low) == entry.judge(high) == "inside"
        assert entry.judge(math.nextafter(high, math.inf)) == "above"
        assert entry.judge(math.nextafter(low, -math.inf)) == "below"


@EVERY
def test_a_kl_names_its_direction_samples_and_unit(entry):
    if "kl" in entry.name.split("_"):
        assert entry.estimates and entry.estimates.startswith("KL(π") and "from samples of π" in entry.estimates
        assert entry.unit in ("nats per sequence", "nats per token", "nats per step")
        assert ("per sequence" in entry.unit) == entry.name.endswith("_sum")
    else:
        assert entry.estimates is None


@EVERY
def test_aliases_are_names_those_frameworks_log(entry):
    assert set(entry.aliases) == set(PEERS) == set(LOGGED)
    for peer, name in entry.aliases.items():
        assert name is None or name in LOGGED[peer]
    assert not entry.alias_notes or entry.alias_notes.endswith(".")


def test_one_foreign_name_means_one_metric_unless_a_note_tells_them_apart():
    for peer in PEERS:
        for world in (StepMetrics, ControlMetrics):  # an answer is an episode: the two worlds may share a name
            users: dict[str, list[str]] = {}
            for entry in REGISTRY.values():
                if entry.aliases[peer] and entry.name in names_of(world):
                    users.setdefault(entry.aliases[peer], []).append(entry.name)
            shared = {name: who for name, who in users.items() if len(who) > 1}
            assert shared in ({}, {"kl": ["ref_kl_token", "ref_kl_loss"]})
    assert "use_kl_loss" in REGISTRY["ref_kl_loss"].alias_notes


def test_the_registry_answers_a_slip_with_the_nearest_name():
    with pytest.raises(ValueError, match="'clip_fractoin' is not a metric; did you mean clip_fraction"):
        metrics.metric("clip_fractoin")
    with pytest.raises(ValueError, match="aliases must be among trl, .*, got rllib"):
        peers(rllib="entropy")


# --- the log --------------------------------------------------------------------------------------------------------

ROWS = [
    {"step": 1, "loss": 0.5, "kl": math.inf, "counts": [1, 2]},
    {"step": 2, "loss": math.nan, "kl": -math.inf},
    {"step": 3, "loss": 1e-300, "kl": 0.1 + 0.2, "text\u2028": "line\nbreak \u2028 国 \ud800"},
]


def refuse(token):
    raise AssertionError(f"{token} is no JSON")


def write(path, rows):
    with open(path, "w", encoding="utf-8") as file:
        for row in rows:
            metrics.write_line(file, row)
    return path


def test_lines_are_strict_json_and_come_back_as_they_were(tmp_path):
    path = write(tmp_path / "metrics.jsonl", ROWS)
    lines = path.read_bytes().split(b"\n")
    assert lines.pop() == b"" and len(lines) == 3
    plain = [json.loads(line, parse_constant=refuse) for line in lines]
    assert plain[0]["kl"] == "inf" and plain[1] == {"step": 2, "loss": "nan", "kl": "-inf"}
    back = metrics.read(path)
    assert math.isnan(back[1].pop("loss"))
    assert back == [ROWS[0], {"step": 2, "kl": -math.inf}, ROWS[2]]  # floats to the last bit


def test_a_word_of_a_sample_stays_a_word(tmp_path):
    row = {"step": 0, "prompt": "inf", "response": "nan", "score": math.nan}
    back = metrics.read(write(tmp_path / "samples.jsonl", [row]))[0]
    assert (back["prompt"], back["response"]) == ("inf", "nan") and math.isnan(back["score"])


@pytest.mark.parametrize("value", [object(), {1, 2}, b"x"])
def test_what_is_no_number_is_refused_before_anything_is_written(value):
    file = io.StringIO()
    with pytest.raises(ValueError, match=r"log field kl must be plain JSON, got \w+; log a number, as kl.item\(\)"):
        metrics.write_line(file, {"step": 1, "kl": value})
    assert file.getvalue() == ""


def test_wherever_the_file_is_torn_the_whole_lines_before_are_read(tmp_path):
    whole = write(tmp_path / "whole.jsonl", ROWS).read_bytes()
    ends = [i for i, byte in enumerate(whole) if byte == ord("\n")]
    torn = tmp_path / "torn.jsonl"
    for size in range(len(whole) + 1):
        torn.write_bytes(whole[:size])
        complete = sum(end <= size for end in ends)  # a line without its newline is whole too
        assert [row["step"] for row in metrics.read(torn)] == list(range(1, complete + 1)), size


@pytest.mark.parametrize("bad", ['{"step": 2, "lo', '{"step": 2, "loss": NaN}', "[2]", "\udcff"])
def test_a_broken_line_in_the_middle_is_an_error_that_names_it(tmp_path, bad):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1}\n' + bad.encode("utf-8", "surrogateescape") + b'\n{"step": 3}\n')
    with pytest.raises(ValueError, match=r"metrics\.jsonl line 2 must be .*JSON object, got .*delete that line"):
        metrics.read(path)


def test_truncate_cuts_back_to_the_step_and_keeps_the_bytes(tmp_path):
    path = write(tmp_path / "metrics.jsonl", ROWS)
    whole = path.read_bytes()
    with open(path, "a") as file:
        file.write('{"step": 4, "lo')
    metrics.truncate(path, 9)
    assert path.read_bytes() == whole
    metrics.truncate(path, 2)
    assert path.read_bytes() == b"".join(line + b"\n" for line in whole.split(b"\n")[:2])
    with open(path, "a") as file:
        metrics.write_line(file, {"step": 3})
    assert [row["step"] for row in metrics.read(path)] == [1, 2, 3]
    metrics.truncate(path, 0)
    assert path.read_bytes() == b""
    metrics.truncate(tmp_path / "none.jsonl", 1)
    assert [p.name for p in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_truncate_gives_a_last_line_without_newline_its_newline(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1}')
    metrics.truncate(path, 1)
    assert path.read_bytes() == b'{"step": 1}\n'


def test_a_kill_while_truncating_leaves_the_old_file(tmp_path, monkeypatch):
    path = write(tmp_path / "metrics.jsonl", ROWS)
    whole = path.read_bytes()

    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        metrics.truncate(path, 1)
    assert path.read_bytes() == whole


def test_a_file_that_is_no_log_is_not_cut(tmp_path):
    path = tmp_path / "other.jsonl"
    path.write_text('{"loss": 1}\n')
    with pytest.raises(ValueError, match="every row must have a whole number as step, got None"):
        metrics.truncate(path, 1)
    assert path.read_text() == '{"loss": 1}\n'
