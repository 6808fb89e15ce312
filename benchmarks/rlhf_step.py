"""One RLHF iteration, side by side: ours, TRL 1.12.0's experimental PPO, and the bare matrix products of ours.

    python benchmarks/rlhf_step.py --peers PYTHON --trl FOLDER [--rounds 15] [--minibatches 1] [--threads 1]

A Llama of 4.7 M parameters as policy and as reference, two scalar ones as critic and as reward model; 64 prompts of 16
tokens, answers of exactly 32, 4 epochs, AdamW, float32. An iteration is rollout, four models' opinions, credit, update
and its log line. Rounds take turns. PYTHON has transformers, FOLDER holds TRL 1.12.0 (benchmarks/README.md).

``ours``        the recipe of `ppo_lab.rlhf.Run`, the same arithmetic as TRL's
``compiled``    that with ``compile: true``: the same products in float32, what stands between them fused
``savings``     that with products rounded to bfloat16, at equal reward (``--savings``)
``trl``         1.12.0, the last release that has PPO
``bare``        every product of a linear layer that ``ours`` computed, forward and backward, and nothing else

Exit status 1 where a target is missed: ours 1.08 times as fast as TRL with the interval's lower end above 1 and less
memory; compiled, at most 1.5 times the bare products; all savings, twice as fast as TRL; equal numbers of optimizer
steps. That the savings cost no reward is shown by `soak/embedded.py` with and without ``precision=bf16``.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "peers"))
BATCH, PROMPT, RESPONSE, EPOCHS, RATE = 64, 16, 32, 4, 1e-4
SAME = ["sampling.old_logp=sampler"]  # TRL's denominator is the sampler's, too
COMPILED = [*SAME, "compile=true"]
SAVINGS = ["compile=true", "precision=bf16"]  # a shared trunk saves more, and costs reward: benchmarks/README.md


def settings(models: Path, minibatches: int, seed: int, changes: list[str]) -> Any:
    """TRL's arithmetic as a config of ours; nothing is evaluated or saved between the first round and the last."""
    from ppo_lab.config import RLHFConfig, load_config

    corpus = models / "prompts.jsonl"
    changes = [
        f"seed={seed}", "steps=100000", "policy.context=256", "sft.steps=0",
        f"threads={os.environ['OMP_NUM_THREADS']}", f"policy.path={models / 'policy'}",
        "corpus.kind=jsonl", f"corpus.path={corpus}", "corpus.prompt_field=prompt", "corpus.held_out=1",
        "evaluation.prompts=1", "evaluation.every=100000", "checkpoint.every=100000", "reward.references=64",
        f"sampling.prompts={BATCH}", f"sampling.max_new_tokens={RESPONSE}", f"ppo.epochs={EPOCHS}",
        f"ppo.minibatches={minibatches}", "kl.beta=0.05", f"optimizer.actor_rate={RATE}",
        f"optimizer.critic_rate={RATE}", "optimizer.schedule=constant", "optimizer.max_norm=null", *changes,
    ]  # fmt: skip
    given = load_config("rlhf/demo", changes, world=RLHFConfig)
    source = given.reward.sources[0].model_copy(update={"path": str(models / "reward")})
    return given.model_copy(update={"reward": given.reward.model_copy(update={"sources": (source,)})})


def write_prompts(models: Path) -> None:
    """Prompts of 16 tokens, BOS among them where the tokenizer puts one, and one more to hold out."""
    draw = random.Random(0)
    words = [" ".join(f"w{draw.randrange(4, 1024)}" for _ in range(PROMPT - 1)) for _ in range(4 * BATCH)]
    rows = [json.dumps({"text": f"{prompt} w4", "prompt": prompt}) for prompt in words]
    (models / "prompts.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")


def ours(asked: argparse.Namespace) -> None:
    """Our side: iterations of `Run`, the products of its linear layers written down in the first."""
    from relay import Station

    station = Station()
    from ppo_lab.rlhf import Run

    with tempfile.TemporaryDirectory() as folder:
        run = Run(settings(asked.models, asked.minibatches, asked.seed, asked.changes), folder=Path(folder) / "run")
        run.parts.sampling["stop_ids"] = ()  # every answer is 32 tokens long, as on the other side
        counted = asked.label == "ours"  # a hook at its first forward would be part of a compiled graph
        products = Products([run.learner.module, *run.learner.frozen.values()] if counted else [])  # type: ignore
        said: dict[str, Any] = {}
        steps = run.learner.optimizer_steps
        station.turn()
        for metrics in run:
            shape = tuple(run.last_rollout.responses.tokens.shape)  # type: ignore[union-attr]
            if counted and not said:
                (asked.models / f"products_{asked.label}.json").write_text(json.dumps(products.finish()))
            said = {"optimizer_steps": run.learner.optimizer_steps - steps, "shape": shape,
                    "score": metrics.raw_score_mean, "kl": metrics.ref_kl_sum}  # fmt: skip
            steps = run.learner.optimizer_steps
            station.turn(**said)


class Products:
    """Counts calls of linear layers by (rows, in, out, whether a gradient will be asked of weight, of input)."""

    def __init__(self, modules: list[Any]):
        import torch

        self.seen: Counter[tuple[int, int, int, bool, bool]] = Counter()

        def note(layer: Any, inputs: tuple[Any, ...], _: Any) -> None:
            x, on = inputs[0], torch.is_grad_enabled()
            self.seen[x.numel() // x.shape[-1], layer.in_features, layer.out_features,
                      on and layer.weight.requires_grad, on and x.requires_grad] += 1  # fmt: skip

        layers = [part for module in modules for part in module.modules() if isinstance(part, torch.nn.Linear)]
        self.hooks = [layer.register_forward_hook(note) for layer in layers]

    def finish(self) -> list[list[int]]:
        """What was seen; nothing is counted from here on."""
        for hook in self.hooks:
            hook.remove()
        return [[*map(int, key), count] for key, count in self.seen.items()]


def bare(asked: argparse.Namespace) -> None:
    """The products alone, on random numbers."""
    from relay import Station

    station = Station()
    import torch

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    work: list[tuple[Any, ...]] = []
    with torch.no_grad():
        while station.turn(gflop=sum(2e-9 * x.numel() * len(w) * (1 + a + b) * c for x, w, _, a, b, c in work)):
            if not work:  # drawn in the warm-up
                seen = json.loads((asked.models / "products_ours.json").read_text())
                work = [(torch.randn(rows, inside), torch.randn(outside, inside), torch.randn(rows, outside), *rest)
                        for rows, inside, outside, *rest in seen]  # fmt: skip
            for x, w, g, weight, inputs, count in work:
                for _ in range(count):
                    x @ w.T
                    if weight:
                        g.T @ x
                    if inputs:
                        g @ w


def contestants(asked: argparse.Namespace) -> dict[str, tuple[list[str], dict[str, str]]]:
    """Who runs, by name."""
    from side_by_side import environment

    mine = [sys.executable, str(HERE / "rlhf_step.py"), "--models", str(asked.models)]
    sizes = ["--minibatches", str(asked.minibatches), "--seed", str(asked.seed)]
    here = environment(asked.threads, str(HERE.parent))
    found = {"ours": ([*mine, "--one", "ours", *sizes, *SAME], here), "bare": ([*mine, "--one", "bare"], here)}
    found["compiled"] = ([*mine, "--one", "ours", "--label", "compiled", *sizes, *COMPILED], here)
    if asked.savings:
        found["savings"] = ([*mine, "--one", "ours", "--label", "savings", *sizes, *SAVINGS], here)
    if asked.peers:
        script = [asked.peers, str(HERE / "peers" / "trl_ppo.py"), "--model", str(asked.models), *sizes]
        found["trl"] = (script, environment(asked.threads, asked.trl))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", help="a Python with transformers and accelerate")
    parser.add_argument("--trl", help="a folder that holds TRL 1.12.0")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--minibatches", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--savings", action="store_true")
    parser.add_argument("--keep", help="name of the file below results/")
    parser.add_argument("--models", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--label", default="ours", help=argparse.SUPPRESS)
    parser.add_argument("changes", nargs="*", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        {"ours": ours, "bare": bare}[asked.one](asked)
        return 0
    return race(asked)


def race(asked: argparse.Namespace) -> int:
    """Rounds, ratios, targets."""
    from side_by_side import Relay, column, keep, machine, median, paired
    from tiny_model import make

    with tempfile.TemporaryDirectory() as folder:
        asked.models = asked.models or Path(folder)
        if not (asked.models / "policy").exists():
            make(asked.models)
        write_prompts(asked.models)
        relay = Relay(contestants(asked))
        rounds = relay.run(asked.rounds)
        relay.close()
    clock = "cpu" if asked.threads == 1 else "wall"
    table = {
        name: {"seconds": median(rows, clock), "peak_mb": relay.memory[name]["peak_mb"],
               "round_mb": relay.memory[name]["round_mb"],
               "optimizer_steps": sorted({row.get("optimizer_steps", 0) for row in rows})}
        for name, rows in rounds.items()
    }  # fmt: skip
    mine = [name for name in ("ours", "compiled", "savings") if name in rounds]
    ratios = {f"{name} / {our}": paired(column(rows, clock), column(rounds[our], clock))
              for our in mine for name, rows in rounds.items() if name not in mine}  # fmt: skip
    for name, row in table.items():
        print(f"{name:<8} {row['seconds']:6.2f} s {row['peak_mb']:7.0f} MB, {row['round_mb']:6.0f} of it in the round, "
              f"optimizer steps {row['optimizer_steps']}")  # fmt: skip
    for name, ratio in ratios.items():
        print(f"{name:<16} {ratio}")
    if asked.keep:
        keep(asked.keep, {"machine": machine(asked.threads), "clock": clock, "table": table,
                          "ratios": {k: r._asdict() for k, r in ratios.items()}, "rounds": rounds})  # fmt: skip
    return 0 if meets(table, ratios) else 1


def meets(table: dict[str, dict[str, Any]], ratios: dict[str, Any]) -> bool:
    """The targets, said one by one."""
    checks = {"compiled, at most 1.5 times the bare products": ratios["bare / compiled"].median >= 1 / 1.5}
    if "trl" in table:
        ours, faster = table["ours"], ratios["trl / ours"]
        checks |= {"1.08 times TRL": faster.median >= 1.08, "lower end above 1": faster.low > 1,
                   "less memory": ours["peak_mb"] < table["trl"]["peak_mb"],
                   "equal optimizer steps": len({str(row["optimizer_steps"]) for name, row in table.items()
                                                 if name != "bare"}) == 1}  # fmt: skip
    if "trl" in table and "savings" in table:
        checks["all savings, twice TRL"] = ratios["trl / savings"].median >= 2
    for name, good in checks.items():
        print(f"{name}: {'met' if good else 'MISSED'}")
    return all(checks.values())


if __name__ == "__main__":
    sys.exit(main())
