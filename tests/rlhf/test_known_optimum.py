"""PPO finds the optimum that is known, a planted fault keeps it from there; the language as corpus and reward."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from ppo_lab import seeding
from ppo_lab.config import ConfigError, load_config
from ppo_lab.config.language import CorpusConfig, KLConfig
from ppo_lab.core.kl import categorical_kl
from ppo_lab.exact.language import Language, make_language
from ppo_lab.exact.optimum import compare
from ppo_lab.exact.tabular import TabularActorCritic, TabularReference
from ppo_lab.learners.plain import PlainLearner
from ppo_lab.records import Responses
from ppo_lab.rlhf import Run, known_optimum, steps
from ppo_lab.rlhf.assess import Lens, opinions
from ppo_lab.rlhf.corpus import SOURCES
from ppo_lab.rlhf.corpus.language import PROMPT, from_language, language_of, language_reward, sentences_of, words_of
from ppo_lab.rlhf.known_optimum import PPO, Progress, compare_run, enumerate_run, observe, solve_by_ppo
from ppo_lab.rlhf.rewards import token_rewards

BETA, ITERATIONS = 0.5, 100


def solved(**options: object) -> Progress:
    options = {"beta": BETA, "seed": 0, "iterations": ITERATIONS} | options
    *_, last = solve_by_ppo(make_language(0), **options)  # type: ignore[arg-type]
    return last


def no_kl(*tensors: torch.Tensor, beta: float, estimator: str, placement: str) -> torch.Tensor:
    return token_rewards(*tensors, beta=0.0, estimator=estimator, placement=placement)


def wrong_sign(*tensors: torch.Tensor, beta: float, estimator: str, placement: str) -> torch.Tensor:
    return token_rewards(*tensors, beta=-beta, estimator=estimator, placement=placement)


# --- PPO on tables ---------------------------------------------------------------------------------------------------


def test_ppo_approaches_the_optimum() -> None:
    last = solved()
    assert last.samples == ITERATIONS * 256 and last.update.first_ratio_error == 0.0
    assert last.exact.kl_to_optimum < 0.01 and last.exact.regret < 0.02


@pytest.mark.parametrize("estimator", ["k2", "exact"])
def test_with_the_kl_in_the_loss_ppo_finds_that_optimum_instead(estimator: str) -> None:
    last, world = solved(kl=KLConfig(placement="loss", estimator=estimator)), make_language(0)
    myopic = world.logp_of(world.myopic_logits(BETA))
    assert float(categorical_kl(last.logp, myopic)) < 0.02 < 0.04 < last.exact.kl_to_optimum


@pytest.mark.parametrize("fault", [no_kl, wrong_sign])
def test_a_fault_in_the_reward_misses_it(fault: Callable[..., torch.Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "token_rewards", fault)
    assert solved().exact.kl_to_optimum > 0.2


def test_a_discount_misses_it() -> None:
    """0.5³ = 13 % of the score reach the first of four tokens, as at γ 0.99 the first of 200."""
    assert solved(cfg=PPO.model_copy(update={"gamma": 0.5})).exact.kl_to_optimum > 0.05


def test_each_step_is_compared_exactly() -> None:
    world = make_language(3, tokens=3, length=3, stop=True)
    history = list(solve_by_ppo(world, beta=0.2, seed=1, iterations=3, samples=32))
    assert [p.step for p in history] == [1, 2, 3] and history[-1].samples == 96
    for p in history:
        assert p.exact == compare(p.logp, world.ref_logp, world.reward, beta=0.2)
    again = list(solve_by_ppo(world, beta=0.2, seed=1, iterations=3, samples=32))
    assert torch.equal(history[-1].logp, again[-1].logp)


def test_observed_sequences_are_drawn_by_the_inverse_cdf_and_judged_by_the_tables() -> None:
    world = make_language(3, tokens=3, length=3, stop=True)
    learner = PlainLearner(TabularActorCritic(world), frozen={"reference": TabularReference(world)}, actor_rate=0.1,
                           critic_rate=0.1, device="cpu")  # fmt: skip
    noise = seeding.uniforms(0, 0, range(200), 3)
    seen = observe(learner, world, noise, Lens())
    cdf = world.ref_logits.softmax(-1).cumsum(-1)
    for b in range(len(noise)):
        prefix, t = 0, 0
        while prefix >= 0:
            token = int((cdf[prefix] <= noise[b, t]).sum())
            assert int(seen.responses.response[b, t]) == token and bool(seen.responses.mask[b, t])
            prefix, t = int(world.child[prefix, token]), t + 1
        assert int(seen.responses.mask[b].sum()) == t
        assert float(seen.score[b]) == float(world.reward[~prefix])
    assert torch.equal(seen.old_logp, seen.ref_logp)
    assert len(set(seen.responses.mask.sum(-1).tolist())) > 1


def test_a_table_refuses_another_temperature() -> None:
    world, model = make_language(0), TabularActorCritic(make_language(0))
    with pytest.raises(ValueError, match="temperature 1"):
        model(tokens=world.sequence, attention=world.mask, response=world.sequence, temperature=0.7)


# --- the language as a corpus and a reward ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["4x4", "4x3-stop"])
def test_texts_are_drawn_from_the_reference(name: str) -> None:
    cfg = CorpusConfig(kind="language", path=name, size=20_000, held_out=8)
    world, corpus = language_of(cfg, 1), from_language(cfg, 1)
    texts = [f"{PROMPT} {s}".strip() for s in sentences_of(world)]
    assert len(set(texts)) == len(world)
    counts = torch.tensor([corpus.train_texts.count(t) for t in texts], dtype=torch.float64)
    assert counts.sum() == 20_000 and set(corpus.train_prompts) == set(corpus.held_out_prompts) == {PROMPT}
    expected = 20_000 * world.ref_logp.exp()
    chi = float(((counts - expected) ** 2 / expected).sum()) - (len(world) - 1)
    assert abs(chi) < 5 * (2 * (len(world) - 1)) ** 0.5  # five deviations of a chi-squared; the seed is fixed


@pytest.mark.parametrize("name", ["4x4", "4x3-stop"])
def test_the_reward_is_looked_up(name: str) -> None:
    cfg = CorpusConfig(kind="language", path=name)
    world, reward = language_of(cfg, 1), language_reward(cfg, 1)
    answers = [f" {s}" for s in sentences_of(world)]
    assert torch.equal(reward([PROMPT] * len(world), answers), world.reward)
    with pytest.raises(ValueError, match="'a z'.*suppress"):
        reward([PROMPT], [" a z"])


@pytest.mark.parametrize("name", ["4", "4x", "4x4-end", "1x4", "40x1", "20x9"])
def test_no_such_language(name: str) -> None:
    with pytest.raises(ConfigError, match="corpus.path"):
        language_of(CorpusConfig(kind="language", path=name), 0)


def test_the_shipped_config_leaves_nothing_but_the_language_to_say() -> None:
    cfg = load_config("rlhf/language")
    world = language_of(cfg.corpus, cfg.seed)
    assert (cfg.sampling.max_new_tokens, cfg.sampling.temperature, cfg.reward.normalize) == (world.length, 1.0, "none")
    assert (cfg.ppo.gamma, cfg.reward.clip) == (1.0, None)
    assert known_optimum.PPO.gamma == 1.0


@pytest.mark.parametrize("name", ["3x3", "4x2-stop"])
def test_a_run_is_compared_by_enumerating_its_own_reference(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SOURCES, "language", from_language)
    suppress = ["<pad>", "<bos>", "<unk>", "say", *([] if "stop" in name else ["<eos>"])]
    cfg = load_config("rlhf/language", [
        f"corpus.path={name}", "corpus.size=200", "corpus.held_out=4", "evaluation.prompts=4", "sft.steps=9", "steps=2",
        "policy.layers=1", "policy.width=16", "sampling.prompts=16", f"sampling.max_new_tokens={name[2]}",
        f"sampling.suppress=[{', '.join(map(repr, suppress))}]", "ppo.epochs=1", "optimizer.actor_rate=0.03",
    ])  # fmt: skip
    run = Run(cfg, folder=tmp_path / "run", reward=language_reward(cfg.corpus, cfg.seed))
    before = compare_run(run)
    assert (before.regret, before.kl_to_reference) == (1.0, 0.0)
    list(run)
    world, logp, ref_logp = enumerate_run(run)
    assert compare_run(run).kl_to_reference > 1e-3
    seen = opinions(run.learner, every_answer(run, world), run.parts.lens)  # as the recipe itself looks at answers
    for mine, theirs in ((logp, "logp"), (ref_logp, "ref_logp")):
        torch.testing.assert_close(mine, seen[theirs].sum(-1).double(), rtol=0, atol=1e-5)  # float32 model


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("sampling.max_new_tokens=3", "sampling.max_new_tokens must be 4 .* got 3; set sampling.max_new_tokens: 4"),
        ("sampling.temperature=0.7", "sampling.temperature must be 1.0 .* got 0.7"),
        ("sampling.stop=[a]", r"sampling.stop must be \[\] .* got \['a'\]"),
        ("ppo.gamma=0.99", "ppo.gamma must be 1.0 .* got 0.99"),
        ("reward.normalize=reference", "reward.normalize must be none .* got reference"),
        ("reward.missing_eos=subtract", "reward.missing_eos must be none"),
        ("sampling.suppress=[<pad>, <bos>, <unk>, say]", r"sampling.suppress must .*1 others not named\); set "
                                                         r"sampling.suppress: \[<pad>, <bos>, <eos>, <unk>, say\]"),
        ("sampling.suppress=[<pad>, <bos>, <eos>, <unk>, say, b]", "sampling.suppress must .*'b' named"),
        ("corpus.path=5x4-stop", "sampling.suppress must .*'<eos>' named"),
    ],
)  # fmt: skip
def test_settings_of_another_problem_are_refused_before_any_training(change: str, message: str, tmp_path: Path) -> None:
    cfg = load_config("rlhf/language", ["corpus.size=200", change])
    with pytest.raises(ConfigError, match=message):
        Run(cfg, folder=tmp_path / "run")
    assert not (tmp_path / "run" / "models").exists()


def every_answer(run: Run, world: Language) -> Responses:
    """Each sequence once, as `generate` would hand it over."""
    tokenizer, rows = run.parts.tokenizer, len(world)
    ids = tokenizer.convert_tokens_to_ids([*words_of(world), tokenizer.eos_token])
    response = torch.tensor(ids)[world.sequence]
    prompts = run.parts.encode([PROMPT] * rows)
    return Responses(
        tokens=torch.cat([prompts.tokens, response], -1), attention=torch.cat([prompts.attention, world.mask], -1),
        response=response, mask=world.mask, stopped=torch.ones(rows, dtype=torch.bool), index=prompts.index,
        logp=torch.zeros(response.shape), policy_version=torch.zeros(rows, dtype=torch.long),
    )  # fmt: skip
