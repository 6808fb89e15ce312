r"""Pay for what is new, where the environment pays too rarely: counts, and the error of a prediction.

Both bonuses shrink as a place becomes familiar, so that the environment's reward has the last word; neither keeps the
optimum before that. One critic judges both kinds of reward, unlike the two heads of Burda et al., and an episode's
end ends the bonus too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ppo_lab import seeding
from ppo_lab.config.bonus import ExplorationConfig, ShapingConfig
from ppo_lab.learners.plain import PlainLearner

from .normalize import Moments
from .shaping import Bonus, Shaping, Visit


class CountBonus:
    r""":math:`w / \sqrt{N(s')}`, N the number of visits of the cell of s' so far, this rollout's included.

    A cell is an observation rounded to ``resolution``. Counts travel in the checkpoint.

    Source: Strehl & Littman 2008, MBIE-EB; Bellemare et al. 2016, Unifying count-based exploration and intrinsic
    motivation, sec. 5 (√ of counts).
    """

    def __init__(self, cfg: ExplorationConfig):
        self.cfg = cfg
        self.counts: dict[str, int] = {}

    def pay(self, visit: Visit) -> np.ndarray:
        """Count first, then pay."""
        cells = np.round(visit.final.reshape(*visit.valid.shape, -1) / self.cfg.resolution).astype(np.int64)
        rows = cells.reshape(visit.valid.size, -1)
        found, which = np.unique(rows, axis=0, return_inverse=True)
        names = [" ".join(map(str, row)) for row in found.tolist()]
        seen = np.bincount(which.reshape(-1), weights=visit.valid.reshape(-1), minlength=len(names))
        for name, count in zip(names, seen.tolist(), strict=True):
            self.counts[name] = self.counts.get(name, 0) + int(count)
        known = np.array([max(self.counts[name], 1) for name in names], dtype=np.float64)
        return self.cfg.weight * known[which.reshape(visit.valid.shape)] ** -0.5

    def state(self) -> dict[str, Any]:
        """Every cell with its count."""
        return {"counts": dict(self.counts)}

    def load(self, state: dict[str, Any]) -> None:
        """What `state` gave."""
        self.counts = dict(state["counts"])


class Predictor(nn.Module):
    """A fixed random network and one that learns to say what it says; where it was trained, it errs little."""

    def __init__(self, observed: int, cfg: ExplorationConfig, draw: torch.Generator):
        super().__init__()
        self.target, self.learned = (self._net(observed, cfg.width, draw) for _ in range(2))
        self.target.requires_grad_(False)

    @staticmethod
    def _net(observed: int, width: int, draw: torch.Generator) -> nn.Sequential:
        first, second = nn.Linear(observed, width), nn.Linear(width, width)
        for layer in (first, second):
            nn.init.orthogonal_(layer.weight, 2**0.5, generator=draw)
            nn.init.zeros_(layer.bias)
        return nn.Sequential(first, nn.ReLU(), second)

    def forward(self, x: Tensor) -> Tensor:
        """Squared error, mean over the outputs: (n, O) -> (n,)."""
        return (self.learned(x) - self.target(x)).square().mean(-1)

    def parameter_groups(self) -> dict[str, list[tuple[str, nn.Parameter]]]:
        """What a `Learner` trains."""
        return {"actor": [(n, p) for n, p in self.named_parameters() if p.requires_grad], "critic": []}


class PredictionBonus:
    r"""Random network distillation: :math:`w\,\|\hat f(s') - f(s')\|^2 / \sigma`, f fixed and random.

    σ is the running deviation of the errors' discounted sum. Observations are whitened by their running moments and
    bounded at 5. The predictor learns from a rollout after it was paid for. Weights, moments and Adam's state travel
    in the checkpoint.

    Source: Burda et al. 2019, Exploration by random network distillation, sec. 2.2–2.4.
    """

    BOUND = 5.0

    def __init__(self, cfg: ExplorationConfig, shape: tuple[int, ...], *, gamma: float, seed: int):
        self.cfg, self.gamma = cfg, gamma
        observed = int(np.prod(shape, dtype=int)) if shape else 1
        self.seen, self.sums = Moments((observed,)), Moments(())
        draw = seeding.generator(seed, "prediction bonus")
        self.networks = Predictor(observed, cfg, draw)
        self.learner = PlainLearner(self.networks, actor_rate=cfg.rate, critic_rate=cfg.rate,
                                    device="cpu")  # fmt: skip

    def pay(self, visit: Visit) -> np.ndarray:
        """Errors as they are, divided by σ; then learn."""
        rows = visit.final.reshape(visit.valid.size, -1).astype(np.float64)
        self.seen.add(rows[visit.valid.reshape(-1)])
        white = (rows - self.seen.mean) / np.sqrt(self.seen.var + 1e-8)
        x = torch.from_numpy(white.clip(-self.BOUND, self.BOUND).astype(np.float32))
        with torch.no_grad():
            error = self.learner.module(x).double().numpy().reshape(visit.valid.shape)
        error = np.where(visit.valid, error, 0.0)
        running, total = np.empty_like(error), np.zeros(error.shape[1])
        for t, row in enumerate(error):
            running[t] = total = self.gamma * total + row
        self.sums.add(running[visit.valid])
        kept = x[torch.from_numpy(visit.valid.reshape(-1))]
        with torch.enable_grad():  # nothing else learns while a rollout is collected
            for _ in range(self.cfg.passes if len(kept) else 0):
                self.learner.accumulate(self.learner.forward(x=kept).mean())
                self.learner.step(actor=1.0, critic=0.0)
        return self.cfg.weight * error / (self.sums.var**0.5 + 1e-8)

    def state(self) -> dict[str, Any]:
        """All of it as plain numbers: the network is small."""
        weights = {name: [list(x.shape), x.flatten().tolist()] for name, x in self.learner.state().items()}
        target = {n: [list(x.shape), x.flatten().tolist()] for n, x in self.networks.target.state_dict().items()}
        return {"seen": self.seen.state(), "sums": self.sums.state(), "weights": weights, "target": target}

    def load(self, state: dict[str, Any]) -> None:
        """What `state` gave."""
        self.seen.load(state["seen"])
        self.sums.load(state["sums"])
        now = {name: x.dtype for name, x in self.learner.state().items()}
        saved = {n: torch.tensor(x, dtype=now[n]).reshape(shape) for n, (shape, x) in state["weights"].items()}
        self.learner.load(saved)
        target = {n: torch.tensor(x).reshape(shape) for n, (shape, x) in state["target"].items()}
        self.networks.target.load_state_dict(target)


def make_bonuses(
    shaping: ShapingConfig, exploration: ExplorationConfig, shape: tuple[int, ...], *, gamma: float, seed: int
) -> dict[str, Bonus]:
    """What a config asks for, by name; nothing where it asks for nothing."""
    found: dict[str, Bonus] = {}
    if shaping.potential is not None:
        found["shaping"] = Shaping(shaping, gamma)
    if exploration.bonus == "count":
        found["exploration"] = CountBonus(exploration)
    elif exploration.bonus == "prediction":
        found["exploration"] = PredictionBonus(exploration, shape, gamma=gamma, seed=seed)
    return found
