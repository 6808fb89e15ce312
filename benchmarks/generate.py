"""Sampling, side by side: ours and transformers' ``generate`` on one model, tokens a CPU-second at batch 1, 8 and 64.

    python benchmarks/generate.py [--rounds 25] [--keep generate]

A Llama of 4.7 M parameters, prompts of 16 tokens, answers of exactly 32 at temperature 1 over the whole vocabulary.
Ours also keeps the log-prob of every token, which PPO needs; ``generate`` is measured bare and, as TRL calls it, with
the logits of every step. Before the race the two must agree on every greedy token. Exit status 1 where ours gives less
than 1.0 times the tokens a CPU-second (median), or the interval's lower end is below 0.97.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent / "peers"))
from rounds import timed  # noqa: E402
from side_by_side import keep, machine, paired, versions  # noqa: E402
from tiny_model import make  # noqa: E402

BATCHES, PROMPT, NEW = (1, 8, 64), 16, 32


def contestants(model: Any, rows: int) -> dict[str, Callable[[], Any]]:
    """Calls that sample; they agree greedily, which is checked here."""
    import torch
    from transformers import GenerationConfig

    from ppo_lab import seeding
    from ppo_lab.records import Prompts
    from ppo_lab.rlhf.generate import generate

    tokens = torch.randint(4, 1024, (rows, PROMPT), generator=torch.Generator().manual_seed(rows))
    prompts = Prompts(tokens=tokens, attention=torch.ones_like(tokens, dtype=torch.bool), index=torch.arange(rows))

    def ours(greedy: bool = False) -> Any:
        noise = None if greedy else seeding.uniforms(0, "race", range(rows), NEW)
        return generate(model, prompts, max_new_tokens=NEW, stop_ids=(), pad_id=0, noise=noise).tokens

    def theirs(**changes: Any) -> Any:
        config = GenerationConfig(**{"do_sample": True, "top_k": 0, "top_p": 1.0, "temperature": 1.0,
                                     "max_new_tokens": NEW, "pad_token_id": 0, **changes})  # fmt: skip
        with torch.no_grad():
            return model.generate(input_ids=tokens, attention_mask=torch.ones_like(tokens), generation_config=config)

    assert torch.equal(ours(greedy=True), theirs(do_sample=False)), "greedy tokens differ"
    return {"ours": ours, "transformers": theirs,
            "transformers, scores kept": lambda: theirs(output_scores=True, return_dict_in_generate=True)}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--keep", help="name of the file below results/")
    asked = parser.parse_args()
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder))
        model = AutoModelForCausalLM.from_pretrained(Path(folder) / "policy").eval()
    model.generation_config.eos_token_id = None  # answers of one length
    found, good = {}, True
    for rows in BATCHES:
        seconds = timed(contestants(model, rows), asked.rounds, least=0.2)
        ratios = {name: paired(each, seconds["ours"]) for name, each in seconds.items() if name != "ours"}
        rate = {name: rows * NEW / sorted(each)[len(each) // 2] for name, each in seconds.items()}
        good &= ratios["transformers"].median >= 1.0 and ratios["transformers"].low >= 0.97
        found[str(rows)] = {"tokens a CPU-second": rate, "seconds": seconds,
                            "ours times as fast as": {k: r._asdict() for k, r in ratios.items()}}  # fmt: skip
        print(f"batch {rows}")
        for name, each in rate.items():
            print(f"  {name:<26} {each:8.0f} tokens a CPU-second   ours / it {ratios.get(name, '')}", flush=True)
    if asked.keep:
        keep(asked.keep, {"machine": machine(1), "versions": versions("torch", "transformers"), "batches": found})
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
