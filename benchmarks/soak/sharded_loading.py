"""How much memory of the host a rank needs to load four models under ZeRO-3, from shards and the way it was before.

    python benchmarks/soak/sharded_loading.py [--worlds 2 4] [--layers 6] [--width 512] [--large 64] [--out FILE.json]

Four models of one size (policy, reference, critic, reward model) come from two folders of several safetensors files, in
bfloat16 there and in float32 here.
Every rank notes its resident anonymous memory (RssAnon, once a millisecond) while it prepares a run: what it grew by
until the weights are in place (``loading``), and until the learner stands with its moments and buffers (``standing``).
Pages of the files that are mapped (``mapped``) are beside that: ranks share them, and the kernel takes them back.

``shards``: each rank reads its shards. ``whole``: every rank loads all models, then DeepSpeed cuts them. Exit status 1
if a rank's loading took more than its shards, twice the largest tensor and 24 MiB, or the other way less than three
whole models. ``--large W``: besides, the outline of one model of 70B's shapes is made from sparse files (138 GB,
none of it on the disk), and what one of W ranks would have of it is read.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

MIB = 1 << 20
SLACK = 24 * MIB
WORDS = ["good", "bad", "a", "the", "film", "plot", "is", "was", "not", "very"]


class Watch:
    """Peaks of this process's resident memory while it is open, above what it was; bytes."""

    def __init__(self) -> None:
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)  # what was freed before must not hide what is taken now
        self.start = self.now()
        self.anonymous = self.mapped = 0
        self.open = True
        self.thread = threading.Thread(target=self._sample, daemon=True)
        self.thread.start()

    @staticmethod
    def now() -> tuple[int, int]:
        """Anonymous and mapped, from the kernel."""
        status = Path("/proc/self/status").read_text()
        fields = dict(line.split(":") for line in status.splitlines())
        return tuple(int(fields[name].split()[0]) * 1024 for name in ("RssAnon", "RssFile"))  # type: ignore[return-value]

    def look(self) -> dict[str, int]:
        """The peaks so far."""
        anonymous, mapped = self.now()
        self.anonymous = max(self.anonymous, anonymous - self.start[0])
        self.mapped = max(self.mapped, mapped - self.start[1])
        return {"anonymous": self.anonymous, "mapped": self.mapped}

    def _sample(self) -> None:
        while self.open:
            self.look()
            time.sleep(1e-3)


def make_folders(home: Path, *, layers: int, width: int) -> dict[str, int]:
    """A policy and a reward model in several files each; bytes of the four models and of their largest tensor."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, LlamaForSequenceClassification

    from ppo_lab.rlhf.models.build import quiet
    from ppo_lab.rlhf.tokens import word_tokenizer

    config = LlamaConfig(vocab_size=16 * width, hidden_size=width, intermediate_size=8 * width // 3,
                         num_hidden_layers=layers, num_attention_heads=8, max_position_embeddings=64, num_labels=1,
                         pad_token_id=0, bos_token_id=1, eos_token_id=2)  # fmt: skip
    torch.manual_seed(0)
    sizes = {}
    for name, kind in {"policy": LlamaForCausalLM, "judge": LlamaForSequenceClassification}.items():
        model = kind(config)
        sizes[name] = 4 * sum(p.numel() for p in model.parameters())
        with quiet():
            model.bfloat16().save_pretrained(home / name, max_shard_size=sizes[name] // 4)
        word_tokenizer(WORDS).save_pretrained(home / name)
    head = 4 * width  # the critic has a value head where the reward model has its score
    return {"models": 2 * sizes["policy"] + 2 * sizes["judge"] + head, "policy": sizes["policy"],
            "largest": 4 * max(p.numel() for p in model.parameters())}  # fmt: skip


def settings(home: Path) -> Any:
    """A run of the four models."""
    from ppo_lab.config import RLHFConfig, build

    return build(RLHFConfig, {
        "corpus": {"size": 100, "held_out": 8}, "sft": {"steps": 0}, "policy": {"path": str(home / "policy")},
        "reward": {"sources": [{"kind": "model", "path": str(home / "judge")}]}, "critic": {"init": "reward_model"},
        "sampling": {"max_new_tokens": 8}, "evaluation": {"prompts": 8},
        "learner": {"kind": "zero", "generation": "sharded"},
    })  # fmt: skip


def prepared(home: Path, way: str) -> dict[str, Any]:
    """One rank's peaks while it prepares a run."""
    from ppo_lab.learners import zero
    from ppo_lab.learners.collectives import total
    from ppo_lab.rlhf.models import build
    from ppo_lab.rlhf.prepare import prepare

    engine: Callable[..., Any] = zero.build_engine
    loaded: list[dict[str, int]] = []

    def first(*arguments: Any) -> Any:
        loaded.append(watch.look())
        return engine(*arguments)

    with ExitStack() as stack:
        stack.enter_context(patch.object(zero, "build_engine", first))
        if way == "whole":
            stack.enter_context(patch.object(build, "outline", lambda *_, **__: None))
        total(0)
        watch = Watch()
        parts = prepare(settings(home), home / f"run_{way}")
        standing = watch.look()
        watch.open = False
    held = parts.learner.held()  # type: ignore[attr-defined]
    return {"way": way, "loading": loaded[0]["anonymous"], "standing": standing["anonymous"],
            "mapped": loaded[0]["mapped"],
            "shards": 4 * sum(here for name, (here, _) in held.items() if name != "optimizer")}  # fmt: skip


def rank(home: Path) -> None:
    """What every rank does: both ways, the lean one first, after all that is imported has been."""
    from ppo_lab.learners import collectives, processes
    from ppo_lab.learners.zero.engine import import_deepspeed
    from ppo_lab.rlhf.models.build import load_policy, load_reward_model

    processes.join("zero")
    import_deepspeed()
    load_policy(str(home / "tiny" / "policy"))
    load_reward_model(str(home / "tiny" / "judge"), seed=0)
    rows = [prepared(home, way) for way in ("shards", "whole")]
    (home / f"rank{collectives.rank()}.json").write_text(json.dumps(rows))
    processes.leave()


def measure(world: int, *, layers: int, width: int) -> list[dict[str, Any]]:
    """A row a way, the largest figure of all ranks, MiB; ``allowed`` is what the lean way may take."""
    from ppo_lab.scale.launch import launch

    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch)
        sizes = make_folders(home, layers=layers, width=width)
        make_folders(home / "tiny", layers=1, width=32)
        launch([__file__, "--rank", str(home)], processes=world, timeout=600, show=None)
        ranks = [json.loads((home / f"rank{r}.json").read_text()) for r in range(world)]
    rows = []
    for ways in zip(*ranks, strict=True):
        most = {name: max(row[name] for row in ways) for name in ("loading", "standing", "mapped", "shards")}
        allowed = most["shards"] + 2 * sizes["largest"] + SLACK
        sound = most["loading"] <= allowed if ways[0]["way"] == "shards" else most["loading"] >= 3 * sizes["policy"]
        figures = most | {"four_models": sizes["models"], "largest_tensor": sizes["largest"], "allowed": allowed}
        rows.append({"world": world, "way": ways[0]["way"], "sound": sound}
                    | {f"{name}_mib": round(size / MIB, 1) for name, size in figures.items()})  # fmt: skip
    return rows


def sparse_folder(home: Path) -> None:
    """Files with the shapes of Llama 2 70B in bfloat16 and zeros that take no disk."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from ppo_lab.learners.tensorfile import header

    config = LlamaConfig(vocab_size=32000, hidden_size=8192, intermediate_size=28672, num_hidden_layers=80,
                         num_attention_heads=64, num_key_value_heads=8, max_position_embeddings=4096)  # fmt: skip
    config.save_pretrained(home)
    with torch.device("meta"):
        tensors = list(LlamaForCausalLM(config).bfloat16().state_dict().items())
    places = {}
    for i in range(0, len(tensors), 25):
        some, path = dict(tensors[i : i + 25]), home / f"model-{i:05d}.safetensors"
        head = header(some)
        path.write_bytes(head)
        os.truncate(path, len(head) + sum(2 * x.numel() for x in some.values()))
        places |= dict.fromkeys(some, path.name)
    (home / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))


def large(world: int, *, member: int = 5) -> dict[str, Any]:
    """The outline of a model of 70B's shapes, and one rank's shards of it, in bfloat16; MiB and seconds."""
    import torch

    from ppo_lab.learners.unread import unread_in
    from ppo_lab.rlhf.models.build import load_policy

    with tempfile.TemporaryDirectory() as scratch:
        sparse_folder(Path(scratch))
        watch, start = Watch(), time.monotonic()
        unread = unread_in(load_policy(scratch, read=False))
        outline, seconds = watch.look()["anonymous"], time.monotonic() - start
        shards = []
        for p in unread:
            size = -(-p.numel() // world)
            shards.append(torch.zeros(size, dtype=torch.bfloat16))
            for place, piece in p.entry.pieces(member * size, min((member + 1) * size, p.numel())):
                shards[-1][place - member * size :][: len(piece)] = piece
        most, watch.open = watch.look()["anonymous"], False
    own = sum(2 * len(x) for x in shards)
    figures = {"outline": outline, "loading": most, "shards": own}
    return {"world": world, "way": "one rank's shards of 70B", "sound": most <= own + SLACK,
            "parameters": sum(p.numel() for p in unread), "outline_seconds": round(seconds, 1)} | {
                f"{name}_mib": round(size / MIB, 1) for name, size in figures.items()}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--worlds", type=int, nargs="*", default=[2, 4])
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--large", type=int, metavar="W")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rank", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        rank(options.rank)
        return 0
    rows = [row for world in options.worlds for row in measure(world, layers=options.layers, width=options.width)]
    if options.large:
        rows.append(large(options.large))
    print(json.dumps(rows, indent=1))
    if options.out:
        options.out.write_text(json.dumps({"command": " ".join(["python", *sys.argv]), "rows": rows}, indent=1) + "\n")
    return 0 if all(row["sound"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
