r"""The score taken apart by sentence: what a real process reward pays, with the same sum.

A reward that judges whole texts can judge every beginning of one as well. A sentence then earns what it changed,

.. math:: r_k = R(x, y_{\le k}) - R(x, y_{<k}), \qquad R(x, y_{\le 0}) = 0, \qquad \sum_k r_k = R(x, y),

so the objective is untouched and credit arrives at once. It is shaping by a potential (Ng, Harada and Russell 1999,
Policy invariance under reward transformations, theorem 1) with the reward itself as the potential.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ppo_lab.core.masking import last_step, select
from ppo_lab.learners.collectives import most
from ppo_lab.records import Responses

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

ENDS = (".", "!", "?")


def sentence_ends(tokenizer: PreTrainedTokenizerBase, response: Tensor, mask: Tensor) -> Tensor:
    """Where a sentence ends: valid tokens whose text closes with a mark of `ENDS`, and each answer's last. (B, T) bool.

    A stop token right after a mark is a sentence of its own, which changes nothing in the text and earns nothing but
    what stopping itself is worth.
    """
    ids = response[mask].unique().tolist()
    marks = [i for i in ids if str(tokenizer.decode([i], skip_special_tokens=True)).rstrip().endswith(ENDS)]
    closing = torch.isin(response, torch.tensor(marks, dtype=response.dtype, device=response.device))
    return mask & (closing | last_step(mask))


def by_sentence(
    responses: Responses, ends: Tensor, whole: Tensor, score_of: Callable[[Responses], Tensor]
) -> Tensor:
    """What every sentence changed in the score, on its last token; rows sum to ``whole``. -> (B, T).

    Args:
        ends: (B, T) bool, the last valid token of each answer among them, see `sentence_ends`.
        whole: scores of the whole answers, (B,).
        score_of: scores of beginnings, which count as complete; asked once a sentence, on every rank equally often.
    """
    number, count = ends.cumsum(-1), ends.sum(-1)
    parts, before = torch.zeros(ends.shape, dtype=whole.dtype), torch.zeros_like(whole)
    last = most(int(count.max()) if len(count) else 0)
    for k in range(1, last + 1):
        here, score = ends & (number == k), whole
        if k < last:
            seen = number - ends.long() < k  # tokens up to the k-th end
            score = torch.where(count > k, score_of(beginning(responses, responses.mask & seen)), whole)
        parts = parts + select((score - before)[:, None].expand(ends.shape), here)
        before = torch.where(count >= k, score, before)
    return parts


def beginning(responses: Responses, mask: Tensor) -> Responses:
    """The same answers up to where ``mask`` ends, as if they had stopped there by themselves; what is whole stays."""
    start = responses.tokens.shape[-1] - responses.response.shape[-1]
    cut = mask.sum(-1) < responses.mask.sum(-1)
    attention = torch.cat([responses.attention[:, :start], mask], dim=-1)
    return replace(responses, attention=attention, mask=mask, stopped=responses.stopped | cut)
