"""What notebook 11 counts, claims and draws, as data."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from ppo_lab.course.claims import VERDICTS, measure
from ppo_lab.course.experiments import length, length_language
from ppo_lab.course.experiments.length import LAST, LONG, REMEDIES, REWARDS, STORY, T
from ppo_lab.course.figures import length_study
from ppo_lab.course.figures.lengths import BETAS, lengths_panel
from ppo_lab.course.recordings import load
from ppo_lab.exact.lengths import mood_language

ROOT = Path(__file__).resolve().parents[2]


def row(reward: str, cap: int, remedy: str, seed: int, *, tells: bool) -> dict[str, Any]:
    """A run in which the story happens, or its opposite; a little noise by seed."""
    sign, noise, far = (1 if tells else -1), 0.01 * (seed % 3), float(cap == LONG)
    log = []
    for step in range(8):
        done = step / 7
        log.append({
            "response_length": cap * (1 - sign * 0.4 * done * far) + noise, "beta": 0.05,
            "ref_kl_sum": (2 + sign * far) * done + noise, "ref_kl_token": (0.2 - sign * 0.1 * far) * done + noise,
            "raw_score_mean": (0.5 - sign * 0.2 * far) * done + noise * done,
            "reward_mean": 0.5 * min(done, 0.4) + noise * done / 9 - 0.01 * done if tells else done + noise,
            "pushed_down_long": 0.5 + sign * 0.1 + noise, "pushed_down_middle": 0.5,
        })  # fmt: skip
    return {"reward": reward, "cap": cap, "remedy": remedy, "seed": seed, **length.summary(log)}


def rows(*, tells: bool, seeds: int = 6) -> list[dict[str, Any]]:
    kinds = [(r, cap, "none") for r in REWARDS for cap in (T, LONG)]
    kinds += [("mean_mood", LONG, remedy) for remedy in REMEDIES if remedy != "none"]
    return [row(*kind, seed, tells=tells) for seed in range(seeds) for kind in kinds]


@pytest.mark.parametrize(("tells", "verdict"), [(True, VERDICTS[0]), (False, VERDICTS[1])])
def test_the_story_can_come_out_either_way(tells: bool, verdict: str) -> None:
    made = rows(tells=tells)
    for reward in REWARDS:
        numbers = length.story(made, reward)
        assert {key: measure(numbers[key], **{side: 0.0}).verdict for key, (_, side) in STORY.items()} == dict.fromkeys(
            STORY, verdict
        )
    found = length_study.verdicts(made)
    assert {length.whole_story([*of.values()]) for of in found.values()} == {verdict}
    assert length.whole_story([VERDICTS[0], VERDICTS[2]]) == VERDICTS[2]


def test_rows_are_paired_by_seed_whatever_their_order() -> None:
    made = rows(tells=True)
    assert length.story(made[::-1], "praise") == length.story(made, "praise")
    assert length.column(made[::-1], "seed", reward="blame", cap=T, remedy="none") == [0, 1, 2, 3, 4, 5]


def test_a_row_says_how_a_log_began_and_ended() -> None:
    log = [{"response_length": float(i), "ref_kl_sum": 0.1, "ref_kl_token": 0.0, "raw_score_mean": 10.0 * i,
            "reward_mean": 0.0, "beta": 0.05} for i in range(6)]  # fmt: skip
    log[-1]["pushed_down_long"] = 0.75
    found = length.summary(log, scale=10.0)
    assert (found["length_start"], found["length_end"]) == (0.0, 4.0) and LAST == 3
    assert found["score_curve"] == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0] and found["score_end"] == 4.0
    assert found["pushed_long_start"] is found["pushed_middle_end"] is None and found["pushed_long_end"] == 0.75


def test_effects_are_with_the_remedy_minus_without() -> None:
    made = rows(tells=True)
    for one in made:
        one["kl_end"] += 3.0 * (one["remedy"] == "controller")
        one["length_end"] += 5.0 * (one["remedy"] == "spread")
        one["score_end"] += 0.25 * (one["remedy"] == "sentences")
    kl = length.column(made, "kl_end", reward="mean_mood", cap=LONG, remedy="none")
    assert length.effect(made, "controller") == pytest.approx([abs(x + 1.0) - abs(x - 2.0) for x in kl], abs=1e-12)
    assert length.effect(made, "spread") == pytest.approx([5.0] * 6, abs=1e-9)
    assert length.effect(made, "sentences") == pytest.approx([0.25] * 6, abs=1e-9)
    assert length.effect(made, "score/L") == [0.0] * 6 and {*length.EXPECTED} == {*REMEDIES} - {"none"}


def test_every_remedy_is_a_switch() -> None:
    plain = length.config("mean_mood", LONG).model_dump()
    for remedy in REMEDIES:
        changed = length.config("mean_mood", LONG, remedy).model_dump()
        assert (changed == plain) == (remedy == "none"), remedy
    weights = [length.config("praise", LONG, remedy).reward.sources[0].weight for remedy in ("none", "score/L")]
    assert weights == [1.0, length.USUAL]


def test_a_run_becomes_a_row(tmp_path: Path) -> None:
    found = length.run_row("blame", T, "sentences", 3, tmp_path / "run", steps=2)
    assert found["length_start"] == pytest.approx(T, abs=1.0) and found["kl_start"] == 0.0
    assert len(found["score_curve"]) == 2 and max(found["score_curve"]) < 0


def test_ppo_on_listed_texts_starts_at_the_reference_and_moves_towards_the_best() -> None:
    curve = length_language.lengths("praise", length_language.T, "λ 1", 0, iterations=8)
    best, start = length_language.best("praise", length_language.T), curve[0]
    assert len(curve) == 9 and start < curve[-1] <= best + 0.05
    kinds = [*length_language.plan()]
    assert len(kinds) == len({*kinds}) == 4 * 2 + 2 * 5 and {v for *_, v in kinds} == {*length_language.VARIANTS}
    assert length_language.prediction("mean", "L_ref/L") == "longer than without"
    assert length_language.prediction("mean", "score/L") == "shorter than without"


def test_the_panel_draws_exact_lengths() -> None:
    panel = lengths_panel().set(beta=0.5, cap=6, worth="mean of words")
    world = mood_language(6, "mean")
    weight = [math.exp(q + r / 0.5) for q, r in zip(world.ref_logp.tolist(), world.reward.tolist(), strict=True)]
    sizes = world.mask.sum(-1).tolist()
    shares = [sum(w for w, n in zip(weight, sizes, strict=True) if n == size) / sum(weight) for size in range(1, 7)]
    left, right = panel.figure.axes
    heights = [bar.get_height() for bar in left.patches]
    assert heights[12:18] == pytest.approx(shares, abs=1e-12) and heights[18:] == [0.0] * 6
    assert heights[0] == pytest.approx(0.05, abs=1e-12), "the reference stops at once in one text of twenty"
    (dot,) = [line for line in right.get_lines() if line.get_marker() == "o"]
    mean = sum(n * s for n, s in enumerate(shares, start=1))
    assert (dot.get_xdata()[0], dot.get_ydata()[0]) == (0.5, pytest.approx(mean, abs=1e-12))
    assert [*right.get_lines()[0].get_xdata()] == [*BETAS]


def test_pictures_are_drawn_from_the_rows() -> None:
    made = rows(tells=True)
    axes = length_study.curves_figure(made).axes
    thick = [line for line in axes[0].get_lines() if line.get_linewidth() > 2]
    assert [line.get_ydata()[0] for line in thick] == pytest.approx([1 + 0.01 / T, 1 + 0.01 / LONG], abs=1e-4)
    assert all(len(ax.get_lines()) == 2 * 7 for ax in axes)
    remedies = length_study.remedies_figure(made).axes
    dots = remedies[0].get_lines()[0].get_xdata()
    none = length.column(made, "length_end", reward="mean_mood", cap=LONG, remedy="none")
    assert len(dots) == len(REMEDIES) and dots[0] == pytest.approx(sum(none) / 6, abs=1e-9)


def test_tables_have_a_line_a_kind(capsys: pytest.CaptureFixture[str]) -> None:
    made = rows(tells=True)
    length_study.length_table(made)
    length_study.story_table(made)
    out = capsys.readouterr().out
    assert out.count("mean_mood, cap") == 2 + len(REMEDIES) - 1 and out.count("held here") == 3 * len(STORY)
    first = {f"{key}_{b}": 0.25 for key in ("answers", "reward_token", "ref_kl_token", "pushed_down")
             for b in ("short", "long")}  # fmt: skip
    length_study.thirds_table(first, first)
    assert "0.25" not in capsys.readouterr().out, "numbers of a live run are no compared text"


@pytest.mark.parametrize("name", ["length", "length_language"])
def test_recordings_name_a_script_that_exists(name: str) -> None:
    recording = load(name)
    assert (ROOT / recording.command.split()[1]).is_file()
    assert len({*recording.column("seed")}) >= (10 if name == "length_language" else 5)


def test_the_language_picture_shows_both_ends_of_a_run() -> None:
    found = load("length_language").rows
    left, right = length_study.language_figure(found).axes
    best = [row["best"] for row in found if (row["worth"], row["cap"], row["variant"]) == ("mean", 12, "λ 1")]
    flat = [line.get_ydata()[0] for line in left.get_lines() if len({*line.get_ydata()}) == 1]
    assert best[0] in flat and len(right.get_yticklabels()) == len(length_language.VARIANTS)
