r"""A language small enough to write out: every sequence, its probability, its reward, and so the optimum of RLHF.

The sequences are the leaves of a tree of prefixes, where a policy is one row of logits a prefix. Everything is float64
and in nats; S sequences, T tokens at most, V tokens in the vocabulary, P prefixes. The cap T is part of the language:
what reaches it is complete. What is optimal over sequences is in `ppo_lab.exact.optimum`; here it is taken apart token
by token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from ppo_lab import seeding
from ppo_lab.core.masking import length_mask, masked_sum, select

from .optimum import positive

MOST_SEQUENCES = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    """Every sequence of at most T tokens, with a reference policy and a reward. Make one with `make_language`.

    ``child[p, v]`` is the prefix after token v at prefix p, or ``~s`` (negative) where that completes sequence s.
    Prefix 0 is the empty one, and a prefix stands before all those that it begins.
    """

    tokens: int  # V
    length: int  # T
    stop: int | None  # the token that ends a sequence, counted as its last; None: all have length T
    child: Tensor  # (P, V)
    level: tuple[slice, ...]  # rows of the prefixes of length 0, 1, … T-1
    sequence: Tensor  # (S, T), 0 after the end
    mask: Tensor  # (S, T) bool
    ref_logits: Tensor  # (P, V) of π_ref
    reward: Tensor  # (S,) in [-1, 1]
    state: Tensor | None = None  # (P,) prefixes of one number share a row in a table; None: each has its own

    def __len__(self) -> int:
        return len(self.sequence)

    @property
    def ref_logp(self) -> Tensor:
        """log π_ref of each sequence, ``(S,)``."""
        return self.logp_of(self.ref_logits)

    def walk(self, tokens: Tensor) -> Tensor:
        """The prefix before each token, and where the last one leads: ``(..., T)`` -> ``(..., T + 1)``.

        After the end stands ``~s`` of the completed sequence s, whatever the tokens there are.
        """
        path = [torch.zeros(tokens.shape[:-1], dtype=torch.long, device=tokens.device)]
        for token in tokens.unbind(-1):
            here = path[-1]
            token = torch.where(here < 0, 0, token)
            path.append(torch.where(here < 0, here, self.child.to(here.device)[here.clamp(min=0), token]))
        return torch.stack(path, dim=-1)

    def index_of(self, tokens: Tensor) -> Tensor:
        """Which sequences these are: ``(..., T)`` -> ``(...)``. Raises ValueError where one is not complete."""
        end = self.walk(tokens)[..., -1]
        if bool((end >= 0).any()):
            row = tokens.reshape(-1, tokens.shape[-1])[(end >= 0).reshape(-1)][0].tolist()
            raise ValueError(f"tokens must be whole sequences, up to the stop or {self.length} tokens, got {row}")
        return ~end

    def logp_of(self, logits: Tensor) -> Tensor:
        r"""Log-prob of each sequence from a row of logits a prefix, :math:`\sum_t \log\pi(y_t|y_{<t})`. (P, V) -> (S,).

        >>> two = make_language(0, tokens=2, length=2)
        >>> two.logp_of(torch.zeros(3, 2)).exp()
        tensor([0.2500, 0.2500, 0.2500, 0.2500])
        """
        prefix = self.walk(self.sequence)[:, :-1].clamp(min=0)
        return masked_sum(logits.log_softmax(-1)[prefix, self.sequence], self.mask, dim=-1)

    def logits_of(self, logp: Tensor) -> Tensor:
        r"""The policy, one row of logits a prefix, that has these sequence log-probs: the inverse of `logp_of`. (S,) ->
        (P, V).

        A token's logit is the log of the probability of all sequences that go on with it.
        """
        return self._finishes(logp, torch.zeros_like(self.ref_logits))

    def optimal_logits(self, beta: float) -> Tensor:
        r"""The optimal policy token by token: :math:`\log \pi_{ref}(v|p) + Q^*(p, v)/\beta`. (P, V).

        Backwards from :math:`V^* = R` where the sequence is complete, what is still to come being optimal,

        .. math:: Q^*(p, v) = V^*(pv), \qquad V^*(p) = \beta \log \sum_v \pi_{ref}(v|p)\, e^{Q^*(p, v) / \beta}.

        Source: Korbak et al. 2022, sec. 3; soft optimality as in Haarnoja et al. 2017, eq. 4 and 5.
        """
        return self._finishes(self.reward / positive(beta), self.ref_logits.log_softmax(-1))

    def soft_values(self, beta: float) -> Tensor:
        r""":math:`V^*(p)`, ``(P,)``: what a perfect critic of the perfect policy says; of the empty prefix it is J*."""
        return beta * self.optimal_logits(beta).logsumexp(-1)

    def myopic_logits(self, beta: float) -> Tensor:
        r"""Where PPO ends with the KL *in the loss*, token by token: not at π*. (P, V).

        That gradient charges a token for its own divergence and not for the divergence it leads to, so a token is worth
        the plain reward that follows it, :math:`V(p) = \sum_v \pi(v|p)\, V(pv)` and
        :math:`\pi(v|p) \propto \pi_{ref}(v|p)\, e^{V(pv)/\beta}`. For a single token the two optima agree.

        Source: Tang & Munos 2025, On a few pitfalls in KL divergence gradient estimation for RL.
        """
        logits, value = self.ref_logits.log_softmax(-1), self.reward.new_zeros(len(self.child))
        for rows in reversed(self.level):
            ahead = self._ahead(rows, self.reward, value)
            logits[rows] += ahead / positive(beta)
            value[rows] = (logits[rows].softmax(-1) * ahead).sum(-1)
        return logits

    def lengths(self, logp: Tensor) -> Tensor:
        """Exact distribution of the length: entry n is P(length = n), the stop token counted. (S,) -> (T + 1,)."""
        found = logp.new_zeros(self.length + 1)
        return found.index_add(0, self.mask.sum(-1), logp.exp())

    def _finishes(self, end: Tensor, step: Tensor) -> Tensor:
        """log Σ over all ways to finish after a token, of e^(steps from it on + end). (S,), (P, V) -> (P, V)."""
        edge, whole = step.clone(), end.new_zeros(len(step))
        for rows in reversed(self.level):
            edge[rows] += self._ahead(rows, end, whole)
            whole[rows] = edge[rows].logsumexp(-1)
        return edge

    def _ahead(self, rows: slice, end: Tensor, inner: Tensor) -> Tensor:
        """What each token of these prefixes leads to: a number of a completed sequence (S,), or of a prefix (P,)."""
        child = self.child[rows]
        return torch.where(child < 0, end[(~child).clamp(min=0)], inner[child.clamp(min=0)])


def make_language(
    seed: int, *, tokens: int = 4, length: int = 4, stop: bool = False, spread: float = 1.0
) -> Language:
    """A language drawn by ``seed``: 256 sequences of 4 tokens, unless told otherwise.

    Args:
        seed: keys the reference's logits and the rewards.
        tokens: V ≥ 2.
        length: T ≥ 1, the cap.
        stop: the last token of the vocabulary ends a sequence, so lengths vary from 1 to T.
        spread: deviation of the reference's logits. Higher: some sequences are much rarer than others.

    Raises:
        ValueError: too few tokens, no length, or more than 200 000 sequences.

    >>> len(make_language(0)), len(make_language(0, stop=True)), make_language(0, stop=True).lengths(torch.zeros(121))
    (256, 121, tensor([  0.,   1.,   3.,   9., 108.]))
    """
    words = tokens - stop
    count = words**length + stop * sum(words**n for n in range(length))
    if tokens < 2 or length < 1 or count > MOST_SEQUENCES:
        raise ValueError(
            f"a language needs tokens >= 2, length >= 1 and at most {MOST_SEQUENCES} sequences, got tokens {tokens}, "
            f"length {length}; try 4 and 4"
        )
    end = tokens - 1 if stop else None
    prefixes, sequences, child = _grow(tokens, length, end)
    lengths = torch.tensor([len(y) for y in sequences])
    first = [next(i for i, p in enumerate(prefixes) if len(p) == n) for n in range(length)]
    logits = torch.randn(len(prefixes), tokens, generator=seeding.generator(seed, "language", "reference"),
                         dtype=torch.float64)  # fmt: skip
    reward = torch.rand(len(sequences), generator=seeding.generator(seed, "language", "reward"), dtype=torch.float64)
    return Language(
        tokens=tokens,
        length=length,
        stop=end,
        child=torch.tensor(child),
        level=tuple(slice(a, b) for a, b in pairwise([*first, len(prefixes)])),
        sequence=torch.tensor([[*y, *(length - len(y)) * [0]] for y in sequences]),
        mask=length_mask(lengths, steps=length),
        ref_logits=spread * logits,
        reward=2 * reward - 1,
    )


def _grow(tokens: int, length: int, stop: int | None) -> tuple[list[tuple], list[tuple], list[list[int]]]:
    """Prefixes and sequences in breadth-first order, and the children of each prefix."""
    prefixes: list[tuple] = [()]
    sequences: list[tuple] = []
    child: list[list[int]] = []
    for prefix in prefixes:  # it grows while it is walked
        row = []
        for token in range(tokens):
            grown = (*prefix, token)
            whole = token == stop or len(grown) == length
            row.append(~len(sequences) if whole else len(prefixes))
            (sequences if whole else prefixes).append(grown)
        child.append(row)
    return prefixes, sequences, child


@torch.no_grad()
def enumerate_model(
    model: nn.Module,
    language: Language,
    prompt: Tensor,
    ids: Sequence[int],
    *,
    suppress: Sequence[int] = (),
    temperature: float = 1.0,
    batch: int = 1024,
) -> Tensor:
    r"""log-prob of every sequence of the language under any causal language model of transformers, ``(S,)`` float64.

    Args:
        model: called as ``model(input_ids=...)``, answers with ``.logits``; dropout is off here whatever its mode.
        language: what can be said.
        prompt: ids before the sequence, ``(L,)``, at least one.
        ids: the model's id of each token of the language, ``(V,)``.
        suppress: ids that are never sampled, as in the run.
        temperature: of the sampler.
        batch: sequences in one forward.

    Returns:
        Log-probs that sum to 1 if the model can say nothing outside of the language; `compare` checks that.
    """
    table, training = torch.tensor(list(ids)), model.training
    model.eval()
    rows = torch.cat([prompt.expand(len(language), -1), table[language.sequence]], dim=-1)
    found = []
    for some, mask in zip(rows.split(batch), language.mask.split(batch), strict=True):
        logits = model(input_ids=some).logits[:, len(prompt) - 1 : -1].double() / temperature
        logits[..., list(suppress)] = -torch.inf
        token = logits.log_softmax(-1).gather(-1, some[:, len(prompt) :, None])[..., 0]
        found.append(select(token, mask).sum(-1))
    model.train(training)
    return torch.cat(found)
