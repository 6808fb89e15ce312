"""Main memory of a node: by arithmetic, against real processes, and what the shipped configs need."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from scale.host_jobs import SIZES

from ppo_lab.scale.memory import SHAPES, Setup, advice, choose_batches, plan
from ppo_lab.scale.memory.host import BASE, COPIES, largest_tensor
from ppo_lab.scale.memory.planner import counts
from ppo_lab.scale.memory.shape import Shape
from ppo_lab.scale.memory.sheet import lines
from ppo_lab.scale.shipped import scale_names, setup_of

JOBS = Path(__file__).parent / "host_jobs.py"
SMALL = Shape(layers=SIZES["num_hidden_layers"], width=SIZES["hidden_size"], heads=SIZES["num_attention_heads"],
              kv_heads=SIZES["num_attention_heads"], inner=SIZES["intermediate_size"],
              vocabulary=SIZES["vocab_size"])  # fmt: skip
BIG = Setup(policy=SHAPES["70B"], devices=64, generation="sharded", recompute_every=1)


def measured(job: str, *arguments: str) -> int:
    """Bytes that a process of its own counted."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu", "MALLOC_ARENA_MAX": "1"}
    done = subprocess.run([sys.executable, str(JOBS), job, *arguments], env=environment, text=True,
                          capture_output=True, timeout=200, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return int(json.loads(done.stdout.splitlines()[-1])["bytes"])


def test_by_hand() -> None:
    """Llama 2 70B: 68,976,648,192 weights, 262,144,000 of them in the output layer; eight processes a node."""
    whole, trunk, head = 68_976_648_192, 68_976_648_192 - 32_000 * 8192, 8192
    models = whole + (trunk + head + 1) + whole + (trunk + head)
    made = plan(replace(BIG, load="whole"))
    assert made.node["loading"]["whole models"] == 8 * 4 * models
    assert made.node["loading"]["Python and libraries"] == 8 * BASE == 3.2e9
    assert made.node["saving"]["checkpoint"] == 5 * 4 * 32_000 * 8192 == COPIES * 4 * largest_tensor(BIG)
    sharded = plan(BIG)
    assert sharded.node["loading"]["piece of a file"] == 8 * 2 * 4 * 2**24 and sharded.node["loading"]["shards"] == 0
    all_away = plan(replace(BIG, offload="all")).node["running"]
    weights = counts(BIG)["trained"]
    assert all_away["gradients"] == pytest.approx(8 * 6 * weights / 64)
    assert all_away["offloaded"] == pytest.approx(8 * (12 * weights + 2 * models) / 64)


@pytest.mark.parametrize("memory", [1e12, 2e12])
@pytest.mark.parametrize("name", scale_names())
def test_shipped_configs_fit_their_nodes(name: str, memory: float) -> None:
    setup = setup_of(name)
    assert (setup.node_memory, setup.node_ranks, setup.loads_shards) == (1e12, 8, True)
    made = plan(replace(setup, node_memory=memory))
    assert made.fits and made.node_peak < 0.05 * memory


def test_whole_loading_is_refused_where_nodes_are_too_small() -> None:
    """107, 207 and 1,101 GB a process, eight to a node: 7B fits 1 TB, 13B 2 TB, 70B neither."""
    fits = {(name, tb): plan(replace(setup_of(f"scale/{name}"), load="whole", node_memory=tb * 1e12)).fits
            for name in ("7b", "13b", "70b") for tb in (1, 2)}  # fmt: skip
    assert [pair for pair, good in fits.items() if good] == [("7b", 1), ("7b", 2), ("13b", 2)]
    made = plan(replace(setup_of("scale/70b"), load="whole"))
    assert made.fits_device and not made.fits_node and made.node_phase == "loading"
    words, after = advice(made.setup)[0]
    assert words == "each rank loads its shards from folders" and after.fits
    text = "\n".join(lines(made))
    assert "too much in a node's main memory, while loading" in text and f"change first: {words}" in text


def test_offload_can_be_too_much_for_a_node() -> None:
    """The optimizer of 70B and its critic, moved out on 16 devices: 12 bytes and 6 of gradients a weight."""
    setup = replace(BIG, devices=16, offload="optimizer")
    made = plan(setup)
    weights = counts(setup)["trained"]
    assert made.node_totals["running"] == pytest.approx(8 * (18 * weights / 16 + BASE)) and not made.fits_node
    assert plan(replace(setup, node_memory=2e12)).fits_node
    assert all(after.strain < made.strain for _, after in advice(setup))


def test_without_zero_one_process_holds_all_of_a_checkpoint() -> None:
    setup = Setup(policy=SHAPES["135M"], devices=4, stage=0, rows=64)
    made = plan(setup)
    assert made.node["saving"]["checkpoint"] == 12 * counts(setup)["trained"]
    assert made.setup.node_ranks == 4 and not made.setup.loads_shards


def test_batches_are_chosen_for_devices_alone() -> None:
    setup = replace(BIG, load="whole")
    assert choose_batches(setup).micro_batch == choose_batches(BIG).micro_batch > 1


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"node_memory": 0}, "node_memory must be above 0 bytes, got 0; 1e12 is usual"),
        ({"node_headroom": 1.0}, "node_headroom must be a share"),
        ({"node_devices": 0}, "node_devices must be at least 1"),
        ({"load": "disk"}, "load must be one of sharded, whole, got 'disk'"),
    ],
)
def test_nodes_that_cannot_be_are_named(wrong: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        Setup(**wrong)


# --- real processes --------------------------------------------------------------------------------------------------

linux = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="reads /proc")


@linux
@pytest.mark.skipif(torch.version.cuda is not None, reason="CUDA's libraries come on top, and are in the headroom")
def test_a_process_that_has_imported_all() -> None:
    assert measured("base") == pytest.approx(BASE, rel=0.25)


@linux
def test_four_models_in_a_process() -> None:
    setup = Setup(policy=SMALL, devices=1, stage=0, rows=8)
    planned = plan(setup).node["loading"]["whole models"]
    assert planned > 200e6 and measured("whole") == pytest.approx(planned, rel=0.05)


@linux
def test_a_checkpoint_of_shards_takes_no_more_than_is_planned(tmp_path: Path) -> None:
    """The largest tensor is 25 MB, the whole state 400: a few of the first, never the second."""
    setup = Setup(policy=SMALL, devices=1, stage=3, rows=8)
    planned = plan(setup).node["saving"]["checkpoint"]
    found = measured("saving", str(tmp_path))
    assert planned / COPIES <= found <= 1.15 * planned < 0.5 * 12 * counts(setup)["trained"]
