"""A critic on the policy's lower blocks: the same as the slow way with tied modules, and as its two limits."""

from __future__ import annotations

import copy

import pytest
import torch
from small_runs import config, log_of, same_tensors
from tiny import PAD, VOCABULARY

from ppo_lab import checkpoint, seeding
from ppo_lab.config import ConfigError, RLHFConfig, build
from ppo_lab.config.scale import LoRAConfig
from ppo_lab.rlhf import Run
from ppo_lab.rlhf.models.actor_critic import ActorCritic, ValueHead, copy_trainable, trunk_of
from ppo_lab.rlhf.models.adapters import add_adapters
from ppo_lab.rlhf.models.build import blocks_of, train_last_layers
from ppo_lab.rlhf.models.partial import TRIED, check_split, upper_trunk
from ppo_lab.rlhf.models.recompute import recompute_blocks

LAYERS = 3
DRAW = seeding.generator("partial")
TOKENS = torch.randint(2, VOCABULARY, (3, 9), generator=DRAW)
ATTENTION = torch.ones(3, 9, dtype=torch.bool)
ATTENTION[0, :3] = False
INPUTS = dict(tokens=TOKENS, attention=ATTENTION, response=TOKENS[:, -4:])
WEIGHTS = torch.randn(2, 3, 4, generator=DRAW, dtype=torch.float64)


def model(kind: str = "gpt2", seed: int = 0):
    from transformers import AutoConfig, AutoModelForCausalLM

    sizes = dict(hidden_size=32, num_hidden_layers=LAYERS, num_attention_heads=4, max_position_embeddings=32)
    if kind != "gpt2":
        sizes |= dict(intermediate_size=48, num_key_value_heads=2)
    ids = dict(vocab_size=VOCABULARY, pad_token_id=PAD, bos_token_id=2, eos_token_id=1)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        made = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, initializer_range=0.3, **sizes, **ids))
    return made.eval()


def head() -> ValueHead:
    return ValueHead(32, std=0.5, generator=seeding.generator("head")).double()


def partial(shared: int, *, policy=None, **options) -> ActorCritic:
    policy = policy or model().double()
    return ActorCritic(policy, head(), upper_trunk(trunk_of(policy), shared), shared_layers=shared, **options)


def gradients(module: ActorCritic, *, actor: bool = True, critic: bool = True) -> dict[str, torch.Tensor]:
    seen = module(**INPUTS)
    loss = actor * (seen["logp"] * WEIGHTS[0]).sum() + critic * (seen["value"] * WEIGHTS[1]).sum()
    module.zero_grad()
    loss.backward()
    return {n: torch.zeros_like(p) if p.grad is None else p.grad.clone() for n, p in module.named_parameters()}


def moved(module: torch.nn.Module) -> None:
    """Own weights of the critic, or a wrong block would not show."""
    with torch.no_grad():
        for i, p in enumerate(module.parameters()):
            p.add_(0.1 * torch.randn(p.shape, generator=seeding.generator("moved", i), dtype=p.dtype))


@pytest.mark.parametrize("shared", [1, 2])
def test_values_and_gradients_are_those_of_a_whole_second_trunk_with_tied_lower_blocks(shared):
    module = partial(shared)
    moved(module.critic)
    trunk = trunk_of(module.policy)
    below = [trunk.wte, trunk.wpe, *blocks_of(trunk)[:shared]]
    slow = copy.deepcopy(trunk, {id(m): m for m in below})
    for own, theirs in zip(blocks_of(slow)[shared:], blocks_of(module.critic), strict=True):
        own.load_state_dict(theirs.state_dict())
    slow.ln_f.load_state_dict(module.critic.ln_f.state_dict())
    tied = ActorCritic(module.policy, module.head, slow)
    with torch.no_grad():
        fast, whole = module(**INPUTS), tied(**INPUTS)
    for name in ("logp", "entropy", "value"):
        torch.testing.assert_close(fast[name], whole[name], rtol=0, atol=1e-12)
    mine, theirs = gradients(module), gradients(tied)
    assert {n for n in mine if n.startswith("policy.")} == {n for n in theirs if n.startswith("policy.")}
    for name, g in mine.items():
        block = name.removeprefix("critic.h.").split(".")[0]
        other = name.replace(f"critic.h.{block}", f"critic.h.{int(block) + shared}") if block.isdigit() else name
        torch.testing.assert_close(g, theirs[other], rtol=0, atol=1e-10, msg=name)
    assert float(mine["policy.transformer.h.0.mlp.c_fc.weight"].abs().max()) > 1e-3


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_before_anything_has_moved_any_share_says_the_same(kind):
    policy = model(kind).double()
    values = [ActorCritic(policy, head()), ActorCritic(policy, head(), copy_trainable(trunk_of(policy)))]
    values += [partial(shared, policy=policy) for shared in (1, 2)]
    with torch.no_grad():
        first, *others = (module(**INPUTS)["value"] for module in values)
    assert all(torch.equal(first, x) for x in others) and first.std() > 0.01


@pytest.mark.parametrize("shared", [1, 2, LAYERS])
def test_detached_the_shared_trunk_has_the_gradient_of_the_actor_alone(shared):
    make = (lambda **o: ActorCritic(model().double(), head(), **o)) if shared == LAYERS else (
        lambda **o: partial(shared, **o)
    )  # fmt: skip
    cut, both, actor = gradients(make(detach=True)), gradients(make()), gradients(make(), critic=False)
    for name, g in actor.items():
        if name.startswith("policy."):
            torch.testing.assert_close(cut[name], g, rtol=0, atol=1e-12, msg=name)
        else:  # the critic's own part learns all the same
            torch.testing.assert_close(cut[name], both[name], rtol=0, atol=1e-12, msg=name)
    lower = [n for n in actor if "policy.transformer.h.0." in n]
    assert any(float((both[n] - actor[n]).abs().max()) > 1e-3 for n in lower), "or there would be nothing to cut"
    upper = [n for n in actor if f"policy.transformer.h.{shared}." in n]
    assert all(torch.equal(both[n], actor[n]) for n in upper), "blocks that are not shared never see the value"


@pytest.mark.parametrize("shared", [1, 2])
def test_what_is_shared_belongs_to_the_actor_and_nothing_is_left_over(shared):
    module = partial(shared)
    groups = module.parameter_groups()
    names = {name: {n for n, _ in group} for name, group in groups.items()}
    assert names["actor"] == {f"policy.{n}" for n, _ in module.policy.named_parameters()}
    own = {f"critic.h.{i}" for i in range(LAYERS - shared)} | {"critic.ln_f", "head.out"}
    assert {".".join(n.split(".")[: 3 if n.startswith("critic.h.") else 2]) for n in names["critic"]} == own
    grads = gradients(module)
    assert all(bool(grads[n].abs().max() > 0) for n in names["critic"]), "a parameter that nothing reaches"


def test_left_padding_moves_no_value():
    module = partial(1)
    with torch.no_grad():
        alone = module(tokens=TOKENS[:1, 3:], attention=ATTENTION[:1, 3:], response=TOKENS[:1, -4:])
        torch.testing.assert_close(module(**INPUTS)["value"][:1], alone["value"], rtol=0, atol=1e-9)


def test_frozen_layers_and_adapters_are_shared_as_ever():
    policy = model()
    train_last_layers(policy, 1)
    upper = upper_trunk(trunk_of(policy), 1)
    mine, theirs = blocks_of(upper), blocks_of(policy)[1:]
    assert all(p is q for p, q in zip(mine[0].parameters(), theirs[0].parameters(), strict=True))
    assert not any(p is q for p, q in zip(mine[1].parameters(), theirs[1].parameters(), strict=True))
    low = model()
    add_adapters(low, LoRAConfig(rank=2), seed=0)
    module = ActorCritic(low, head().float(), upper_trunk(trunk_of(low), 2), shared_layers=2)
    groups = module.parameter_groups()
    assert all("lora" in n or n.startswith("head.") for n, _ in groups["actor"] + groups["critic"])
    assert {n.split(".")[2] for n, _ in groups["critic"] if n.startswith("critic.")} == {"0"}


@pytest.mark.parametrize("detach", [False, True])
@pytest.mark.parametrize("every", [1, 2])
def test_recomputed_blocks_give_the_same_gradients(every, detach):
    plain, recomputed = partial(2, detach=detach), partial(2, detach=detach)
    for part in (recomputed.policy, recomputed.critic):
        recompute_blocks(part, every=every)
    wanted, found = gradients(plain), gradients(recomputed)
    assert all(torch.equal(found[n], g) for n, g in wanted.items())


@pytest.mark.parametrize("kind", TRIED)
def test_architectures_that_are_not_tried_while_building_were_tried_here(kind):
    policy = model(kind)
    for shared in range(1, LAYERS):
        check_split(trunk_of(policy), upper_trunk(trunk_of(policy), shared), shared)


def test_a_model_that_scales_its_embeddings_is_refused():
    trunk = trunk_of(model("llama"))

    def scaled(_, args, options):
        embeds = options.get("inputs_embeds")
        return args, options if embeds is None else {**options, "inputs_embeds": 2 * embeds}

    trunk.register_forward_pre_hook(scaled, with_kwargs=True)
    with pytest.raises(ConfigError, match="critic.trunk partial must split llama without changing what it says, got a"):
        upper_trunk(trunk, 1)


def test_weights_that_are_not_read_yet_are_split_only_where_a_test_did():
    for kind in ("llama", "gemma"):
        policy = model(kind)
        with torch.no_grad():
            for p in policy.parameters():
                p.fill_(torch.nan)
        if kind == "llama":
            upper_trunk(trunk_of(policy), 1)
        else:
            with pytest.raises(ConfigError, match="critic.trunk partial must be tried on gemma in memory"):
                upper_trunk(trunk_of(policy), 1)


@pytest.mark.parametrize(
    ("critic", "message"),
    [
        ({"trunk": "partial"}, "critic.shared_layers must be set with critic.trunk partial .* got None with partial"),
        ({"shared_layers": 2}, "critic.shared_layers must be set with .* got 2 with separate"),
        ({"detach": True}, "critic.detach needs a critic.trunk that is shared or partial, got separate"),
        ({"trunk": "shared", "init": "reward_model"}, "critic.init reward_model needs critic.trunk separate .* shared"),
        ({"trunk": "partial", "shared_layers": 1, "init": "reward_model"}, "critic.init reward_model needs .* partial"),
    ],
)
def test_what_makes_no_sense_is_named(critic, message):
    with pytest.raises(ConfigError, match=message):
        build(RLHFConfig, {"critic": critic})


def test_more_blocks_than_there_are_is_named(tmp_path):
    with pytest.raises(ConfigError, match="critic.shared_layers must lie between 0 .* the 2 blocks .* got 3; half of"):
        Run(config(critic__trunk="partial", critic__shared_layers=3), folder=tmp_path / "run")


# --- runs ------------------------------------------------------------------------------------------------------------


def run_of(folder, **critic) -> Run:
    changes = {f"critic__{k}": v for k, v in critic.items()}
    run = Run(config(steps=2, evaluation__every=2, **changes), folder=folder)
    list(run)
    return run


def test_none_shared_is_separate_and_all_shared_is_shared_to_the_bit(tmp_path):
    for name, critic, limit in (
        ("none", {"trunk": "partial", "shared_layers": 0}, {"trunk": "separate"}),
        ("all", {"trunk": "partial", "shared_layers": 2}, {"trunk": "shared"}),
    ):
        a, b = run_of(tmp_path / name, **critic), run_of(tmp_path / f"{name}_limit", init="policy", **limit)
        assert log_of(a.folder) == log_of(b.folder) and same_tensors(a.learner.state(), b.learner.state())


@pytest.mark.parametrize(
    "changes",
    [{}, {"critic__detach": True, "critic__warmup": 1}, {"policy__trainable_layers": 1}, {"policy__lora": {"rank": 2}}],
)
def test_a_partial_critic_trains_and_resumes_to_the_bit(tmp_path, changes):
    changes = {"critic__trunk": "partial", "critic__shared_layers": 1, "critic__head": "mlp", **changes}
    whole = Run(config(**changes), folder=tmp_path / "whole")
    before = {n: p.detach().clone() for n, p in whole.learner.parameters.items()}
    list(whole)
    assert any(n.startswith("critic.") for n in before)
    still = {n for n, p in whole.learner.parameters.items() if torch.equal(p, before[n])}
    assert not still, still
    first = Run(config(**changes), folder=tmp_path / "parts")
    for step in first:
        if step.step == 1:
            first.stop()
    list(Run(config(**changes), folder=tmp_path / "parts", resume=True))
    assert log_of(tmp_path / "parts") == log_of(tmp_path / "whole")
    mine, theirs = (checkpoint.load(checkpoint.latest(tmp_path / f)) for f in ("parts", "whole"))
    assert same_tensors(mine[0], theirs[0]) and mine[1] == theirs[1]
