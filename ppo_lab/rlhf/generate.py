"""Sampling with a key-value cache. Text depends on (seed, step, row) alone, not on batching or the number of ranks.

One uniform number a (row, position), drawn up front, becomes a token by the inverse CDF. Rows that met a stop token
leave the batch. The sampler's own log-probs are kept: their gap to the update's forward is a metric.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ppo_lab.core.distributions import categorical_logp
from ppo_lab.learners.collectives import everywhere, most
from ppo_lab.records import Prompts, Responses, concatenate, take

from .logprobs import tempered
from .models.compiled import uncompiled


def inverse_cdf(logits: Tensor, uniform: Tensor) -> Tensor:
    r"""The token :math:`\min\{v : \sum_{w \le v} p_w > u\}`, summed in float64.

    A token of probability 0 is never returned, whatever the rounding.

    Args:
        logits: ``(N, V)``, -inf allowed.
        uniform: ``(N,)`` in [0, 1).

    >>> inverse_cdf(torch.tensor([[0.0, 0.0], [0.0, 0.0]]), torch.tensor([0.49, 0.51]))
    tensor([0, 1])
    """
    probs = logits.double().softmax(-1)
    token = torch.searchsorted(probs.cumsum(-1), uniform.double()[:, None].contiguous(), right=True)[:, 0]
    if bool((token == probs.shape[-1]).any()):  # rounding left u above the whole sum
        token = torch.minimum(token, probs.shape[-1] - 1 - (probs.flip(-1) > 0).int().argmax(-1))
    return token


def positions(attention: Tensor) -> Tensor:
    """Position of each token, ``cumsum(attention) - 1``, at least 0; padding on the left shifts nothing.

    >>> positions(torch.tensor([[0, 0, 1, 1]]))
    tensor([[0, 0, 0, 1]])
    """
    return (attention.long().cumsum(-1) - 1).clamp(min=0)


@torch.no_grad()
def generate(
    model: Any,
    prompts: Prompts,
    *,
    max_new_tokens: int,
    stop_ids: Collection[int],
    pad_id: int,
    noise: Tensor | None,
    temperature: float = 1.0,
    suppress: Tensor | None = None,
    choose: Callable[[Tensor], Tensor] | None = None,
    batch: int | None = None,
    version: int = 0,
    in_step: bool = False,
    together: bool = False,
) -> Responses:
    """Answers to left-padded prompts.

    Args:
        model: a causal transformers model; dropout is off here whatever its mode.
        prompts: ``(B, P)``.
        max_new_tokens: T, the cap; the response is padded to it.
        stop_ids: any of these ends an answer and counts as its last token.
        pad_id: fills what lies after; masks never look at it, so it may equal a stop id.
        noise: ``(B, T)`` uniform numbers, or None for greedy.
        temperature: τ; rising: more random.
        suppress: ids that are never sampled.
        choose: filters tempered logits before sampling (top-p and the like); never used in training.
        batch: rows sampled at a time, None for all.
        version: policy version to note in the record.
        in_step: for a sharded model: every rank runs T steps with as many rows as the rank with most.
        together: every rank calls it for a share of its own; where one fails, as for want of memory, all raise.

    Raises:
        ValueError: noise of another shape, or a prompt without a token.
    """
    rows, wanted = len(prompts), len(prompts)
    if noise is not None and noise.shape != (rows, max_new_tokens):
        raise ValueError(f"noise must be (rows, max_new_tokens) = ({rows}, {max_new_tokens}), got {tuple(noise.shape)}")
    if not bool(prompts.attention.any(-1).all()):
        empty = int((~prompts.attention.any(-1)).nonzero()[0])
        raise ValueError(f"prompts.attention must hold one token a row, got none in row {empty}; start it with BOS")
    options: dict[str, Any] = dict(max_new_tokens=max_new_tokens, stop_ids=stop_ids, pad_id=pad_id, choose=choose,
                                   temperature=temperature, suppress=suppress, version=version,
                                   in_step=in_step)  # fmt: skip
    if in_step:
        prompts, noise = filled_up(prompts, noise, most(rows))
        rows = len(prompts)
    work, training = partial(_in_batches, model, prompts, noise, batch or max(rows, 1), options), model.training
    model.eval()
    try:
        with uncompiled(getattr(model, "base_model", model)):
            answers = everywhere(work) if together else work()
    finally:
        model.train(training)
    return answers if rows == wanted else take(answers, slice(0, wanted))


def _in_batches(
    model: Any, prompts: Prompts, noise: Tensor | None, batch: int, options: dict[str, Any]
) -> Responses:
    parts = [
        _sample(model, take(prompts, part), noise if noise is None else noise[part], **options)
        for part in (slice(i, i + batch) for i in range(0, len(prompts), batch))
    ]
    return concatenate(parts) if parts else _sample(model, prompts, noise, **options)


def filled_up(prompts: Prompts, noise: Tensor | None, rows: int) -> tuple[Prompts, Tensor | None]:
    """``rows`` rows: the first one again and again, or a row of token 0 where there is none."""
    more, width = rows - len(prompts), prompts.tokens.shape[-1]
    if more == 0:
        return prompts, noise
    first = take(prompts, slice(0, 1)) if len(prompts) else Prompts(
        tokens=prompts.tokens.new_zeros(1, width), attention=prompts.attention.new_ones(1, width),
        index=prompts.index.new_zeros(1),
    )  # fmt: skip
    filler = None if noise is None else torch.cat([noise, noise.new_zeros(more, noise.shape[-1])])
    return concatenate([prompts, *[first] * more]), filler


class Decoding:
    """The rows that are still being answered: their key-value cache, attention and last token."""

    def __init__(self, model: Any, prompts: Prompts):
        self.model, self.named, self.cache = model, cache_name(model), None
        self.rows = torch.arange(len(prompts), device=prompts.tokens.device)
        self.attention, self.tokens = prompts.attention, prompts.tokens
        self.place = positions(prompts.attention)
        self.padded = not bool(prompts.attention.all())  # else there is nothing to mask, now or later

    def next_logits(self) -> Tensor:
        """One forward over what the cache has not seen."""
        mask = self.attention.long() if self.padded else None
        out = self.model(input_ids=self.tokens, attention_mask=mask, position_ids=self.place, use_cache=True,
                         logits_to_keep=1, **({} if self.cache is None else {self.named: self.cache}))  # fmt: skip
        self.cache = getattr(out, self.named)
        return out.logits[:, -1]

    def go_on(self, token: Tensor, done: Tensor | None = None) -> None:
        """Append a token to each row, and let the rows that are done go."""
        if done is not None:
            keep = (~done).nonzero()[:, 0]
            self.cache.batch_select_indices(keep)  # type: ignore[attr-defined]
            self.rows, self.attention, self.place = self.rows[keep], self.attention[keep], self.place[keep]
            token = token[keep]
        if self.padded:
            self.attention = torch.cat([self.attention, self.attention.new_ones(len(token), 1)], dim=-1)
        self.tokens, self.place = token[:, None], self.place[:, -1:] + 1


def _sample(
    model: Any,
    prompts: Prompts,
    noise: Tensor | None,
    *,
    max_new_tokens: int,
    stop_ids: Collection[int],
    pad_id: int,
    temperature: float,
    suppress: Tensor | None,
    choose: Callable[[Tensor], Tensor] | None,
    version: int,
    in_step: bool = False,
) -> Responses:
    rows, device = len(prompts), prompts.tokens.device
    response = torch.full((rows, max_new_tokens), pad_id, device=device)
    logp = torch.zeros(rows, max_new_tokens, device=device)
    mask, stopped = (torch.zeros(size, dtype=torch.bool, device=device) for size in ((rows, max_new_tokens), (rows,)))
    stops, decoding = torch.tensor(sorted(stop_ids), device=device), Decoding(model, prompts)
    for t in range(max_new_tokens if rows else 0):
        logits = tempered(decoding.next_logits(), temperature=temperature, suppress=suppress)
        drawn_from, alive = logits if choose is None else choose(logits), decoding.rows
        whole = len(alive) == rows  # columns are cheaper to write than rows by number
        uniform = None if noise is None else noise[:, t] if whole else noise[alive, t]
        token = drawn_from.argmax(-1) if uniform is None else inverse_cdf(drawn_from, uniform)
        said = categorical_logp(logits, token).to(logp.dtype)
        live = ~stopped[alive]  # all, where finished rows are let go
        at = slice(None) if whole else alive
        response[at, t], mask[at, t] = torch.where(live, token, pad_id), live
        logp[at, t] = torch.where(live, said, 0)
        done = torch.isin(token, stops) if len(stops) else torch.zeros_like(live)
        count = int(done.sum())
        if count:
            stopped[alive[done]] = True
        if count == len(alive) and not in_step:
            break
        decoding.go_on(token, done if count and not in_step else None)
    return Responses(tokens=torch.cat([prompts.tokens, response], dim=-1), stopped=stopped, logp=logp, mask=mask,
                     attention=torch.cat([prompts.attention, mask], dim=-1), response=response, index=prompts.index,
                     policy_version=torch.full((rows,), version, device=device))  # fmt: skip


def trim(responses: Responses) -> Responses:
    """The same answers without the columns that are padding in every row: cheaper forwards, equal numbers."""
    steps = responses.response.shape[-1]
    start = responses.tokens.shape[-1] - steps
    used = responses.mask.any(0).nonzero()
    longest = int(used[-1]) + 1 if len(used) else 1
    first = responses.attention[:, :start].any(0).nonzero()
    left = int(first[0]) if len(first) else 0
    keep = slice(left, start + longest)
    return Responses(
        tokens=responses.tokens[:, keep],
        attention=responses.attention[:, keep],
        response=responses.response[:, :longest],
        mask=responses.mask[:, :longest],
        logp=responses.logp[:, :longest],
        stopped=responses.stopped,
        index=responses.index,
        policy_version=responses.policy_version,
    )


def cache_name(model: Any) -> str:
    """What this release of transformers calls the key-value cache, in the call and in its result."""
    return "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
