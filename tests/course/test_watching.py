"""The four lights on a real rollout, green as it is and red where something was spoiled; what a watched run shows."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import pytest
import torch

from ppo_lab import course, rlhf
from ppo_lab.config import load_config
from ppo_lab.course import lights as module
from ppo_lab.course.build import HERE
from ppo_lab.course.catalogue import NOTEBOOKS
from ppo_lab.course.figures.flow import MODELS, STATIONS, flow_figure
from ppo_lab.course.lights import CLOSE, Light, lights
from ppo_lab.course.looking import samples
from ppo_lab.course.maps import BROKEN
from ppo_lab.course.watching import Watch, lights_card
from ppo_lab.rlhf.compare import before_after

SMALL = ("corpus.size=400", "corpus.held_out=16", "sampling.prompts=12", "reward.references=16", "steps=2",
         "evaluation.prompts=8", "evaluation.every=2")  # fmt: skip


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Watch, list[Any]]:
    run = rlhf.Run(load_config("rlhf/start", SMALL), folder=tmp_path_factory.mktemp("watched"))
    watch = course.watch(run)
    return watch, [*watch]


def errors(watched: tuple[Watch, list[Any]]) -> list[float]:
    watch, steps = watched
    return [light.error for light in lights(watch.run, steps[-1])]


def test_a_healthy_run_is_green(watched: tuple[Watch, list[Any]]) -> None:
    watch, steps = watched
    assert len(steps) == len(watch.lit) == 2
    assert all(light.green for lit in watch.lit for light in lit)
    assert max(errors(watched)) < CLOSE / 5
    assert not (watch.run.last_rollout.responses.mask.all())  # there is padding to spoil


@pytest.mark.parametrize("fault", ["ratio", "padding", "entropy", "NaN", "reward"])
def test_each_light_can_turn_red(watched: tuple[Watch, list[Any]], fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    watch, steps = watched
    run, step, rollout = watch.run, steps[-1], watch.run.last_rollout
    assert rollout is not None
    if fault == "ratio":
        step = replace(step, update=replace(step.update, first_ratio_error=0.03))
    elif fault == "padding":  # a model that attends to its padding
        real = module.opinions
        blind = lambda learner, answers, lens: real(  # noqa: E731
            learner, replace(answers, attention=torch.ones_like(answers.attention)), lens)  # fmt: skip
        monkeypatch.setattr(module, "opinions", blind)
    elif fault == "entropy":
        monkeypatch.setattr(run, "last_rollout", replace(rollout, entropy=rollout.entropy + 9))
    elif fault == "NaN":
        monkeypatch.setattr(run, "last_rollout", replace(rollout, entropy=rollout.entropy * math.nan))
    else:  # the score on every token
        real_rewards = module.rewards_of
        monkeypatch.setattr(module, "rewards_of",
                            lambda r, **k: real_rewards(r, **k) + 0.1 * r.responses.mask)  # fmt: skip
    place = {"ratio": 0, "padding": 1, "entropy": 2, "NaN": 2, "reward": 3}[fault]
    assert [light.green for light in lights(run, step)] == [i != place for i in range(4)]


def test_what_stays_on_the_page(watched: tuple[Watch, list[Any]], capsys: pytest.CaptureFixture[str]) -> None:
    watch, steps = watched
    assert "2 steps" in repr(watch)
    axes = watch.figure.axes
    drawn = {line.get_label(): line for line in axes[0].get_lines()}
    assert [*drawn["score"].get_ydata()] == [step.score_mean for step in steps]
    assert [*drawn["score − β·KL"].get_ydata()] == [step.reward_mean for step in steps]
    ceiling = next(line for line in axes[2].get_lines() if line.get_linestyle() == "--")
    assert ceiling.get_ydata()[0] == pytest.approx(math.log(len(watch.run.parts.tokenizer)))
    red = Light("padding is inert", 1.0, "the mask is wrong")
    assert "held in 2 of 2 steps" in lights_card(watch.lit).text
    assert "held in 0 of 1 steps: the mask is wrong" in lights_card([(red,)]).text


def test_samples_are_marked_as_this_machines(
    watched: tuple[Watch, list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of what the policy said survives the marking, in text or HTML; a bracket in an answer cannot end it."""
    shown: list[Any] = []
    monkeypatch.setattr("ppo_lab.course.looking.show", shown.append)
    pair = before_after(watched[0].run, 3)
    pair.after["response"][0] = "so [good] it"
    samples(pair, 3)
    for text in (shown[0].text, shown[0]._repr_html_()):
        assert "good" in text and str(pair.before["response"][1]).split()[0] in text
        rest = HERE.sub("", text)
        assert "good" not in rest and not re.search(r"\d\.\d\d", rest.split("</b>")[-1]) and "3 prompts" in rest


def test_source_and_stations(capsys: pytest.CaptureFixture[str]) -> None:
    course.source(rlhf.Run.__iter__)
    text = capsys.readouterr().out
    assert all(f"# {i} " in text for i in range(1, len(STATIONS) + 1))
    course.flow(3, reward=torch.zeros(2, 4), beta=0.25)
    assert capsys.readouterr().out == "Figure: token rewards, station 3 of 8: reward, beta\n"
    with pytest.raises(ValueError, match="station must be 0 to 8, got 9"):
        course.flow(9)


@pytest.mark.parametrize("station", range(len(STATIONS) + 1))
def test_the_flow_lights_up(station: int) -> None:
    from matplotlib.colors import same_color

    axes = flow_figure(station, ["reward (2, 4)"]).axes[0]
    lit = [not same_color(box.get_facecolor(), "#eeeeee") for box in axes.patches if box.get_label() == ""]
    assert sum(lit[: len(STATIONS)]) == station
    words = {text.get_text() for text in axes.texts}
    assert "reward (2, 4)" in words and {f"{name} (trained)" for name in ("policy", "critic")} <= words
    assert len(MODELS) == 4


def test_where_to_go_when_it_breaks(capsys: pytest.CaptureFixture[str]) -> None:
    numbers = {book.number: book for book in NOTEBOOKS.values()}
    assert all({*to} <= {*numbers} for _, _, to in BROKEN)
    course.broken()
    assert all(seen in capsys.readouterr().out for seen, *_ in BROKEN[:1])
