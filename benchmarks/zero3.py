"""What a rank holds, sends and computes in a PPO step: one process, copies (ddp), ZeRO 1, 2, 3 and 3 sampling sharded.

    python benchmarks/zero3.py [--processes 2] [--steps 4] [--width 64] [--only zero3 ...] [--keep zero3]

Every way runs the same prompts in real processes (`ppo_lab.scale.launch`), gloo on this machine, DeepSpeed where it
says zero: the global batch is one and the same, and so, up to the order of sums, are texts, losses and weights.

held      bytes on a rank just before an optimizer step: weights of the four models, Adam's moments, the float32 copy
          that AdamW steps on, gradients that wait for the step, and all live tensors of the process, whatever they are
replica   bytes of the whole policy that stage 3 gathers to sample from, let go after the rollout
sent      bytes that a rank sends in a step, by the ring's count (all-reduce 2n(W-1)/W, all-gather and reduce-scatter
          n(W-1)/W of the whole, broadcast and gather n), from the collectives that torch dispatched
cpu, wall seconds of a step, its log line included; the median of the steps after the first, cpu summed over ranks

The step whose messages are counted is the last one, and not timed; its checkpoint's messages are a phase of their own.
Exit status 1 where a way computed something else than one process, or took another number of optimizer steps.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
from side_by_side import keep, machine  # noqa: E402

WAYS: dict[str, dict[str, Any]] = {
    "plain": {"kind": "plain"},
    "ddp": {"kind": "ddp"},
    "zero1": {"kind": "zero", "stage": 1},
    "zero2": {"kind": "zero", "stage": 2},
    "zero3": {"kind": "zero", "stage": 3},
    "zero3 sharded": {"kind": "zero", "stage": 3, "generation": "sharded"},
}
RELATIVE, ABSOLUTE = 1e-6, 1e-6
SHOWN = ("policy_loss", "value_loss", "ref_kl_sum", "raw_score_mean", "gradient_norm")
LOOSE = ("gradient_norm",)  # a norm over all weights: 1e-5 relative


def settings(learner: dict[str, Any], *, steps: int, width: int) -> Any:
    """The run; `steps` are timed, one before them warms up, one after them is counted."""
    from ppo_lab.config import RLHFConfig, build

    return build(RLHFConfig, {
        "steps": steps + 2, "learner": learner,
        "corpus": {"size": 200, "held_out": 16}, "policy": {"layers": 2, "width": width, "heads": 4},
        "sft": {"steps": 8}, "reward": {"references": 16, "normalize": "none"},
        "reward_model": {"pairs": 60, "held_out_pairs": 40, "epochs": 1, "allow_weak_reward_model": True},
        "sampling": {"prompts": 16, "max_new_tokens": 12}, "ppo": {"epochs": 2, "minibatches": 2, "micro_batch": 2},
        "evaluation": {"every": 1000, "prompts": 8, "gold": "vader"}, "checkpoint": {"every": 1000},
    })  # fmt: skip


def tensors_in(thing: Any, depth: int = 3) -> Iterator[Any]:
    """Tensors in nested lists and dictionaries."""
    import torch

    if isinstance(thing, torch.Tensor):
        yield thing
    elif depth and isinstance(thing, (list, tuple, set, dict)):
        for part in list(thing.values() if isinstance(thing, dict) else thing):
            yield from tensors_in(part, depth - 1)


def live() -> Iterator[Any]:
    """Every tensor that Python knows, and the gradients of leaves."""
    import torch

    gc.collect()
    for x in gc.get_objects():
        if issubclass(type(x), torch.Tensor) and x.device.type == "cpu" and x.layout is torch.strided:
            yield x
            if x.is_leaf and x.grad is not None:
                yield x.grad


class Ledger:
    """Bytes by part, each storage once: it belongs to the part that names it first."""

    def __init__(self) -> None:
        self.seen: set[int] = set()

    def add(self, tensors: Iterable[Any]) -> int:
        """Bytes of the storages that nobody named before."""
        found = {x.untyped_storage().data_ptr(): x.untyped_storage().nbytes() for x in tensors if x is not None}
        new = {at: size for at, size in found.items() if at and at not in self.seen}
        self.seen |= new.keys()
        return sum(new.values())


def held(learner: Any) -> dict[str, int]:
    """Bytes on this rank, by part."""
    models = [learner.module, *learner.frozen.values()]
    parameters = [p for model in models for p in model.parameters()]
    engine = getattr(learner, "engine", None)
    optimizer = learner.optimizer if engine is None else engine.optimizer
    adam = learner.optimizer if engine is None else optimizer.optimizer
    waiting = [p.grad for p in parameters] + [getattr(p, "grad_accum", None) for p in parameters]
    waiting += [p.grad for group in adam.param_groups for p in group["params"]]
    if engine is not None:  # DeepSpeed keeps them in attributes of many names, by stage
        waiting += [x for name, kept in vars(optimizer).items() if "grad" in name for x in tensors_in(kept)]
    stepped = [p for group in adam.param_groups for p in group["params"]]
    if engine is not None:
        from ppo_lab.learners.zero.shards import flats_of

        stepped = flats_of(optimizer)
    book = Ledger()
    found = {
        "weights": book.add(getattr(p, "ds_tensor", p) for p in parameters),
        "moments": book.add(x for state in adam.state.values() for x in state.values()),
        "stepped copy": book.add(stepped),
        "gradients": book.add(waiting),
    }
    return found | {"all live": sum(found.values()) + book.add(live())}


def counter(world: int) -> Any:
    """A dispatch mode that adds up what the rank sends, by phase and kind of message."""
    from torch.utils._python_dispatch import TorchDispatchMode

    whole = (world - 1) / world

    class Messages(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.phase, self.sent, self.messages = "rollout and scores", Counter(), Counter()
            self.unknown: set[str] = set()

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func.namespace == "c10d":
                self._note(func._schema.name.removeprefix("c10d::").strip("_"), args)
            return func(*args, **(kwargs or {}))

        def _note(self, kind: str, args: Any) -> None:
            size = {a: sum(x.nbytes for x in tensors_in(args[a])) for a in range(min(2, len(args)))}
            ring = {"allreduce": 2 * whole, "allreduce_coalesced": 2 * whole, "allgather": whole,
                    "allgather_base": whole, "allgather_into_tensor_coalesced": whole, "broadcast": 1.0,
                    "reduce": 1.0, "gather": 1.0, "barrier": 0.0}  # fmt: skip
            if kind.startswith("reduce_scatter"):
                n = size[1] * whole
            elif kind in ring:
                n = size[1 if kind == "gather" else 0] * ring[kind]
            else:
                self.unknown.add(kind)
                return
            self.sent[self.phase] += n
            self.messages[f"{self.phase}: {kind}"] += 1

    return Messages()


def rank(job: dict[str, Any]) -> None:
    """One rank of one way: its figures and its log, as NAME.RANK.json."""
    import torch

    from ppo_lab.learners import collectives, processes
    from ppo_lab.rlhf import Run, train

    folder = Path(job["folder"])
    run = Run(settings(job["learner"], steps=job["steps"], width=job["width"]), folder=folder / job["name"])
    learner: Any = run.learner
    figures: dict[str, Any] = {"cpu": [], "wall": [], "log": [], "replica": replica_bytes(learner)}
    if hasattr(learner, "held"):
        figures["elements"] = learner.held()
    steps = iter(run)
    next(steps)  # models are compiled, buffers made

    for i in range(job["steps"] + 1):
        wall, cpu = time.perf_counter(), time.process_time()
        if i < job["steps"]:
            row = next(steps)
            figures["cpu"].append(time.process_time() - cpu)
            figures["wall"].append(time.perf_counter() - wall)
        else:
            row = counted(lambda: next(steps), learner, train, figures, world=collectives.world())
        tokens = run.last_rollout.responses.tokens  # type: ignore[union-attr]
        numbers = {k: v for k, v in row.row().items() if isinstance(v, (int, float)) and not k.startswith("seconds")}
        figures["log"].append(numbers | {"texts": tokens.tolist()})
    figures |= {"optimizer_steps": learner.optimizer_steps, "threads": torch.get_num_threads()}
    (folder / f"{job['name']}.{collectives.rank()}.json").write_text(json.dumps(figures))
    run.close()
    processes.leave()


def counted(go: Any, learner: Any, train: Any, figures: dict[str, Any], *, world: int) -> Any:
    """One step whose messages are counted by phase, and what is held before its first optimizer step."""
    messages, step, update = counter(world), learner.step, train.ppo_update

    def looked(*args: Any, **kwargs: Any) -> float:
        figures["held"] = held(learner)
        learner.step = step
        return step(*args, **kwargs)

    def marked(*args: Any, **kwargs: Any) -> Any:
        messages.phase = "update"
        done = update(*args, **kwargs)
        messages.phase = "log and checkpoint"
        return done

    learner.step, train.ppo_update = looked, marked
    with messages:
        row = go()
    figures |= {"sent": messages.sent, "messages": messages.messages, "unknown": sorted(messages.unknown)}
    return row


def replica_bytes(learner: Any) -> int:
    """What the whole copy takes while it is filled."""
    replica = getattr(learner, "replica", None)
    return 0 if replica is None else 4 * sum(p.ds_numel for p, _ in replica.pairs)


def differences(mine: list[dict[str, Any]], plain: list[dict[str, Any]]) -> list[str]:
    """Where two logs are not equal: texts to the token, numbers up to rounding."""
    wrong = []
    for step, (a, b) in enumerate(zip(mine, plain, strict=True), 2):
        for name, x in b.items():
            slack = (0 if name in LOOSE else ABSOLUTE) + (1e-5 if name in LOOSE else RELATIVE) * abs(x) \
                if isinstance(x, (int, float)) else 0  # fmt: skip
            same = a[name] == x if name == "texts" else abs(a[name] - x) <= slack
            if not same and name != "peak_memory_mb":
                wrong.append(f"step {step}, {name}: {a[name]} and {x}" if name != "texts" else f"step {step}: texts")
    return wrong


def measure(name: str, asked: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Run a way, and put its ranks together."""
    from ppo_lab.scale.launch import launch

    world = 1 if name == "plain" else asked.processes
    if name != "plain":  # its SFT and reward model, so that all start from the same weights
        shutil.copytree(folder / "plain" / "models", folder / name / "models")
    job = {"name": name, "learner": WAYS[name], "steps": asked.steps, "width": asked.width, "folder": str(folder)}
    launch([__file__, "--rank", json.dumps(job)], processes=world, timeout=600, show=None,
           environment={"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)})  # fmt: skip
    ranks = [json.loads((folder / f"{name}.{r}.json").read_text()) for r in range(world)]
    first = ranks[0]
    return {
        "processes": world, "held": first["held"], "held by rank": [r["held"]["all live"] for r in ranks],
        "replica": first["replica"], "elements": first.get("elements"),
        "sent": first["sent"], "messages": first["messages"], "not counted": first["unknown"],
        "cpu": statistics.median(map(sum, zip(*(r["cpu"] for r in ranks), strict=True))),
        "cpu a rank": statistics.median(c for r in ranks for c in r["cpu"]),
        "wall": statistics.median(first["wall"]),
        "optimizer_steps": [r["optimizer_steps"] for r in ranks], "log": first["log"],
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--only", nargs="+", choices=list(WAYS), default=list(WAYS))
    parser.add_argument("--keep", help="name of the file below results/")
    parser.add_argument("--rank", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.rank:
        rank(json.loads(asked.rank))
        return 0
    names = ["plain", *(name for name in asked.only if name != "plain")]
    ways: dict[str, Any] = {}
    wrong: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            ways[name] = measure(name, asked, Path(folder))
            wrong[name] = differences(ways[name]["log"], ways["plain"]["log"])
            if set(ways[name]["optimizer_steps"]) != set(ways["plain"]["optimizer_steps"]):
                wrong[name].append(f"optimizer steps {ways[name]['optimizer_steps']}")
            print(f"{name:<14} {json.dumps({k: v for k, v in ways[name].items() if k != 'log'})}\n"
                  f"{'':<14} {'equal to one process' if not wrong[name] else wrong[name]}", flush=True)  # fmt: skip
    for way in ways.values():
        way["log"] = [{k: row[k] for k in SHOWN} for row in way["log"]]
    if asked.keep:
        keep(asked.keep, {"machine": machine(1), "ways": ways, "different": wrong})
    return 1 if any(wrong.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
