"""The trained module (actor and critic in one) and the frozen reference, both over transformers models.

Only response positions reach the output layer and the value head: the prompt gets no logits. The value at step t is
read where token t is predicted from, so it has seen the prompt and the tokens before t, and nothing later.
"""

from __future__ import annotations

import copy
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn
from torch.nn import functional

from ppo_lab import faults
from ppo_lab.core.kl import categorical_kl
from ppo_lab.learners.groups import actor_and_critic

from ..generate import positions
from ..logprobs import head_of, hidden_logprobs, tempered
from .build import blocks_of
from .partial import output_of
from .traps import learned_temperature, value_states


def trunk_of(model: nn.Module) -> nn.Module:
    """The network below the heads."""
    return model.base_model  # type: ignore[return-value]


def response_states(
    trunk: nn.Module, tokens: Tensor, attention: Tensor, steps: int, *, below: Tensor | None = None
) -> Tensor:
    """Hidden states from which the last ``steps`` tokens are predicted, ``(B, T, D)``; ``below``: see `partial`.

    Nothing is predicted from the last token, so no trunk reads it.
    """
    if faults.active("padding_attended"):
        attention = torch.ones_like(attention)
    if not faults.active("shift_left_out"):
        tokens, attention = tokens[:, :-1], attention[:, :-1]
    given = {"input_ids": tokens} if below is None else {"inputs_embeds": below}
    if not bool(attention.all()):  # else the trunk's own positions are these, and there is nothing to mask
        given |= {"attention_mask": attention.long(), "position_ids": positions(attention)}
    out = trunk(**given, use_cache=False)
    return out.last_hidden_state[:, -steps:]


def copy_trainable(model: nn.Module) -> nn.Module:
    """A deep copy that shares every frozen parameter with the original: frozen layers cost memory once."""
    shared = {id(p): p for p in model.parameters() if not p.requires_grad}
    return copy.deepcopy(model, dict(shared))


class WideLinear(nn.Linear):
    """A linear layer that computes in float32 or better, also where its weights are kept in half precision."""

    def forward(self, x: Tensor) -> Tensor:
        """``x W' + b``."""
        wide = torch.promote_types(self.weight.dtype, torch.float32)
        return functional.linear(x.to(wide), self.weight.to(wide), self.bias.to(wide))


class ValueHead(nn.Module):
    """Hidden state to value, one a token, computed in float32 whatever the trunk's dtype.

    ``linear``: one layer. ``mlp``: one hidden layer with tanh. Weights start at deviation ``std``; higher: louder
    first values, which the first advantages inherit.
    """

    def __init__(self, width: int, *, kind: str = "linear", std: float = 0.01, generator: torch.Generator):
        super().__init__()
        sizes = [width, 1] if kind == "linear" else [width, width, 1]
        layers = [WideLinear(a, b) for a, b in zip(sizes, sizes[1:], strict=False)]
        with torch.no_grad():
            for layer in layers:
                layer.weight.copy_(torch.randn(layer.weight.shape, generator=generator) * std)
                layer.bias.zero_()
        self.hidden, self.out = nn.Sequential(*layers[:-1]), layers[-1]

    def forward(self, states: Tensor) -> Tensor:
        """Values ``(..., )`` of hidden states ``(..., D)``."""
        with torch.autocast(states.device.type, enabled=False):
            for layer in self.hidden:
                states = torch.tanh(layer(states))
            return self.out(states)[..., 0]


class ActorCritic(nn.Module):
    """Actor and critic behind one forward, so that one engine owns both.

    Args:
        policy: a causal transformers model, perhaps with frozen layers.
        head: value head.
        critic: the critic's own trunk; None: it reads the policy's hidden states.
        origin: which model the critic's trunk is a copy of, in words.
        shared_layers: blocks of the policy that ``critic``, an `upper_trunk`, stands on.
        detach: the value's gradient does not reach what the critic shares with the policy.
    """

    def __init__(
        self,
        policy: nn.Module,
        head: ValueHead,
        critic: nn.Module | None = None,
        *,
        origin: str = "policy",
        shared_layers: int = 0,
        detach: bool = False,
    ):
        super().__init__()
        self.origin, self.shared_layers, self.detach = origin, shared_layers, detach
        self.policy, self.critic, self.head = policy, critic, head
        self.log_temperature = learned_temperature()

    def forward(
        self,
        tokens: Tensor,
        attention: Tensor,
        response: Tensor,
        *,
        temperature: float = 1.0,
        suppress: Tensor | None = None,
        reference: Tensor | None = None,
        critic_only: bool = False,
        policy_only: bool = False,
    ) -> dict[str, Tensor]:
        """Log-probs, entropies and values of a batch of answers.

        Args:
            tokens: ``(B, L)``; attention: ``(B, L)`` bool; response: ``(B, T)``, the last T tokens.
            temperature: the sampler's τ.
            suppress: ids the sampler can never choose.
            reference: ``(B, T, V)`` tempered logits of the reference; then ``ref_kl`` is the exact KL(π‖π_ref).
            critic_only: leave the policy out (its updates have stopped).
            policy_only: leave the critic out (as for texts that nobody scored).

        Returns:
            ``logp``, ``entropy``, ``value`` (and ``ref_kl``), each ``(B, T)``; nats and reward units.
        """
        steps, out = response.shape[-1], {}
        alone = self.critic is not None and not self.shared_layers  # the critic needs nothing of the policy
        if not critic_only or not alone:
            with self._watched() as below:
                states = response_states(trunk_of(self.policy), tokens, attention, steps)
        if not critic_only:
            head, read = head_of(self.policy), states
            if self.log_temperature is not None:
                read = states / self.log_temperature.exp()
            if reference is not None:
                logits = tempered(head(read), temperature=temperature, suppress=suppress)
                out["ref_kl"] = categorical_kl(logits, reference)
            out["logp"], out["entropy"] = hidden_logprobs(
                read, head, response, temperature=temperature, suppress=suppress
            )
        if policy_only:
            return out
        if self.critic is None:
            states = self._cut(states)
        else:
            lower = self._cut(below[0]) if self.shared_layers else None
            states = response_states(self.critic, tokens, attention, steps, below=lower)
        out["value"] = self.head(value_states(states, attention[:, -steps:]))
        return out

    def _cut(self, states: Tensor) -> Tensor:
        """Shared states as the critic sees them."""
        return states.detach() if self.detach else states

    def _watched(self) -> AbstractContextManager[list[Tensor]]:
        """What the last shared block says; nothing where none is shared."""
        return output_of(blocks_of(self.policy)[self.shared_layers - 1]) if self.shared_layers else nullcontext([])

    def parameter_groups(self) -> dict[str, list[tuple[str, nn.Parameter]]]:
        """Trainable parameters, each once, by group; a shared trunk belongs to the actor."""
        return actor_and_critic(self, critic=("critic.", "head."))


class Reference(nn.Module):
    """The frozen policy: log-probs under the sampler's temperature, or whole tempered logits."""

    def __init__(self, policy: nn.Module):
        super().__init__()
        self.policy = policy.requires_grad_(False)

    def forward(
        self,
        tokens: Tensor,
        attention: Tensor,
        response: Tensor,
        *,
        temperature: float = 1.0,
        suppress: Tensor | None = None,
        logits: bool = False,
    ) -> Tensor:
        """``(B, T)`` log-probs, or ``(B, T, V)`` with ``logits=True``."""
        states = response_states(trunk_of(self.policy), tokens, attention, response.shape[-1])
        head = head_of(self.policy)
        if logits:
            return tempered(head(states), temperature=temperature, suppress=suppress)
        return hidden_logprobs(states, head, response, temperature=temperature, suppress=suppress)[0]
