"""Actor and critic of control, and what their numbers mean: a softmax over choices, or a Gaussian a number.

A policy's output for one state is one row, its *head* (..., H): logits for choices (H = A), mean and log σ for numbers
(H = 2A). All that depends on the kind of action is in the two classes here.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from ppo_lab.config.control import NetConfig
from ppo_lab.core.distributions import categorical_logp, entropy, gaussian_entropy, gaussian_logp
from ppo_lab.core.kl import categorical_kl, gaussian_kl


class Actions(Protocol):
    """How a head becomes an action, and what can be said of it. All in nats."""

    outputs: int  # what the actor network gives, A
    shape: tuple[int, ...]  # of one action
    gaussian: bool

    def noise(self, *shape: int, draw: torch.Generator) -> Tensor:
        """What `sample` needs for so many actions."""
        ...

    def sample(self, head: Tensor, noise: Tensor) -> Tensor:
        """An action of each row."""
        ...

    def mode(self, head: Tensor) -> Tensor:
        """The likeliest action of each row."""
        ...

    def sent(self, action: Tensor) -> np.ndarray:
        """What the environment is given: a copy within its bounds, where it has some."""
        ...

    def logp(self, head: Tensor, action: Tensor) -> Tensor:
        """log π of the action as it was sampled."""
        ...

    def entropy(self, head: Tensor) -> Tensor:
        """Entropy of each row."""
        ...

    def kl(self, old: Tensor, new: Tensor) -> Tensor:
        """Exact KL(old‖new) of each row."""
        ...


class Choices:
    """One of A actions, softmax of A logits. Gumbel noise and argmax draw from it."""

    gaussian, shape = False, ()

    def __init__(self, space: spaces.Discrete):
        self.outputs, self.first = int(space.n), int(space.start)

    def noise(self, *shape: int, draw: torch.Generator) -> Tensor:
        """Standard Gumbel, (..., A): the argmax of logits + noise is a draw from their softmax."""
        return -torch.empty(*shape, self.outputs).exponential_(generator=draw).log_()

    def sample(self, head: Tensor, noise: Tensor) -> Tensor:
        """(..., A) -> (...) whole numbers."""
        return (head + noise).argmax(-1)

    def mode(self, head: Tensor) -> Tensor:
        """The largest logit."""
        return head.argmax(-1)

    def sent(self, action: Tensor) -> np.ndarray:
        """The number that the environment has for it."""
        return action.numpy() + self.first if self.first else action.numpy()

    def logp(self, head: Tensor, action: Tensor) -> Tensor:
        """(..., A), (...) -> (...)."""
        return categorical_logp(head, action)

    def entropy(self, head: Tensor) -> Tensor:
        """(..., A) -> (...)."""
        return entropy(head)

    def kl(self, old: Tensor, new: Tensor) -> Tensor:
        """(..., A), (..., A) -> (...)."""
        return categorical_kl(old, new)


class Numbers:
    """A numbers, each a Gaussian around its mean; σ is the same in every state.

    What was sampled is kept, with its own log-probability; the environment gets a copy clipped to its bounds. To keep
    the clipped one with the unclipped one's log-probability would be a bug.
    """

    gaussian = True

    def __init__(self, space: spaces.Box):
        self.outputs = int(np.prod(space.shape))
        self.shape = (self.outputs,)
        self.low, self.high = space.low, space.high

    def noise(self, *shape: int, draw: torch.Generator) -> Tensor:
        """Standard normal, (..., A)."""
        return torch.randn(*shape, self.outputs, generator=draw)

    def sample(self, head: Tensor, noise: Tensor) -> Tensor:
        """(..., 2A) -> (..., A)."""
        mean, log_std = head.chunk(2, -1)
        return mean + log_std.exp() * noise

    def mode(self, head: Tensor) -> Tensor:
        """The means."""
        return head.chunk(2, -1)[0]

    def sent(self, action: Tensor) -> np.ndarray:
        """A copy within the environment's bounds."""
        return np.clip(action.numpy(), self.low, self.high)

    def logp(self, head: Tensor, action: Tensor) -> Tensor:
        """(..., 2A), (..., A) -> (...)."""
        mean, log_std = head.chunk(2, -1)
        return gaussian_logp(mean, log_std, action)

    def entropy(self, head: Tensor) -> Tensor:
        """(..., 2A) -> (...)."""
        return gaussian_entropy(head.chunk(2, -1)[1])

    def kl(self, old: Tensor, new: Tensor) -> Tensor:
        """(..., 2A), (..., 2A) -> (...)."""
        (mean, log_std), (new_mean, new_log_std) = old.chunk(2, -1), new.chunk(2, -1)
        return gaussian_kl(mean, log_std, new_mean, new_log_std)


def actions_of(space: spaces.Space) -> Choices | Numbers:
    """What to do with actions of this space."""
    return Choices(space) if isinstance(space, spaces.Discrete) else Numbers(space)


class ActorCritic(nn.Module):
    """Two perceptrons, or one with two heads; the trained module of a `Learner`.

    With ``net.target_decay`` a copy of the critic lags behind it (with a shared trunk: of the value's head).

    Args:
        cfg: sizes, activation, initial weights.
        observed: numbers in one observation.
        actions: what the policy gives.
        draw: initial weights come from here.
    """

    lagging: Tensor  # (D,) the lagging critic's parameters end to end

    def __init__(self, cfg: NetConfig, observed: int, actions: Choices | Numbers, draw: torch.Generator):
        super().__init__()
        self.shared = cfg.trunk == "shared"
        widths = (observed, *cfg.hidden)
        self.trunk = _body(cfg, widths, draw)
        self.policy = _layer(cfg, widths[-1], actions.outputs, cfg.policy_gain, draw)
        self.critic = nn.Identity() if self.shared else _body(cfg, widths, draw)
        self.value = _layer(cfg, widths[-1], 1, 1.0, draw)
        self.log_std = nn.Parameter(torch.full((actions.outputs,), cfg.log_std)) if actions.gaussian else None
        self.decay = cfg.target_decay
        if self.decay is not None:  # a buffer travels in the checkpoint
            self.register_buffer("lagging", nn.utils.parameters_to_vector(self._critic().values()).detach().clone())

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Head and value of each observation: (..., O) -> (..., H), (...)."""
        inside = self.trunk(obs)
        beside = inside if self.shared else self.critic(obs)
        return self._complete(self.policy(inside)), self.value(beside)[..., 0]

    def head(self, obs: Tensor) -> Tensor:
        """The policy's part alone, to act with: (..., O) -> (..., H)."""
        return self._complete(self.policy(self.trunk(obs)))

    def values(self, obs: Tensor) -> Tensor:
        """The critic's part alone: (..., O) -> (...)."""
        return self.value(self.trunk(obs) if self.shared else self.critic(obs))[..., 0]

    def judged(self, obs: Tensor) -> Tensor:
        """What advantages and targets are made from: the lagging critic where there is one, else the critic itself."""
        if self.decay is None:
            return self.values(obs)
        mine, parts = self._critic(), {}
        for (name, p), piece in zip(mine.items(), self.lagging.split([p.numel() for p in mine.values()]), strict=True):
            parts[name] = piece.view_as(p)
        return torch.func.functional_call(self, parts, (obs,))[1]

    @torch.no_grad()
    def follow(self) -> None:
        """After an update: the lagging critic comes a little nearer, V̄ ← d·V̄ + (1-d)·V."""
        if self.decay is not None:
            now = nn.utils.parameters_to_vector(self._critic().values())
            self.lagging.mul_(self.decay).add_(now, alpha=1 - self.decay)

    def _critic(self) -> dict[str, nn.Parameter]:
        return dict(self.parameter_groups()["critic"])

    def parameter_groups(self) -> dict[str, list[tuple[str, nn.Parameter]]]:
        """The policy's, with a shared trunk; and the critic's."""
        named = list(self.named_parameters())
        critic = [(name, p) for name, p in named if name.startswith(("critic.", "value."))]
        return {"actor": [pair for pair in named if pair not in critic], "critic": critic}

    def _complete(self, output: Tensor) -> Tensor:
        if self.log_std is None:
            return output
        return torch.cat([output, self.log_std.expand_as(output)], -1)


def _body(cfg: NetConfig, widths: tuple[int, ...], draw: torch.Generator) -> nn.Sequential:
    between = nn.Tanh if cfg.activation == "tanh" else nn.ReLU
    layers: list[nn.Module] = []
    for inputs, outputs in zip(widths[:-1], widths[1:], strict=True):
        layers += [_layer(cfg, inputs, outputs, 2**0.5, draw), between()]
    return nn.Sequential(*layers)


def _layer(cfg: NetConfig, inputs: int, outputs: int, gain: float, draw: torch.Generator) -> nn.Linear:
    layer = nn.Linear(inputs, outputs)
    with torch.no_grad():
        if cfg.init == "orthogonal":
            nn.init.orthogonal_(layer.weight, gain, generator=draw)
            layer.bias.zero_()
        else:  # torch's own bound, from our generator
            layer.weight.uniform_(-(inputs**-0.5), inputs**-0.5, generator=draw)
            layer.bias.uniform_(-(inputs**-0.5), inputs**-0.5, generator=draw)
    return layer
