"""Small modules with what makes trained ones difficult: shared trunks, tied weights, frozen parts, buffers."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ppo_lab.learners.plain import PlainLearner

RATES = {"actor_rate": 0.1, "critic_rate": 0.3}


def two_groups(module: nn.Module, *, critic: str = "value.") -> dict[str, list[tuple[str, nn.Parameter]]]:
    """Trained parameters, each once: those under the prefix to the critic, the rest, trunk included, to the actor."""
    trained = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
    return {
        "actor": [pair for pair in trained if not pair[0].startswith(critic)],
        "critic": [pair for pair in trained if pair[0].startswith(critic)],
    }


class TwoHeads(nn.Module):
    """A shared trunk with dropout, a policy head and a value head; a frozen embedding and two buffers."""

    def __init__(self, *, seed: int = 0, width: int = 4) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.base = nn.Linear(3, 3).requires_grad_(False)
            self.trunk = nn.Linear(3, width)
            self.dropout = nn.Dropout(0.5)
            self.policy = nn.Linear(width, 2)
            self.value = nn.Linear(width, 1)
        self.register_buffer("seen", torch.zeros(3))
        self.register_buffer("scratch", torch.ones(2), persistent=False)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        hidden = self.dropout(torch.tanh(self.trunk(self.base(x.to(self.base.weight.dtype)))))
        value = self.value(hidden.to(self.value.weight.dtype)).squeeze(-1)
        return {"logits": self.policy(hidden), "value": value.float() if value.dtype.itemsize < 4 else value}

    def parameter_groups(self) -> dict[str, list[tuple[str, nn.Parameter]]]:
        return two_groups(self)


class Tied(nn.Module):
    """Input and output embedding are one tensor; actor and critic reach one trunk by two names."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 4)
        self.trunk = nn.Linear(4, 4)
        self.value = nn.ModuleDict({"trunk": self.trunk, "head": nn.Linear(4, 1)})
        self.out = nn.Linear(4, 5, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, tokens: Tensor) -> dict[str, Tensor]:
        hidden = torch.tanh(self.trunk(self.embed(tokens)))
        return {"logits": self.out(hidden), "value": self.value["head"](hidden).squeeze(-1)}

    def parameter_groups(self) -> dict[str, list[tuple[str, nn.Parameter]]]:
        return two_groups(self)


class Weights(nn.Module):
    """Bare numbers, so that a gradient can be chosen: the loss is ``(w · g).sum()``."""

    def __init__(self, actor: list[float], critic: list[float], dtype: torch.dtype = torch.float64) -> None:
        super().__init__()
        self.actor = nn.Parameter(torch.tensor(actor, dtype=dtype))
        self.critic = nn.Parameter(torch.tensor(critic, dtype=dtype))

    def forward(self, actor: Tensor | None = None, critic: Tensor | None = None) -> Tensor:
        zero = (self.actor * 0).sum()  # the graph reaches the actor in any case
        parts = [(w * g).sum() for w, g in ((self.actor, actor), (self.critic, critic)) if g is not None]
        return sum(parts, zero)

    def parameter_groups(self) -> dict[str, list[tuple[str, nn.Parameter]]]:
        return {"actor": [("actor", self.actor)], "critic": [("critic", self.critic)]}


def plain(module: nn.Module, **settings) -> PlainLearner:
    return PlainLearner(module, device="cpu", **(RATES | settings))


def double(tensor) -> Tensor:
    return torch.tensor(tensor, dtype=torch.float64)


def push(learner: PlainLearner, gradient: dict[str, list[float]], **multipliers: float) -> float:
    """One step under a gradient of our choice."""
    learner.accumulate(learner.forward(**{group: double(g) for group, g in gradient.items()}))
    return learner.step(**multipliers)
