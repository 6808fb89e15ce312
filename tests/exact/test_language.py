"""The enumerable language: its optimum against brute force, and the token view against the sequence view."""

from __future__ import annotations

import math

import pytest
import torch
from tiny import tiny
from torch import Tensor

from ppo_lab import seeding
from ppo_lab.core.kl import categorical_kl
from ppo_lab.core.masking import last_step, masked_sum
from ppo_lab.core.returns import gae, next_values
from ppo_lab.exact.language import Language, enumerate_model, make_language
from ppo_lab.exact.optimum import compare, optimal_logp
from ppo_lab.exact.tabular import TabularActorCritic

WORLDS = [
    make_language(0),
    make_language(1, tokens=3, length=4, stop=True),
    make_language(2, tokens=2, length=1),
    make_language(3, tokens=5, length=3, stop=True, spread=2.0),
]
each_world = pytest.mark.parametrize("world", WORLDS, ids=["4x4", "3x4-stop", "2x1", "5x3-stop"])
each_beta = pytest.mark.parametrize("beta", [0.05, 0.1, 0.5, 3.0])


def policy(world: Language, seed: int = 0) -> Tensor:
    """Logits of some other policy, (P, V)."""
    draw = seeding.generator(seed, "policy")
    return 1.5 * torch.randn(world.ref_logits.shape, generator=draw, dtype=torch.float64)


def words(world: Language) -> list[tuple[int, ...]]:
    return [tuple(row[:n]) for row, n in zip(world.sequence.tolist(), world.mask.sum(-1).tolist(), strict=True)]


def equal(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


# --- the tree --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("tokens", "length", "stop", "size"), [(4, 4, False, 256), (4, 4, True, 121), (2, 3, True, 4)])
def test_every_sequence_is_there_once(tokens: int, length: int, stop: bool, size: int) -> None:
    world = make_language(0, tokens=tokens, length=length, stop=stop)
    found, end = words(world), tokens - 1
    assert len(found) == len(set(found)) == len(world) == size
    for word in found:
        assert end not in word[:-1] or not stop
        assert len(word) == length or (stop and word[-1] == end)
    assert bool((world.reward.abs() <= 1).all()) and len(set(world.reward.tolist())) == size


@each_world
def test_log_probs_are_products_of_conditionals(world: Language) -> None:
    logits = policy(world)
    place: dict[tuple[int, ...], int] = {(): 0}
    for p, row in enumerate(world.child.tolist()):
        name = next(w for w, i in place.items() if i == p)
        place |= {(*name, v): child for v, child in enumerate(row)}
    logp = world.logp_of(logits)
    for s, word in enumerate(words(world)):
        by_hand = sum(float(logits[place[word[:t]]].log_softmax(-1)[word[t]]) for t in range(len(word)))
        assert float(logp[s]) == pytest.approx(by_hand, abs=1e-12) and place[word] == ~s
    assert float(logp.exp().sum()) == pytest.approx(1, abs=1e-12)


@each_world
def test_a_policy_is_its_sequence_log_probs_and_back(world: Language) -> None:
    logp = world.logp_of(policy(world))
    equal(world.logits_of(logp).log_softmax(-1), policy(world).log_softmax(-1))
    equal(world.logp_of(world.logits_of(logp)), logp)


def test_what_follows_the_end_does_not_matter() -> None:
    world = WORLDS[1]
    garbage = world.sequence.masked_fill(~world.mask, 10**6)
    assert torch.equal(world.index_of(garbage), torch.arange(len(world)))
    assert torch.equal(world.walk(garbage), world.walk(world.sequence))
    with pytest.raises(ValueError, match=r"whole sequences.*got \[0, 1\]"):
        world.index_of(torch.tensor([[0, 2], [0, 1]]))


def test_a_seed_is_a_language() -> None:
    assert torch.equal(make_language(5).reward, make_language(5).reward)
    assert not torch.equal(make_language(5).reward, make_language(6).reward)
    assert not torch.equal(make_language(5).ref_logits, make_language(6).ref_logits)


@pytest.mark.parametrize("size", [{"tokens": 1}, {"length": 0}, {"tokens": 30, "length": 4}])
def test_impossible_sizes_are_refused(size: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="a language needs"):
        make_language(0, **size)


# --- the optimum -----------------------------------------------------------------------------------------------------


@each_world
@each_beta
def test_what_is_missing_to_the_optimum_is_a_kl(world: Language, beta: float) -> None:
    for seed in range(5):
        found = compare(world.logp_of(policy(world, seed)), world.ref_logp, world.reward, beta=beta)
        probability = world.logp_of(policy(world, seed)).exp()
        k1 = probability.log() - world.ref_logp
        objective = float((probability * (world.reward - beta * k1)).sum())
        pairs = zip(world.ref_logp.tolist(), world.reward.tolist(), strict=True)
        best = beta * math.log(sum(math.exp(q + r / beta) for q, r in pairs))
        reference = float(world.ref_logp.exp() @ world.reward)
        assert found.objective == pytest.approx(objective, abs=1e-12)
        assert found.best == pytest.approx(best, abs=1e-12)
        assert found.reference == pytest.approx(reference, abs=1e-12)
        assert best - objective == pytest.approx(beta * found.kl_to_optimum, abs=1e-12)
        assert found.regret == pytest.approx((best - objective) / (best - reference), abs=1e-11)
        assert found.objective == pytest.approx(found.reward - beta * found.kl_to_reference, abs=1e-12)


@each_world
@each_beta
def test_nothing_beats_the_optimum(world: Language, beta: float) -> None:
    logits = world.optimal_logits(beta).requires_grad_()
    logp = world.logp_of(logits)
    objective = (logp.exp() * (world.reward - beta * (logp - world.ref_logp))).sum()
    found = compare(logp.detach(), world.ref_logp, world.reward, beta=beta)
    assert found.regret == pytest.approx(0, abs=1e-12) and found.objective == pytest.approx(found.best, abs=1e-12)
    gradient = torch.autograd.grad(objective, logits)[0]
    assert float(gradient.abs().max()) < 1e-12  # stationary in every logit
    for seed in range(5):
        other = world.logp_of(logits.detach() + 0.1 * policy(world, seed))
        moved = compare(other, world.ref_logp, world.reward, beta=beta)
        assert moved.objective < found.best and moved.regret > 0


@each_world
@each_beta
def test_the_optimum_token_by_token_is_the_optimum_of_sequences(world: Language, beta: float) -> None:
    whole = optimal_logp(world.ref_logp, world.reward, beta=beta)
    equal(world.logp_of(world.optimal_logits(beta)), whole)
    equal(world.logits_of(whole).log_softmax(-1), world.optimal_logits(beta).log_softmax(-1))


@each_world
@each_beta
def test_soft_values_are_those_of_all_ways_to_finish(world: Language, beta: float) -> None:
    through = world.walk(world.sequence)[:, :-1]  # the prefixes that each sequence passes
    value = world.soft_values(beta)
    for prefix in range(len(world.child)):
        mine = (through == prefix).any(-1)
        here = world.ref_logp[mine]
        by_hand = beta * ((here + world.reward[mine] / beta).logsumexp(-1) - here.logsumexp(-1))
        assert float(value[prefix]) == pytest.approx(float(by_hand), abs=1e-11)
    best = compare(world.ref_logp, world.ref_logp, world.reward, beta=beta).best
    assert float(value[0]) == pytest.approx(best, abs=1e-12)


@each_world
def test_beta_runs_from_the_best_sequence_to_the_reference(world: Language) -> None:
    far = optimal_logp(world.ref_logp, world.reward, beta=1e9)
    torch.testing.assert_close(far, world.ref_logp, rtol=0, atol=1e-8)  # off by R/β
    greedy = optimal_logp(world.ref_logp, world.reward, beta=1e-6)
    assert int(greedy.argmax()) == int(world.reward.argmax())
    assert float(greedy.exp().max()) == pytest.approx(1, abs=1e-12)
    for beta in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="beta must be > 0"):
            optimal_logp(world.ref_logp, world.reward, beta=beta)


def test_the_reference_has_a_regret_of_one() -> None:
    found = compare(WORLDS[0].ref_logp, WORLDS[0].ref_logp, WORLDS[0].reward, beta=0.1)
    assert (found.regret, found.kl_to_reference) == (1.0, 0.0)


def test_a_part_of_the_sequences_is_refused() -> None:
    world = WORLDS[0]
    with pytest.raises(ValueError, match="logp must hold the log-probs of all sequences"):
        compare(world.ref_logp - 0.01, world.ref_logp, world.reward, beta=0.1)


@each_world
def test_lengths(world: Language) -> None:
    logp = optimal_logp(world.ref_logp, world.reward, beta=0.3)
    found = world.lengths(logp)
    for n in range(world.length + 1):
        share = sum(math.exp(float(p)) for p, word in zip(logp, words(world), strict=True) if len(word) == n)
        assert float(found[n]) == pytest.approx(share, abs=1e-12)
    if world.stop is None:
        assert float(found[-1]) == pytest.approx(1, abs=1e-12)
    else:
        first = world.optimal_logits(0.3).softmax(-1)[0, world.stop]
        assert float(found[1]) == pytest.approx(float(first), abs=1e-12)


# --- the token view --------------------------------------------------------------------------------------------------


def token_gradient(world: Language, value: Tensor, *, beta: float, gamma: float, lam: float) -> Tensor:
    """Σ_y π(y) Σ_t A_t ∇log π(y_t|y_<t), over every sequence, with the reward of each token and GAE."""
    model = TabularActorCritic(world)
    with torch.no_grad():
        model.policy.logits.copy_(policy(world))
    table = {"tokens": world.sequence, "attention": world.mask, "response": world.sequence}
    logp = model(**table)["logp"]
    ref_logp = world.ref_logits.log_softmax(-1)[world.walk(world.sequence)[:, :-1].clamp(min=0), world.sequence]
    end = last_step(world.mask)
    reward = -beta * (logp.detach() - ref_logp) + torch.where(end, world.reward[:, None], 0)
    v = value[world.walk(world.sequence)[:, :-1].clamp(min=0)]
    advantage = gae(reward, v, next_values(v, world.mask), terminated=end, ended=end, gamma=gamma, lam=lam,
                    mask=world.mask)  # fmt: skip
    share = masked_sum(logp.detach(), world.mask, dim=-1).exp()
    terms = masked_sum(logp * advantage, world.mask, dim=-1)
    return torch.autograd.grad((share * terms).sum(), model.policy.logits)[0]


def sequence_gradient(world: Language, *, beta: float) -> Tensor:
    """∇J by differentiating the sum over all sequences."""
    logits = policy(world).requires_grad_()
    logp = world.logp_of(logits)
    return torch.autograd.grad((logp.exp() * (world.reward - beta * (logp - world.ref_logp))).sum(), logits)[0]


def values_of_policy(world: Language, *, beta: float) -> Tensor:
    """V^π of each prefix: the expected reward to come, KL included, by enumeration."""
    logits = policy(world)
    logp = logits.log_softmax(-1)
    value = torch.zeros(len(world.child), dtype=torch.float64)
    for p in reversed(range(len(world.child))):
        child = world.child[p]
        ahead = torch.where(child < 0, world.reward[(~child).clamp(min=0)], value[child.clamp(min=0)])
        value[p] = (logp[p].exp() * (ahead - beta * (logp[p] - world.ref_logits[p].log_softmax(-1)))).sum()
    return value


@each_world
def test_at_gamma_one_the_token_view_is_the_sequence_view(world: Language) -> None:
    exact = sequence_gradient(world, beta=0.2)
    anything = torch.randn(len(world.child), generator=seeding.generator("critic"), dtype=torch.float64)
    equal(token_gradient(world, anything, beta=0.2, gamma=1.0, lam=1.0), exact)  # any critic is a baseline at λ = 1
    perfect = values_of_policy(world, beta=0.2)
    for lam in (0.0, 0.5, 0.95):
        equal(token_gradient(world, perfect, beta=0.2, gamma=1.0, lam=lam), exact)  # and any λ will do for V^π


@pytest.mark.parametrize("world", [WORLDS[0], WORLDS[1]], ids=["4x4", "3x4-stop"])
def test_a_discount_or_a_bad_critic_points_elsewhere(world: Language) -> None:
    exact, perfect = sequence_gradient(world, beta=0.2), values_of_policy(world, beta=0.2)
    for value, gamma, lam in ((perfect, 0.9, 1.0), (torch.zeros_like(perfect), 1.0, 0.5)):
        wrong = token_gradient(world, value, beta=0.2, gamma=gamma, lam=lam)
        assert float((wrong - exact).norm() / exact.norm()) > 0.05


def loss_gradient(world: Language, logits: Tensor, *, beta: float) -> Tensor:
    """Expected gradient of reward plus per-token KL in the loss, over every sequence: prefixes are where they are."""
    logits = logits.clone().requires_grad_()
    prefix = world.walk(world.sequence)[:, :-1].clamp(min=0)
    kl, share = categorical_kl(logits, world.ref_logits), world.logp_of(logits).exp()
    score = (share * world.reward).sum()
    leash = (share.detach() * masked_sum(kl[prefix], world.mask, dim=-1)).sum()
    return torch.autograd.grad(score - beta * leash, logits)[0]


@each_world
@each_beta
def test_the_kl_in_the_loss_has_another_optimum(world: Language, beta: float) -> None:
    myopic, best = world.myopic_logits(beta), world.optimal_logits(beta)
    assert float(loss_gradient(world, myopic, beta=beta).abs().max()) < 1e-12
    found = compare(world.logp_of(myopic), world.ref_logp, world.reward, beta=beta)
    if world.length == 1:
        equal(myopic.log_softmax(-1), best.log_softmax(-1))
    else:
        assert found.regret > 1e-3 and float(loss_gradient(world, best, beta=beta).abs().max()) > 1e-5


# --- a transformer ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_any_causal_model_can_be_enumerated(family: str) -> None:
    model, world = tiny(family, dropout=0.3).double().train(), make_language(0, tokens=3, length=3, stop=True)
    ids, prompt = [7, 3, 12], torch.tensor([5, 9])
    others = [i for i in range(model.config.vocab_size) if i not in ids]
    logp = enumerate_model(model, world, prompt, ids, suppress=others, temperature=0.7, batch=4)
    assert model.training and float(logp.exp().sum()) == pytest.approx(1, abs=1e-12)
    model.eval()
    for s, word in enumerate(words(world)):
        by_hand, context = 0.0, prompt.tolist()
        for token in word:  # one token after the other, nothing batched or padded
            with torch.no_grad():
                logits = model(input_ids=torch.tensor([context])).logits[0, -1, ids] / 0.7
            by_hand += float(logits.log_softmax(-1)[token])
            context.append(ids[token])
        assert float(logp[s]) == pytest.approx(by_hand, abs=1e-10)
    loose = enumerate_model(model, world, prompt, ids)
    with pytest.raises(ValueError, match="suppress the tokens"):
        compare(loose, logp, world.reward, beta=0.1)
    assert float(categorical_kl(logp, logp)) == 0
