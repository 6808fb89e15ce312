"""Main memory of a node: what its processes need while they load, run, and write a checkpoint.

Devices are full long before their nodes, unless weights or optimizer are moved out of them, or every rank builds its
models whole. Files that are read lie in the page cache, which the system takes back: it is not counted.
"""

from __future__ import annotations

from ppo_lab.scale.memory.activations import size_of
from ppo_lab.scale.memory.setup import Setup

BASE = 0.4e9  # bytes of a process with torch, transformers and deepspeed imported (0.40 GB counted, without CUDA)
PIECE = 1 << 24  # elements that sharded loading reads at a time: `ppo_lab.learners.unread`
COPIES = 5  # of the largest tensor while a checkpoint is written (counted, on a CPU: gathered, brought over, its last)
PHASES = ("loading", "running", "saving")


def largest_tensor(setup: Setup) -> int:
    """Elements of the largest weight of the four models: the embedding, or a matrix of a block."""
    shapes = (setup.policy, setup.other or setup.policy)
    return max(max(shape.embedding, *(a * b for a, b in shape.matrices)) for shape in shapes)


def rank_bytes(setup: Setup, trained: float, frozen: float, offloaded: float) -> dict[str, dict[str, float]]:
    """Bytes of main memory of one process, by phase and part.

    - loading: from folders at stage 3, the rank's shards where they stay on the host, and a piece of a file; else all
      models whole, in float32, before anything is sharded or moved;
    - running: what is offloaded, with gradients in float32 and in the weights' precision for the optimizer there. Our
      settings pin no memory, so nothing is held twice for it;
    - saving: what runs, and on rank 0 the largest tensor (float32) `COPIES` times; without ZeRO all of the state.

    Args:
        setup: the plan's.
        trained, frozen: weights, as `planner.counts` has them.
        offloaded: bytes that a device has moved out.
    """
    data, e = setup.data, size_of(setup.precision)
    gradients = (4 + e) * trained / data if setup.offload != "none" else 0.0
    lasting = {"Python and libraries": BASE, "offloaded": offloaded, "gradients": gradients}
    shards = e * (trained + frozen) / data if setup.offload == "all" else 0.0
    loading = {"shards": shards, "piece of a file": 2 * 4 * min(PIECE, largest_tensor(setup))}
    if not setup.loads_shards:
        loading = {"whole models": 4 * (trained + frozen)}
    saved = COPIES * 4 * largest_tensor(setup) if setup.stage else 12 * trained
    return {
        "loading": {"Python and libraries": BASE, **loading},
        "running": lasting,
        "saving": {**lasting, "checkpoint": saved},
    }


def node_bytes(setup: Setup, trained: float, frozen: float, offloaded: float) -> dict[str, dict[str, float]]:
    """Bytes of a node with ``setup.node_ranks`` processes, by phase and part; one of them writes the checkpoint.

    >>> whole = Setup(load="whole")
    >>> round(node_bytes(whole, 13.3e9, 13.3e9, 0)["loading"]["whole models"] / 1e9)
    851
    """
    each = rank_bytes(setup, trained, frozen, offloaded)
    return {
        phase: {name: size if name == "checkpoint" else size * setup.node_ranks for name, size in parts.items()}
        for phase, parts in each.items()
    }
