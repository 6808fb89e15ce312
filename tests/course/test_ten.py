"""What notebook 10 draws and counts, as data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from ppo_lab.core.masking import length_mask
from ppo_lab.course.figures.credit import MOST, credit_figure, most_changed, spoiled_critic
from ppo_lab.course.figures.frontier import betas, frontier_figure, prices, shape, table
from ppo_lab.course.figures.optimum import optimum_figure
from ppo_lab.course.looking import four_models
from ppo_lab.course.recordings import Recording, recorded
from ppo_lab.exact.language import make_language
from ppo_lab.exact.optimum import optimal_logp
from ppo_lab.records import Responses, TextRollout
from ppo_lab.rlhf.known_optimum import solve_by_ppo

ROOT = Path(__file__).resolve().parents[2]


def recording(gold: Any = lambda beta, seed: seed - beta) -> Recording:
    """Two seeds, three leashes, in another order than they are drawn; KL 2, 4, 8 nats, score the square root of it."""
    rows = []
    for seed in (1, 0):
        for beta, kl in ((0.1, 4.0), (0.4, 2.0), (0.01, 8.0)):
            for side, nats in (("before", 0.0), ("after", kl)):
                here = gold(beta, seed) if side == "after" else -1.0
                rows.append({"side": side, "beta": beta, "seed": seed, "kl": nats, "score": nats**0.5, "gold": here})
    return Recording("frontier", "made up", "0" * 40, rows)


def test_runs_are_paired_by_seed_from_the_tightest_leash() -> None:
    assert betas(recording()) == [0.4, 0.1, 0.01]
    assert table(recording(), "gold") == [[-0.4, 0.6], [-0.1, 0.9], [-0.01, 0.99]]
    assert table(recording(), "score", side="before") == [[0.0, 0.0]] * 3


def test_the_price_of_a_nat_is_a_difference_quotient() -> None:
    first, second, third = prices(recording())
    assert first == pytest.approx([2**0.5 / 2] * 2, abs=1e-12)
    assert second == pytest.approx([(2 - 2**0.5) / 2] * 2, abs=1e-12)
    assert third == pytest.approx([(8**0.5 - 2) / 4] * 2, abs=1e-12)


@pytest.mark.parametrize(("gold", "said"), [
    (lambda beta, seed: seed - beta, "rises"), (lambda beta, seed: seed + beta, "falls"),
    (lambda beta, seed: seed - (beta - 0.1) ** 2, "turns"), (lambda beta, seed: beta * (seed - 0.5), "rises"),
])  # fmt: skip
def test_shape_of_a_curve(gold: Any, said: str) -> None:
    """The last one falls in one seed and rises in the other: not told from noise, so no fall."""
    assert shape(table(recording(gold), "gold")) == said


def test_the_frontier_starts_at_the_untouched_policy() -> None:
    left, right = frontier_figure(recording()).axes
    thin, thick = left.get_lines()[:2], left.get_lines()[2]
    assert [len(line.get_xdata()) for line in thin] == [4, 4]
    assert [*thick.get_xdata()] == [0, 2, 4, 8]
    assert [*thick.get_ydata()] == pytest.approx([0, 2**0.5, 2, 8**0.5], abs=1e-12)
    assert [*right.get_lines()[2].get_ydata()] == pytest.approx([-1, 0.1, 0.4, 0.49], abs=1e-12)
    assert [text.get_text() for text in left.texts] == ["untouched policy", "β 0.4", "β 0.1", "β 0.01"]


@pytest.mark.parametrize("name", ["frontier", "known_optimum"])
def test_recordings_name_a_script_that_exists(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    script = recorded(name).command.split()[1]
    assert (ROOT / script).is_file() and len(recorded(name).rows) >= 30


def test_the_recorded_optimum_is_the_one_of_the_soak_test() -> None:
    soak = json.loads((ROOT / "benchmarks" / "soak" / "results" / "known_optimum.json").read_text(encoding="utf-8"))
    mine = recorded("known_optimum")
    assert mine.command == soak["command"] and mine.revision.startswith(soak["revision"])
    for key in ("seed", "beta", "regret", "kl_to_optimum"):
        assert mine.column(key) == [run[key] for run in soak["runs"]]


def test_credit_draws_what_it_is_given() -> None:
    reward, value, advantage = torch.tensor([0.1, -0.2, 1.0]), torch.tensor([0.5, 0.4, 0.3]), torch.tensor([1.0, 2, 3])
    axes = credit_figure(["good", "film"], reward, value, advantage).axes[0]
    heights = [bar.get_height() for bar in axes.patches]
    assert heights == pytest.approx([0.1, -0.2, 1.0, 2.0], abs=1e-7)
    assert [*axes.get_lines()[0].get_ydata()] == pytest.approx([0.5, 0.4], abs=1e-7)
    assert [text.get_text() for text in axes.get_xticklabels()] == ["good", "film"]
    with pytest.raises(ValueError, match=f"1 to {MOST}"):
        credit_figure(["word"] * 30, torch.zeros(40), torch.zeros(40), torch.zeros(40))


def rollout(rows: int, steps: int) -> TextRollout:
    """Answers of full length, all zeros."""
    zeros, mask = torch.zeros(rows, steps), length_mask(torch.full((rows,), steps), steps=steps)
    tokens = torch.zeros(rows, steps, dtype=torch.long)
    one = torch.zeros(rows, dtype=torch.long)
    answers = Responses(tokens=tokens, attention=mask, response=tokens, mask=mask, stopped=one.bool(), logp=zeros,
                        index=one, policy_version=one)  # fmt: skip
    return TextRollout(responses=answers, old_logp=zeros, forward_logp=zeros, ref_logp=zeros, value=zeros,
                       entropy=zeros, raw_score=zeros[:, 0], score=zeros[:, 0])  # fmt: skip


@pytest.mark.parametrize("lam", [0.0, 0.5, 0.95, 1.0])
def test_noise_of_the_critic_in_the_advantage(lam: float) -> None:
    r"""Â_t = Σ_l λ^l δ_{t+l} holds -V_t + (1-λ) Σ_{l≥1} λ^{l-1} V_{t+l}: variance 1 + (1-λ)² Σ λ^{2(l-1)}, mean over t.

    Independent draws: 3,000 rows, 12 steps, 20 times; 1 % is six standard errors.
    """
    steps, given = 12, rollout(3000, 12)
    wanted = sum(1 + (1 - lam) ** 2 * sum(lam ** (2 * k) for k in range(steps - 1 - t)) for t in range(steps)) / steps
    got = spoiled_critic(given, torch.zeros(3000, steps), lam=lam, noise=1.0)
    assert got == pytest.approx(wanted, rel=0.01)


def test_the_optimum_is_drawn_from_enumeration() -> None:
    language = make_language(3)
    progress = [*solve_by_ppo(language, beta=0.5, seed=0, iterations=3, samples=64)]
    left, right = optimum_figure(language, progress, beta=0.5).axes
    curve, ceiling = left.get_lines()[:2]
    assert [*curve.get_ydata()] == [progress[0].exact.reference, *(p.exact.objective for p in progress)]
    assert ceiling.get_ydata()[0] == progress[0].exact.best
    reference, after = right.get_lines()[:2]
    best = optimal_logp(language.ref_logp, language.reward, beta=0.5).exp().tolist()
    assert [*reference.get_xdata()] == [*after.get_xdata()] == best
    assert [*after.get_ydata()] == progress[-1].logp.exp().tolist() and len(best) == 256


def test_four_models_weigh_what_they_hold(tmp_path: Path) -> None:
    from ppo_lab import rlhf
    from ppo_lab.config import load_config

    small = ["corpus.size=400", "corpus.held_out=16", "evaluation.prompts=8", "sampling.prompts=8",
             "reward.references=16"]  # fmt: skip
    run = rlhf.Run(load_config("rlhf/start", small), folder=tmp_path / "run")
    found = {name: (start, trained, count, sizes) for name, start, trained, count, sizes in four_models(run)}
    assert [*found] == ["policy", "reference", "critic", "reward model"]
    assert [trained for _, trained, *_ in found.values()] == [True, False, True, False]
    assert found["critic"][0] == "reward model, new head"
    moments = sum(x.numel() for name, x in run.learner.state().items() if name.startswith("exp_avg"))
    for _, trained, count, (weights, gradients, adam) in found.values():
        assert weights == 4 * count and gradients == weights * trained and adam == 2 * gradients
    assert sum(sizes[2] for *_, sizes in found.values()) == 4 * moments


def test_the_answer_in_which_the_critic_changed_its_mind_most() -> None:
    from dataclasses import replace

    given = rollout(3, 20)
    value = torch.zeros(3, 20)
    value[0, 5:], value[1, 5:], value[2, 11] = 2.0, 3.0, 9.0
    mask = length_mask(torch.tensor([10, 20, 11]), steps=20)  # row 1 is too long to draw, row 2 jumps after its end
    some = replace(given, value=value, responses=replace(given.responses, mask=mask))
    assert most_changed(some) == 0
