"""Lengths of best policies: against brute force, against a gradient that has to vanish; tables that share rows."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from ppo_lab.exact.lengths import BAD, GOOD, STOP, WORTHS, best_logp, mean_length, mood_language, scaled_optimum
from ppo_lab.exact.optimum import optimal_logp
from ppo_lab.exact.tabular import TabularActorCritic

each_worth = pytest.mark.parametrize("worth", WORTHS)


@each_worth
def test_rewards_and_reference_are_what_the_words_say(worth: str) -> None:
    world = mood_language(4, worth, scale=0.5, stop=0.2)
    for row, mask, reward, logp in zip(world.sequence.tolist(), world.mask.tolist(), world.reward.tolist(),
                                       world.ref_logp.exp().tolist(), strict=True):  # fmt: skip
        words = [word for word, here in zip(row, mask, strict=True) if here]
        good, bad = words.count(GOOD), words.count(BAD)
        said = {"mean": (good - bad) / max(good + bad, 1), "praise": good, "blame": -bad, "same": 1}[worth]
        assert reward == pytest.approx(0.5 * said, abs=1e-12)
        assert logp == pytest.approx(0.4 ** (good + bad) * 0.2 ** words.count(STOP), abs=1e-12)
    assert float(world.ref_logp.exp().sum()) == pytest.approx(1, abs=1e-12)


def test_prefixes_of_a_state_have_one_future() -> None:
    """Same length, same number of good words: the same optimal log-probs of what follows, for every reward."""
    for worth in WORTHS:
        world = mood_language(5, worth)
        best, state = world.optimal_logits(0.3).log_softmax(-1), world.state
        assert state is not None and int(state.max()) + 1 == 15  # 1 + 2 + 3 + 4 + 5
        for number in range(15):
            rows = best[state == number]
            torch.testing.assert_close(rows, rows[:1].expand(rows.shape), rtol=0, atol=1e-12)


def price(length: Tensor) -> Tensor:
    return 0.2 * 3.0 / length


@each_worth
def test_the_expected_push_vanishes_at_the_scaled_optimum(worth: str) -> None:
    """E_π[∇ log π (R − b log π/π_ref)] by autograd over all texts is 0 there, and not at the plain optimum."""
    world = mood_language(5, worth)
    b = price(world.mask.sum(-1).double())

    def push(logp: Tensor) -> float:
        logits = logp.clone().requires_grad_(True)
        now = logits.log_softmax(-1)
        paid = (world.reward - b * (now - world.ref_logp)).detach()
        (gradient,) = torch.autograd.grad((now.detach().exp() * now * paid).sum(), logits)
        return float(gradient.abs().max())

    found = scaled_optimum(world.ref_logp, world.reward, b)
    assert float(found.exp().sum()) == pytest.approx(1, abs=1e-12) and push(found) < 1e-12
    if worth != "same":
        assert push(optimal_logp(world.ref_logp, world.reward, beta=0.2)) > 1e-4


def test_one_price_for_all_is_the_known_optimum() -> None:
    world = mood_language(6, "praise")
    one = torch.full_like(world.reward, 0.3)
    found, known = scaled_optimum(world.ref_logp, world.reward, one), best_logp(world, beta=0.3)
    torch.testing.assert_close(found, known, rtol=0, atol=1e-10)


def lengths(worth: str, remedy: str = "none", *, cap: int = 8) -> tuple[float, float]:
    """Of the reference and of the best policy."""
    world = mood_language(cap, worth)
    usual = mean_length(world, world.ref_logp)
    logp = best_logp(world, beta=0.2, remedy=remedy, reference_length=usual if remedy == "score/L" else 3.0)
    return usual, mean_length(world, logp)


def test_what_the_objective_asks_for() -> None:
    usual, mean = lengths("mean")
    assert mean < usual - 1 < lengths("praise")[1] - 1 and lengths("blame")[1] < usual - 1
    assert lengths("same")[1] == pytest.approx(usual, abs=1e-12)
    short, best = lengths("mean", cap=3)
    assert abs(best - short) < 0.05, "under a short cap a mean leaves the length alone"
    assert lengths("mean", "L_ref/L")[1] > mean > lengths("mean", "score/L")[1]
    for remedy in ("controller", "spread", "sentences", "λ 1"):
        assert lengths("mean", remedy)[1] == mean


def test_nonsense_is_refused() -> None:
    with pytest.raises(ValueError, match="worth must be one of mean, praise, blame, same, got 'love'"):
        mood_language(3, "love")
    with pytest.raises(ValueError, match="remedy must be L_ref/L, .* got 'hope'"):
        best_logp(mood_language(3, "mean"), beta=0.1, remedy="hope")
    with pytest.raises(ValueError, match="beta must be > 0"):
        scaled_optimum(torch.zeros(2), torch.zeros(2), torch.tensor([1.0, 0.0]))


def test_a_table_shares_rows_where_the_language_says_so() -> None:
    world = mood_language(4, "mean")
    model = TabularActorCritic(world)
    assert model.policy.logits.shape == (10, 3) and model.value.shape == (10,)
    assert torch.equal(model.policy.table(), world.ref_logits)
    texts = torch.tensor([[GOOD, BAD, GOOD, STOP], [BAD, GOOD, GOOD, STOP]])  # after two words: one state
    with torch.no_grad():
        model.policy.logits.normal_(generator=torch.Generator().manual_seed(0))
        model.value.normal_(generator=torch.Generator().manual_seed(1))
    out = model(texts, texts, texts)
    assert torch.equal(out["logp"][0, 2:], out["logp"][1, 2:]) and torch.equal(out["value"][0, 2:], out["value"][1, 2:])
    assert not torch.equal(out["logp"][0, 1:2], out["logp"][1, 1:2])
    prefix = world.walk(texts)[:, :-1]
    direct = model.policy.table()[prefix].log_softmax(-1).gather(-1, texts[..., None])[..., 0]
    torch.testing.assert_close(out["logp"], direct, rtol=0, atol=1e-12)
