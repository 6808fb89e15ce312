"""A potential over the answer so far: rows telescope, the score is not touched, errors name the setting."""

from __future__ import annotations

import pytest
import torch
from small_runs import config

from ppo_lab.config import ConfigError
from ppo_lab.core.masking import masked_sum
from ppo_lab.rlhf import Run
from ppo_lab.rlhf.score import RewardError
from ppo_lab.rlhf.shaping import prefix_potentials, shaped_tokens


def words(prompts: list[str], answers: list[str], **_: list) -> list[float]:
    """A potential that grows with the whole text."""
    return [float(len(p.split()) + 10 * len(a.split())) for p, a in zip(prompts, answers, strict=True)]


def a_number_a_token(prompts: list[str], answers: list[str], **_: list) -> torch.Tensor:
    return torch.zeros(len(answers), 10)


HERE = "rlhf.test_text_shaping"
REWARD = {"sources": [{"kind": "vader"}], "potential": f"{HERE}:words", "potential_weight": 0.5}


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """The same run with and without shaping, one step; the first rollouts are the same answers."""
    folder, made = tmp_path_factory.mktemp("shaping"), []
    for name, reward in (("plain", {"sources": [{"kind": "vader"}]}), ("shaped", REWARD)):
        run = Run(config(steps=1, reward=reward), folder=folder / name)
        steps = list(run)
        made.append((run, steps))
    return made


def test_a_row_sums_to_minus_the_potential_of_its_prompt(pair):
    (plain, _), (shaped, _) = pair
    a, b = plain.last_rollout, shaped.last_rollout
    assert torch.equal(a.responses.tokens, b.responses.tokens) and torch.equal(a.score, b.score)
    paid = b.token_score
    prompt = torch.tensor([0.5 * len(text.split()) for text in shaped.texts.prompts_of(b.responses)])
    torch.testing.assert_close(masked_sum(paid, b.responses.mask, dim=-1), -prompt, rtol=0, atol=1e-5)
    assert not paid[~b.responses.mask].any()


def test_a_word_is_paid_what_it_adds(pair):
    run = pair[1][0]
    rollout, cfg = run.last_rollout, run.config.reward
    phi = prefix_potentials(rollout.responses, run.texts, words, cfg)
    prompt = torch.tensor([float(len(t.split())) for t in run.texts.prompts_of(rollout.responses)])
    first = phi[:, 0]
    torch.testing.assert_close(first, prompt, rtol=0, atol=1e-6)
    mask = rollout.responses.mask
    response, grown = rollout.responses.response[:, :-1], phi[:, 1:] - phi[:, :-1]
    word = ~torch.isin(response, torch.tensor(run.parts.tokenizer.all_special_ids))  # all others are words here
    assert torch.equal(grown[mask[:, 1:]], torch.where(word, 10.0, 0.0)[mask[:, 1:]]) and bool(word.any())
    tokens = shaped_tokens(rollout.responses, run.texts, cfg, gamma=1.0)
    torch.testing.assert_close(tokens, rollout.token_score, rtol=0, atol=1e-6)


def test_the_log_says_what_is_score_and_what_is_not(pair):
    (_, (plain,)), (_, (shaped,)) = pair
    assert shaped.score_mean == plain.score_mean
    assert shaped.non_score_reward == pytest.approx(plain.non_score_reward, abs=1e-5)
    assert shaped.evaluation.eval_score != plain.evaluation.eval_score  # another policy was trained


@pytest.mark.parametrize(("reward", "error", "message"), [
    ({"potential": "nowhere:f"}, ConfigError, "reward.potential: importing nowhere"),
    ({"potential": f"{HERE}:a_number_a_token"}, RewardError, "reward.potential must give one number an answer"),
])  # fmt: skip
def test_what_is_refused(tmp_path, reward, error, message):
    with pytest.raises(error, match=message):
        list(Run(config(steps=1, reward={"sources": [{"kind": "vader"}]} | reward), folder=tmp_path / "run"))
