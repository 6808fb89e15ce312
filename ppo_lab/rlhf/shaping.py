r"""Shaping for text: what each token is paid for the potential of the answer so far, without moving the optimum.

A potential is a callable like a reward, ``potential(prompts, answers, **columns) -> (B,)``, that also understands
unfinished answers. It is asked once a token, so it should be cheap; a lexicon is, a reward model is not.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import torch
from torch import Tensor

from ppo_lab.config.callables import load_callable
from ppo_lab.config.reward import RewardConfig
from ppo_lab.core.shaping import token_shaping
from ppo_lab.learners.collectives import everywhere
from ppo_lab.records import Responses

from .score import Reward, RewardError, call
from .texts import Texts


@cache
def potential_of(path: str) -> Reward:
    """The callable that ``reward.potential`` names, loaded once."""
    if path == "vader":
        from .gold import vader

        return vader
    return load_callable(path, "reward.potential")


def shaped_tokens(responses: Responses, texts: Texts, cfg: RewardConfig, *, gamma: float) -> Tensor | None:
    """What ``reward.potential`` pays on each token, (B, T), after its weight; None where there is none.

    At γ = 1 a row sums to minus the weighted potential of its prompt, so best answers stay best.
    """
    if cfg.potential is None:
        return None
    potential = potential_of(cfg.potential)
    phi = everywhere(lambda: prefix_potentials(responses, texts, potential, cfg))
    return token_shaping(cfg.potential_weight * phi, responses.mask, gamma=gamma)


def prefix_potentials(responses: Responses, texts: Texts, potential: Reward, cfg: RewardConfig) -> Tensor:
    """Φ of prompt and answer before each token, (B, T); 0 in padding.

    Raises:
        RewardError: the potential fails, or gives one number a token.
    """
    mask, steps = responses.mask, responses.mask.shape[-1]
    found = torch.zeros(mask.shape)
    prompts, columns = texts.prompts_of(responses), texts.columns_of(responses)
    start = responses.tokens.shape[-1] - steps
    for t in range(steps):
        rows = mask[:, t].nonzero().flatten().tolist()
        if not rows:
            break
        kept = torch.arange(steps, device=mask.device) < t
        attention = responses.attention.clone()
        attention[:, start:] &= kept
        partial = texts.responses_of(replace(responses, attention=attention, mask=mask & kept))
        asked = [prompts[i] for i in rows], [partial[i] for i in rows]
        some = {name: [values[i] for i in rows] for name, values in columns.items()}
        phi = call("reward.potential", potential, *asked, some, steps, cfg.timeout)
        if phi.dim() != 1:
            raise RewardError(f"reward.potential must give one number an answer, got {tuple(phi.shape)}; return (B,)")
        found[rows, t] = phi
    return found
