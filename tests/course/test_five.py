"""Five algorithms: one budget, the same draws for all, a choice that fresh seeds have no part in; what is drawn."""

from __future__ import annotations

import random
from typing import Any

import pytest

from ppo_lab.course.experiments.five import (
    ALGORITHMS,
    DRAWS,
    FRESH,
    SEARCH_SEED,
    best_draw,
    config,
    draw,
    settings,
)
from ppo_lab.course.experiments.trained import TASKS, Trained, signal, summary
from ppo_lab.course.figures import five

ENV = "CartPole-v1"


def made(seed: int = 0) -> list[dict[str, Any]]:
    """Made up: PPO is good, REINFORCE crashes."""
    level = {"REINFORCE": 100, "A2C": 150, "TRPO": 300, "PPO-clip": 400, "PPO-KL": 380}
    noise, rows = random.Random(seed), []
    for name, height in level.items():
        for part, seeds in (("search", range(SEARCH_SEED, SEARCH_SEED + DRAWS)), ("fresh", FRESH)):
            for i, s in enumerate(seeds):
                final = height + noise.gauss(0, 10)
                rows.append({"part": part, "env": ENV, "algorithm": name, "draw": i if part == "search" else 7,
                             "seed": s, "final": final + 50 * (part == "search" and i == 7), "area": final / 2,
                             "best": final + 20, "spread": 40.0 if name == "A2C" else 20.0, "cpu": 1.0 + i / 10,
                             "crash": name == "REINFORCE", "reach": 9000, "settings": "rollout=8",
                             "curve": " ".join(f"{final * (k + 1) / 20:.0f}" for k in range(20))})  # fmt: skip
    return rows


def test_all_draw_from_one_list_and_share_what_they_share() -> None:
    assert [draw(i) for i in range(3)] == [draw(i) for i in range(3)] and draw(0) != draw(1)
    shared = ("optimizer.actor_rate", "optimizer.critic_rate", "ppo.gamma", "ppo.lam", "ppo.entropy_coef")
    for i in range(DRAWS):
        given = {name: dict(part.split("=") for part in settings(name, draw(i))) for name in ALGORITHMS}
        for knob in shared:
            assert len({g[knob] for g in given.values()}) == 1
        assert len({g["rollout"] for name, g in given.items() if name != "REINFORCE"}) == 1
        assert (
            int(given["REINFORCE"]["rollout"]) >= 32
            and given["PPO-clip"]["ppo.epochs"] == given["PPO-KL"]["ppo.epochs"]
        )
    spans = {name: {draw(i)[name] for i in range(DRAWS)} for name in ("lam", "rollout", "epochs", "clip")}
    assert all(len(seen) >= 3 for seen in spans.values())


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_draw_is_a_config(algorithm: str) -> None:
    for i in range(DRAWS):
        cfg = config(ENV, algorithm, settings(algorithm, draw(i)), seed=i, total=20480)
        assert cfg.steps * cfg.rows == 20480 and cfg.seed == i
        once = algorithm in ("REINFORCE", "A2C")
        assert (cfg.ppo.epochs == cfg.ppo.minibatches == 1) is once
        assert cfg.algorithm == ("trpo" if algorithm == "TRPO" else "ppo")
        assert cfg.advantage == ("return" if algorithm == "REINFORCE" else "gae")
        assert cfg.penalized is (algorithm == "PPO-KL")


def test_the_choice_is_made_by_the_search_alone() -> None:
    rows = made()
    assert {best_draw(rows, name) for name in ALGORITHMS} == {7}
    for row in rows:
        if row["part"] == "fresh":
            row["final"] = -1e9
    assert {best_draw(rows, name) for name in ALGORITHMS} == {7}
    assert not {*FRESH} & {*range(SEARCH_SEED, SEARCH_SEED + DRAWS)}


def test_what_is_drawn_and_said(capsys: pytest.CaptureFixture[str]) -> None:
    rows = made()
    left, right = five.five_figure(rows).axes
    marks = [line for line in left.get_lines() if len(line.get_xdata()) == 1]
    assert len(marks) == 5 * DRAWS + 5 and sum(line.get_marker() == "X" for line in marks) == DRAWS
    assert [text.get_text() for text in right.get_legend().get_texts()] == [*ALGORITHMS]
    line = {line.get_label(): line for line in right.get_lines()}["A2C"]
    finals = five.fresh(rows, "curve", "A2C")
    assert line.get_ydata()[-1] == pytest.approx(sum(float(c.split()[-1]) for c in finals) / 5, abs=1e-9)
    five.five_table(rows)
    said = capsys.readouterr().out
    assert "REINFORCE | " in said and f"{DRAWS} of {DRAWS} | 5 of 5" in said and f"0 of {DRAWS} | 0 of 5" in said
    five.searched(rows)
    assert f"All {5 * DRAWS} settings" in capsys.readouterr().out


def test_ratios_are_paired() -> None:
    rows = made()
    assert five.variance_cut(rows, "A2C", "PPO-clip") == [0.75] * 5
    assert five.ratio(rows, "cpu", "PPO-clip", "PPO-KL") == [1.0] * 5 and five.time_saved(rows) == [0.0] * DRAWS
    assert five.crashes(rows, "REINFORCE") == [1.0] * (DRAWS + 5) and five.uses(rows, "A2C") == 1
    assert five.uses(rows, "PPO-clip") == draw(7)["epochs"]


def test_a_run_in_numbers() -> None:
    returns = [20.0] * 10 + [400.0] * 10
    run = Trained([{"kl": 0.1}, {"kl": float("nan")}, {"kl": 0.3}], [1000 * (i + 1) for i in range(20)], returns, 20000,
                  1.5, 3.0)  # fmt: skip
    found = summary(run, TASKS[ENV])
    assert found["final"] == 400 and found["spread"] == 0 and found["area"] == 210 and found["crash"] is False
    assert found["reach"] == 11000 and found["curve"].split()[9:11] == ["20", "400"]
    assert signal(run.rows, "kl") == 0.2 and signal(run.rows, "kl", "max") == signal(run.rows, "kl", "last") == 0.3
    assert signal(run.rows, "none") is None
