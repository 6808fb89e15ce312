"""``ppo-lab plan``: the same numbers as the planner, defaults as they are said, and mistakes named."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from ppo_lab.cli import app
from ppo_lab.scale.memory import SHAPES, Setup, choose_batches, plan
from ppo_lab.scale.memory.sheet import lines


def call(*arguments: str):
    return CliRunner().invoke(app, ["plan", *arguments])


def test_a_plan_is_the_planners() -> None:
    done = call("13B", "--devices", "16", "--recompute-every", "1")
    wanted = choose_batches(Setup(policy=SHAPES["13B"], devices=16, recompute_every=1))
    assert done.exit_code == 0 and done.output.splitlines() == [*lines(plan(wanted))]
    assert "fits" in done.output


def test_a_batch_that_is_given_stays() -> None:
    done = call("7B", "--micro-batch", "64", "--no-master", "--memory", "40", "--offload", "optimizer")
    setup = Setup(policy=SHAPES["7B"], micro_batch=64, master=False, memory=40e9, offload="optimizer")
    assert done.output.splitlines() == [*lines(plan(choose_batches(setup, free=["sample_batch"])))]
    assert "does not fit" in done.output and "change first: " in done.output


def test_nought_is_none() -> None:
    assert call("7B", "--lora", "0", "--recompute-every", "0").output == call("7B").output != ""


def test_a_folder_is_read(tmp_path: Path) -> None:
    from transformers import LlamaConfig

    LlamaConfig(vocab_size=97, hidden_size=48, intermediate_size=136, num_hidden_layers=2,
                num_attention_heads=4).save_pretrained(tmp_path)  # fmt: skip
    assert "0.0 GB" in call(str(tmp_path), "--rows", "8").output


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["8B"], "model '8B' is no known shape; did you mean"),
        (["7B", "--stage", "5"], "stage must be 0, 1, 2 or 3, got 5"),
        (["7B", "--tensor", "3"], "tensor x pipeline must divide devices"),
        (["7B", "--lora", "-4"], "lora must be at least 1, or None for none, got -4"),
        (["7B", "--recompute", "selective"], "recompute selective needs recompute-every"),
    ],
)
def test_mistakes_are_named(arguments: list[str], named: str) -> None:
    done = call(*arguments)
    assert done.exit_code == 2 and named in done.output and "Traceback" not in done.output


def test_a_node_is_judged_too() -> None:
    done = call("70B", "--devices", "64", "--generation", "sharded", "--recompute-every", "1", "--recompute",
                "selective", "--load", "whole", "--node-memory", "2000", "--node-devices", "4")  # fmt: skip
    setup = Setup(policy=SHAPES["70B"], devices=64, generation="sharded", recompute_every=1, recompute="selective",
                  load="whole", node_memory=2e12, node_devices=4)  # fmt: skip
    assert done.exit_code == 0 and done.output.splitlines() == [*lines(plan(choose_batches(setup)))]
    assert "too much in a node's main memory, while loading" in done.output
    assert "each rank loads its shards from folders" in done.output
