"""The plain learner: what it answers, and what it may own."""

from __future__ import annotations

import math

import pytest
import torch
from learners.modules import RATES, TwoHeads, Weights, plain
from torch import Tensor, nn

from ppo_lab.learners import Learner
from ppo_lab.learners.plain import PlainLearner, evaluating
from ppo_lab.records import TextInputs


def test_it_is_a_learner() -> None:
    assert isinstance(plain(TwoHeads()), Learner)


def test_device_is_accelerates_where_none_is_named() -> None:
    from accelerate import PartialState

    assert PlainLearner(TwoHeads(), **RATES).device == PartialState().device


def test_forward_has_gradients_but_no_dropout_and_restores_every_mode() -> None:
    module = TwoHeads()
    module.base.eval()
    learner, x = plain(module), torch.randn(6, 3)
    modes = {name: part.training for name, part in module.named_modules()}
    assert modes["dropout"] and not modes["base"]
    first, second = learner.forward(x=x), learner.forward(x=x)
    assert torch.equal(first["logits"], second["logits"]) and first["logits"].requires_grad
    assert {name: part.training for name, part in module.named_modules()} == modes
    assert not torch.equal(module(x)["logits"], module(x)["logits"])  # dropout is still there, outside


def test_modes_come_back_after_an_error() -> None:
    module = TwoHeads()
    with pytest.raises(RuntimeError):
        plain(module).forward(x=torch.randn(6, 4))
    assert module.training and module.dropout.training
    with pytest.raises(KeyError), evaluating(module):
        raise KeyError
    assert module.training and module.dropout.training


def test_score_asks_a_frozen_model_without_gradients_or_dropout() -> None:
    reference = TwoHeads(seed=1)
    learner, x = plain(TwoHeads(), frozen={"reference": reference}), torch.randn(6, 3)
    answer = learner.score("reference", x=x.requires_grad_())["logits"]
    assert not answer.requires_grad and not any(p.requires_grad for p in reference.parameters())
    assert torch.equal(answer, TwoHeads(seed=1).eval()(x)["logits"])
    reference.train()  # somebody else's doing
    assert torch.equal(answer, learner.score("reference", x=x)["logits"]) and reference.training


def test_score_names_what_it_knows() -> None:
    with pytest.raises(ValueError, match=r"score\(\) knows the frozen models \['reference'\], got 'reward'; add it"):
        plain(TwoHeads(), frozen={"reference": TwoHeads()}).score("reward")


def test_whole_is_the_module_to_generate_with() -> None:
    module = TwoHeads()
    learner, x = plain(module), torch.randn(2, 3)
    with learner.whole() as actor:
        assert not actor.training and not actor.dropout.training
        logits = actor(x)["logits"]
        assert not logits.requires_grad
    assert module.training and torch.is_grad_enabled()
    assert torch.equal(logits, learner.forward(x=x)["logits"])


def test_records_are_brought_to_the_device() -> None:
    class Reads(Weights):
        def forward(self, inputs: TextInputs, scale: float) -> Tensor:  # type: ignore[override]
            assert inputs.tokens.device.type == "meta" and isinstance(scale, float)
            return inputs.tokens

    learner = plain(Reads([1.0], [1.0]))
    learner.device = torch.device("meta")
    tokens = torch.zeros(2, 3)
    out = learner.forward(inputs=TextInputs(tokens=tokens, attention=tokens > 0, response=tokens), scale=1.0)
    assert out.device.type == "meta" and tokens.device.type == "cpu"


def test_one_process_shares_with_nobody() -> None:
    learner = plain(TwoHeads())
    x = torch.randn(3)
    assert (learner.rank, learner.world, learner.share(5)) == (0, 1, slice(0, 5))
    assert torch.equal(learner.gather(x), x) and torch.equal(learner.total(x), x) and learner.total(2) == 2


def broken(module: nn.Module, groups: dict) -> nn.Module:
    module.parameter_groups = lambda: groups  # type: ignore[assignment]
    return module


def test_groups_are_checked() -> None:
    module = TwoHeads()
    good = module.parameter_groups()
    cases = {
        "needs the keys actor and critic, got": {"policy": good["actor"], "critic": good["critic"]},
        "leaves out .'policy.weight', 'policy.bias'.; add them": good | {"actor": good["actor"][:2]},
        "must list a parameter once, got trunk.weight = ": good | {"critic": good["critic"] + good["actor"]},
        "must use names of named_parameters.., got 'w'": good | {"critic": [("w", good["critic"][0][1])]},
        "trained parameters only, got frozen base.weight": good | {"actor": [("base.weight", module.base.weight)]},
    }
    for message, groups in cases.items():
        with pytest.raises(ValueError, match=rf"parameter_groups\(\) .*{message}"):
            plain(broken(module, groups))


def test_an_empty_group_is_allowed() -> None:
    module = TwoHeads()
    everything = module.parameter_groups()
    learner = plain(broken(module, {"actor": everything["actor"] + everything["critic"], "critic": []}))
    learner.accumulate(learner.forward(x=torch.randn(2, 3))["value"].sum())
    assert learner.step() > 0


def test_a_frozen_model_may_share_frozen_parts_only() -> None:
    module, reference = TwoHeads(), TwoHeads()
    reference.base = module.base
    plain(module, frozen={"reference": reference})
    assert module.trunk.weight.requires_grad
    reference.trunk = module.trunk
    with pytest.raises(ValueError, match="frozen model reference must not share the trained trunk.weight; give"):
        plain(module, frozen={"reference": reference})
    assert module.trunk.weight.requires_grad


BAD_SETTINGS = [
    ({"actor_rate": -1.0}, "actor_rate must be finite and at least 0, got -1.0"),
    ({"critic_rate": math.nan}, "critic_rate must be finite and at least 0, got nan"),
    ({"max_norm": 0.0}, "max_norm must be above 0, got 0.0; use 1.0, or None"),
    ({"max_norm": math.nan}, "max_norm must be above 0, got nan"),
    ({"mixed_precision": "fp16"}, "mixed_precision must be 'no' or 'bf16', got 'fp16'"),
]


@pytest.mark.parametrize(("settings", "message"), BAD_SETTINGS, ids=[message for _, message in BAD_SETTINGS])
def test_settings_are_checked(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plain(TwoHeads(), **settings)
