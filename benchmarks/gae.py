"""GAE(γ, λ), side by side, on (64, 128), (256, 1024) and (8, 16384) steps of which 1 % end an episode.

    PYTHONPATH=. PYTHON benchmarks/gae.py [--rounds 15] [--keep gae]

PYTHON has torchrl and Stable-Baselines3 besides what this package needs of torch and numpy (benchmarks/README.md): all
run in one process, in turn, on the same float32 data; all agree with a float64 loop to 1e-3. "loop" is the usual
backward loop over columns, time-major. Stable-Baselines3 computes in numpy and is shown, no pure-torch peer. Exit
status 1 where ours is slower than the fastest pure-torch peer on one of the three.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent / "peers"))
from rounds import timed  # noqa: E402
from side_by_side import keep, machine, paired, versions  # noqa: E402

from ppo_lab.core.returns import gae  # noqa: E402

SHAPES, GAMMA, LAM = ((64, 128), (256, 1024), (8, 16384)), 0.99, 0.95
PURE = ("loop", "torchrl", "torchrl, vectorised")
Tensor = torch.Tensor


def loop(reward: Tensor, value: Tensor, last: Tensor, ended: Tensor) -> Tensor:
    """Backwards over contiguous rows of ``(T, B)``."""
    advantage, ahead, next_value = torch.empty_like(reward), torch.zeros_like(last), last
    live = 1.0 - ended.to(reward.dtype)
    for t in range(len(reward) - 1, -1, -1):
        ahead = reward[t] + GAMMA * next_value * live[t] - value[t] + GAMMA * LAM * live[t] * ahead
        advantage[t], next_value = ahead, value[t]
    return advantage


def stable_baselines(reward: Tensor, value: Tensor, last: Tensor, ended: Tensor) -> Callable[[], Any]:
    """Its rollout buffer, filled."""
    import numpy as np
    from gymnasium import spaces
    from stable_baselines3.common.buffers import RolloutBuffer

    steps, count = reward.shape
    buffer = RolloutBuffer(steps, spaces.Box(-1, 1, (1,)), spaces.Discrete(2), device="cpu", gae_lambda=LAM,
                           gamma=GAMMA, n_envs=count)  # fmt: skip
    buffer.rewards[:], buffer.values[:] = reward.numpy(), value.numpy()
    buffer.episode_starts[:] = np.concatenate([np.zeros((1, count)), ended.numpy()[:-1]])

    def call() -> Any:
        buffer.compute_returns_and_advantage(last_values=last, dones=ended.numpy()[-1])
        return torch.from_numpy(buffer.advantages)

    return call


def contestants(rows: int, steps: int) -> tuple[dict[str, Callable[[], Tensor]], Tensor]:
    """Calls that return ``(B, T)`` or ``(T, B)``, and what they should, in float64."""
    from torchrl.objectives.value.functional import generalized_advantage_estimate as plain
    from torchrl.objectives.value.functional import vec_generalized_advantage_estimate as vectorised

    draw = torch.Generator().manual_seed(0)
    reward, value = torch.randn(2, rows, steps, generator=draw)
    last = torch.randn(rows, generator=draw)
    terminated = torch.rand(rows, steps, generator=draw) < 0.01
    ended = terminated.clone()
    ended[:, -1] = True
    ahead = torch.cat([value[:, 1:], last[:, None]], dim=1)
    columns = [x.T.contiguous() for x in (reward, value)]
    wide = [x[..., None].contiguous() for x in (value, ahead, reward, terminated, terminated)]
    down = [*columns, last, terminated.T.contiguous()]
    calls = {
        "ours": lambda: gae(reward, value, ahead, terminated=terminated, ended=ended, gamma=GAMMA, lam=LAM),
        "loop": lambda: loop(*down).T,
        "torchrl": lambda: plain(GAMMA, LAM, *wide)[0][..., 0],
        "torchrl, vectorised": lambda: vectorised(GAMMA, LAM, *wide)[0][..., 0],
    }
    numpy = stable_baselines(*down)
    calls["Stable-Baselines3"] = lambda: numpy().T
    return calls, loop(*(x.double() if x.is_floating_point() else x for x in down)).T


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--keep", help="name of the file below results/")
    asked = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    found: dict[str, Any] = {}
    good = True
    for rows, steps in SHAPES:
        calls, want = contestants(rows, steps)
        errors = {name: float((call().double() - want).abs().max()) for name, call in calls.items()}
        assert max(errors.values()) < 1e-3, errors
        seconds = timed(calls, asked.rounds)
        ratios = {name: paired(seconds["ours"], seconds[name]) for name in calls if name != "ours"}
        fastest = min(PURE, key=lambda name: sorted(seconds[name])[len(seconds[name]) // 2])
        good &= ratios[fastest].median <= 1.0
        found[f"{rows} x {steps}"] = {"milliseconds": {k: sorted(1e3 * x for x in v) for k, v in seconds.items()},
                                      "error": errors, "fastest_torch_peer": fastest,
                                      "ours / peer": {k: r._asdict() for k, r in ratios.items()}}  # fmt: skip
        print(f"({rows}, {steps})  fastest in torch: {fastest}")
        for name, each in seconds.items():
            print(f"  {name:<20} {1e3 * sorted(each)[len(each) // 2]:8.3f} ms   ours / it {ratios.get(name, '')}")
    if asked.keep:
        packages = ("torch", "torchrl", "stable-baselines3", "numpy")
        keep(asked.keep, {"machine": machine(1), "versions": versions(*packages), "shapes": found})
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
