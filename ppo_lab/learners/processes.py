"""Entering and leaving the group of processes that one run is made of.

``torchrun``, ``accelerate launch``, ``deepspeed`` and `ppo_lab.scale.launch` all say who is who in the same environment
variables (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT), so one way in serves them all.
"""

from __future__ import annotations

import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

MEETING = timedelta(minutes=5)  # until all processes are there
LONGEST = timedelta(hours=24)  # a rank may train a reward model while the others wait; the watchdog sees who is alive


def launched() -> int:
    """How many processes a launcher started; 1 without one."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def first() -> bool:
    """Whether this is rank 0, known before the group is entered."""
    return os.environ.get("RANK", "0") == "0"


def kind_of(kind: str) -> str:
    """``auto`` resolved: plain in one process, ddp in several.

    Raises:
        ValueError: plain in several processes, which would each train a run of their own.
    """
    if kind == "auto":
        return "plain" if launched() == 1 else "ddp"
    if kind == "plain" and launched() > 1:
        raise ValueError(
            f"learner.kind plain needs 1 process, got {launched()}; set learner.kind to auto, ddp or zero, or start it "
            "without a launcher"
        )
    return kind


def join(kind: str) -> None:
    """Enter the group that the launcher started, once; ``zero`` makes a group of one where there was no launcher.

    nccl with CUDA, gloo without. Each process takes the device of its LOCAL_RANK.
    """
    if dist.is_initialized() or kind_of(kind) == "plain":
        return
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    if backend == "gloo" and os.environ.get("MASTER_ADDR", "localhost") in ("localhost", "127.0.0.1", "::1"):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo" if sys.platform == "linux" else "lo0")
    if launched() == 1:
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1, timeout=LONGEST)
    else:
        store, rank, world = next(rendezvous("env://", timeout=MEETING))
        named = dist.PrefixStore("ppo_lab", store)
        dist.init_process_group(backend, store=named, rank=rank, world_size=world, timeout=LONGEST)


def leave() -> None:
    """Leave the group, if one was entered; the last thing a process does."""
    if dist.is_initialized():
        dist.destroy_process_group()


def device() -> torch.device:
    """Where this process computes."""
    return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")
