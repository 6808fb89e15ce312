"""Actor, critic and reference as tables over the prefixes of a `Language`: models without anything to approximate.

They are called like the transformers models of `ppo_lab.rlhf`, so sampling, scoring and the PPO update run on them as
they are; what then separates the result from the optimum is the algorithm's doing.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from ppo_lab.core.distributions import categorical_logp, entropy
from ppo_lab.core.kl import categorical_kl
from ppo_lab.learners.groups import actor_and_critic

from .language import Language


class Place:
    """Where each row stands in the tree of prefixes: what a transformer keeps as its key-value cache."""

    def __init__(self, prefix: Tensor):
        self.prefix = prefix

    def batch_select_indices(self, keep: Tensor) -> None:
        """Only these rows go on."""
        self.prefix = self.prefix[keep]


class Next(NamedTuple):
    """What a causal language model returns."""

    logits: Tensor  # (B, 1, V)
    past_key_values: Place


def row_of(language: Language, prefix: Tensor) -> Tensor:
    """The row of each prefix in a table."""
    return prefix if language.state is None else language.state.to(prefix.device)[prefix]


def first_of(language: Language) -> Tensor:
    """The first prefix of each row, (rows,)."""
    prefixes = torch.arange(len(language.child))
    if language.state is None:
        return prefixes
    last = len(prefixes) - 1
    rows = torch.zeros(int(language.state.max()) + 1, dtype=torch.long)
    return rows.index_copy(0, language.state.flip(0), last - prefixes)  # written backwards: the first one stays


class TabularPolicy(nn.Module):
    """One row of logits a prefix. Samples like a causal language model after a prompt of one token, of any id.

    Where the language says so (`Language.state`), prefixes share a row: that of the first of them.

    Args:
        language: the tree.
        logits: ``(P, V)`` to start from; a copy is trained.
    """

    def __init__(self, language: Language, logits: Tensor):
        super().__init__()
        self.language = language
        self.logits = nn.Parameter(logits[first_of(language)].clone())

    def table(self) -> Tensor:
        """Logits of every prefix, (P, V), shared rows written out."""
        return self.logits if self.language.state is None else self.logits[self.language.state]

    def forward(self, input_ids: Tensor, past_key_values: Place | None = None, **_: object) -> Next:
        """Logits of the token after ``input_ids`` ``(B, 1)``: the prompt, then one sampled token a call."""
        here = input_ids[:, -1] * 0 if past_key_values is None else past_key_values.prefix
        if past_key_values is not None:
            here = self.language.child[here, input_ids[:, -1]]
        return Next(self.logits[row_of(self.language, here)][:, None], Place(here))

    def rows(self, response: Tensor) -> Tensor:
        """Logits that predict each token of complete sequences, (B, T) -> (B, T, V); anything after the end."""
        return self.logits[row_of(self.language, self.language.walk(response)[:, :-1].clamp(min=0))]


class TabularActorCritic(nn.Module):
    """A policy and one value a prefix, trained together; its stand-in for `rlhf.models.ActorCritic`."""

    def __init__(self, language: Language):
        super().__init__()
        self.policy = TabularPolicy(language, language.ref_logits)
        self.value = nn.Parameter(torch.zeros(len(self.policy.logits), dtype=torch.float64))

    def forward(
        self,
        tokens: Tensor,
        attention: Tensor,
        response: Tensor,
        *,
        temperature: float = 1.0,
        suppress: Tensor | None = None,
        reference: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """``logp``, ``entropy``, ``value`` of each token, (B, T); with ``reference`` also the exact ``ref_kl``."""
        _plain(temperature, suppress)
        logits = self.policy.rows(response)
        out = {"logp": categorical_logp(logits, response), "entropy": entropy(logits)}
        language = self.policy.language
        out["value"] = self.value[row_of(language, language.walk(response)[:, :-1].clamp(min=0))]
        return out if reference is None else out | {"ref_kl": categorical_kl(logits, reference)}

    def parameter_groups(self) -> dict[str, list[tuple[str, nn.Parameter]]]:
        """The table of logits, and the table of values."""
        return actor_and_critic(self, critic=("value",))


class TabularReference(nn.Module):
    """The frozen π_ref; its stand-in for `rlhf.models.Reference`."""

    def __init__(self, language: Language):
        super().__init__()
        self.policy = TabularPolicy(language, language.ref_logits)

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
        _plain(temperature, suppress)
        rows = self.policy.rows(response)
        return rows if logits else categorical_logp(rows, response)


def _plain(temperature: float, suppress: Tensor | None) -> None:
    if temperature != 1.0 or suppress is not None:
        raise ValueError(f"a tabular policy is sampled at temperature 1 with nothing suppressed, got {temperature} and "
                         f"{suppress}; its optimum is that of the untempered policy")  # fmt: skip
