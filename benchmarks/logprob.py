"""Log-probs of tokens at a vocabulary of 49,152, side by side: time and memory of forward and backward.

    PYTHONPATH=. PYTHON benchmarks/logprob.py [--rounds 7] [--keep logprob]

From 1,024 hidden states of width 576 (SmolLM2-135M) and the output layer to log p(token), and back to the states and
the weight. PYTHON has TRL besides torch. Two cases: an output layer that is trained, and a frozen one, as under
``policy.trainable_layers``. All contestants start from hidden states, for that is what a model has; the peers make all
logits at once, except torch's ``linear_cross_entropy`` in chunks. Ours computes entropies as well. Memory is what one
call takes above what was there, the weight's gradient (108 MiB) included.

Exit status 1 where ours takes more than 1.1 times the fastest peer's time, or more than a quarter of its memory.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).resolve().parent / "peers"))
from rounds import peak_mb, timed  # noqa: E402
from side_by_side import keep, machine, paired, versions  # noqa: E402

from ppo_lab.rlhf.logprobs import Head, hidden_logprobs  # noqa: E402

ROWS, WIDTH, VOCABULARY = 1024, 576, 49152
Logp = Callable[[Tensor, Tensor, Tensor], Tensor]


def gather(hidden: Tensor, weight: Tensor, tokens: Tensor) -> Tensor:
    """The textbook's."""
    return functional.linear(hidden, weight).log_softmax(-1).gather(-1, tokens[:, None])[:, 0]


def cross_entropy(hidden: Tensor, weight: Tensor, tokens: Tensor) -> Tensor:
    """torch's own loss, a row each."""
    return -functional.cross_entropy(functional.linear(hidden, weight), tokens, reduction="none")


def in_chunks(hidden: Tensor, weight: Tensor, tokens: Tensor) -> Tensor:
    """torch's `linear_cross_entropy` with automatic chunks; a mean, since rows of their own are not chunked."""
    options = torch.nn.LinearCrossEntropyOptions()
    return -functional.linear_cross_entropy(hidden, weight, tokens, options=options) * len(tokens)


def trl(hidden: Tensor, weight: Tensor, tokens: Tensor) -> Tensor:
    """TRL's."""
    from trl.trainer.utils import selective_log_softmax

    return selective_log_softmax(functional.linear(hidden, weight), tokens)


def ours(layer: torch.nn.Linear) -> Logp:
    """`hidden_logprobs` over the layer that holds the weight."""
    return lambda hidden, weight, tokens: hidden_logprobs(hidden, Head(layer), tokens)[0]


def contestants(trained: bool) -> tuple[dict[str, Callable[[], None]], dict[str, float], Callable[[], None]]:
    """Forward and backward of each, its largest error against float64, and how to drop the gradients."""
    draw = torch.Generator().manual_seed(0)
    layer = torch.nn.Linear(WIDTH, VOCABULARY, bias=False).requires_grad_(trained)
    with torch.no_grad():
        layer.weight.copy_(torch.randn(VOCABULARY, WIDTH, generator=draw) * WIDTH**-0.5)
    hidden = torch.randn(ROWS, WIDTH, generator=draw).requires_grad_()
    tokens = torch.randint(VOCABULARY, (ROWS,), generator=draw)
    share = torch.rand(ROWS, generator=draw)
    with torch.no_grad():
        want = torch.cat([gather(h.double(), layer.weight.double(), t)
                          for h, t in zip(hidden.split(64), tokens.split(64), strict=True)])  # fmt: skip
    computed: dict[str, Logp] = {"ours": ours(layer), "gather(log_softmax)": gather, "cross_entropy": cross_entropy,
                                 "TRL": trl, "linear_cross_entropy, chunks": in_chunks}  # fmt: skip
    calls, errors = {}, {}

    def forget() -> None:
        hidden.grad = layer.weight.grad = None

    def both(compute: Logp) -> None:
        forget()
        logp = compute(hidden, layer.weight, tokens)
        logp.backward(share if logp.dim() else None)

    for name, compute in computed.items():
        with torch.no_grad():
            logp = compute(hidden, layer.weight, tokens).double()
        errors[name] = float((logp - (want if logp.dim() else want.sum())).abs().max()) / (1 if logp.dim() else ROWS)
        calls[name] = lambda compute=compute: both(compute)
    return calls, errors, forget


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--keep", help="name of the file below results/")
    asked = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    found: dict[str, Any] = {}
    good = True
    for case in ("trained", "frozen"):
        calls, errors, forget = contestants(case == "trained")
        memory = {name: peak_mb(call, before=forget) for name, call in calls.items()}
        seconds = timed(calls, asked.rounds)
        middle = {name: sorted(each)[len(each) // 2] for name, each in seconds.items()}
        ratios = {name: paired(seconds["ours"], each) for name, each in seconds.items() if name != "ours"}
        fastest = min(ratios, key=lambda name: middle[name])
        good &= ratios[fastest].median <= 1.1 and memory["ours"] <= memory[fastest] / 4
        found[case] = {"seconds": seconds, "memory_mb": memory, "error": errors, "fastest_peer": fastest,
                       "ours / peer": {k: r._asdict() for k, r in ratios.items()}}  # fmt: skip
        print(f"output layer {case}; fastest peer: {fastest}")
        for name in calls:
            print(f"  {name:<30} {middle[name]:6.2f} s {memory[name]:6.0f} MB   error {errors[name]:.0e}"
                  f"   ours / it {ratios.get(name, '')}", flush=True)  # fmt: skip
    if asked.keep:
        keep(asked.keep, {"machine": machine(1), "versions": versions("torch", "trl"), "cases": found})
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
