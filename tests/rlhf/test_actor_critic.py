"""Actor, critic and reference: what they say of a token does not hang on how its row was padded."""

from __future__ import annotations

import copy

import pytest
import torch
from tiny import VOCABULARY, tiny
from torch import Tensor

from ppo_lab import seeding
from ppo_lab.rlhf.models.actor_critic import ActorCritic, Reference, ValueHead, trunk_of


@pytest.mark.parametrize("trunk", ["separate", "shared"])
@pytest.mark.parametrize("family", ["llama", "gpt2"])
@pytest.mark.parametrize("pads", [0, 1, 2, 7])
def test_b01_left_padding_moves_no_opinion(family: str, pads: int, trunk: str) -> None:
    policy = tiny(family).double()
    critic = copy.deepcopy(trunk_of(tiny(family, seed=1))).double() if trunk == "separate" else None
    head = ValueHead(32, std=0.5, generator=seeding.generator("head")).double()
    module, reference = ActorCritic(policy, head, critic), Reference(tiny(family, seed=2).double())
    draw = seeding.generator("b01", pads)
    short, long = (torch.randint(3, VOCABULARY, (n,), generator=draw) for n in (6, 6 + pads))
    answer = torch.randint(3, VOCABULARY, (2, 4), generator=draw)
    rows = torch.stack([torch.cat([torch.randint(3, VOCABULARY, (pads,), generator=draw), short]), long])
    seen = torch.ones(2, 10 + pads, dtype=torch.bool)
    seen[0, :pads] = False  # whatever id stands there
    together = opinions(module, reference, torch.cat([rows, answer], -1), seen, answer)
    alone = opinions(module, reference, torch.cat([short, answer[0]])[None], seen[:1, pads:], answer[:1])
    for name, found in alone.items():
        torch.testing.assert_close(together[name][:1], found, rtol=0, atol=1e-9)
    assert float(alone["value"].std()) > 0.01, "or the critic would say nothing"


def opinions(
    module: ActorCritic, reference: Reference, tokens: Tensor, attention: Tensor, response: Tensor
) -> dict[str, Tensor]:
    inputs = dict(tokens=tokens, attention=attention, response=response)
    with torch.no_grad():
        theirs = reference(**inputs, logits=True)
        return module(**inputs, reference=theirs) | {"reference": reference(**inputs)}
