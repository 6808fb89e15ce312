"""What notebook 12 counts and draws, as data; and that its experiments could have come out otherwise."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from ppo_lab.core.kl import categorical_kl
from ppo_lab.course.claims import measure
from ppo_lab.course.experiments import overoptimisation as over
from ppo_lab.course.experiments import pressed
from ppo_lab.course.figures import hack_claims, hacks, pressure
from ppo_lab.course.figures import overoptimisation as drawn
from ppo_lab.exact.best_of_n import best_of_n_logp
from ppo_lab.exact.optimum import optimal_logp

SEEDS = range(5)


def made(arm: str, *, slope: float, accuracy: float = 0.7) -> list[dict[str, Any]]:
    """Runs in which gold is ``slope`` times √KL in deviations of 0.5, and the proxy √KL; seeds a little apart."""
    rows = []
    for seed in SEEDS:
        for step in (0, 1, 2, 4):
            root = step * (1 + 0.01 * seed)
            rows.append({"arm": arm, "seed": seed, "step": step, "kl": root**2, "proxy": 0.1 + root,
                         "gold": 0.2 + 0.5 * slope * root, "gold_std": 0.5, "grammatical": 1 - 0.1 * step,
                         "accuracy": accuracy})  # fmt: skip
    return rows


ROWS = [*made("good", slope=0.5, accuracy=0.8), *made("bad", slope=-0.25, accuracy=0.55)]


def test_gains_are_in_deviations_from_the_start() -> None:
    assert pressed.gained(pressed.runs(ROWS, "good")[0]) == pytest.approx([0, 0.5, 1.0, 2.0], abs=1e-12)
    assert pressed.unearned(ROWS, "good")[0] == pytest.approx(2.0) and pressed.unearned(ROWS, "bad")[0] == 5.0
    assert pressed.late(ROWS, "good")[0] == pytest.approx(0.5) and pressed.late(ROWS, "bad")[0] == pytest.approx(-0.25)


def test_the_bet_has_three_outcomes() -> None:
    rows = [*ROWS, *made("fair", slope=0.4)]
    assert [pressed.share_kept(rows, arm) for arm in ("good", "fair", "bad")] == [0, 1, 2]


@pytest.mark.parametrize(("arm", "verdict"), [("good", "did not hold here"), ("bad", "held here")])
def test_a_fall_of_gold_can_come_out_either_way(arm: str, verdict: str) -> None:
    assert measure(pressed.late(ROWS, arm), most=0.0).verdict == verdict


def test_gold_at_equal_kl_is_read_off_the_curve() -> None:
    run = pressed.runs(ROWS, "good")[0]
    for kl in (0.25, 1.0, 2.25, 16.0):
        assert pressed.at_kl(run, kl) == pytest.approx(0.2 + 0.25 * math.sqrt(kl), abs=1e-12)
    assert pressed.common_kl(ROWS, "good", "bad") == pytest.approx(16.0)
    with pytest.raises(ValueError, match="never went 17 nats"):
        pressed.at_kl(run, 17.0)
    with pytest.raises(ValueError, match="no arm 'ugly'"):
        pressed.runs(ROWS, "ugly")


def test_the_first_crossing_counts() -> None:
    """The KL of a run goes up and down; what counts is how it first came there."""
    run = [{"kl": 0.0, "gold": 0.0}, {"kl": 4.0, "gold": 1.0}, {"kl": 1.0, "gold": 9.0}, {"kl": 9.0, "gold": 2.0}]
    assert pressed.at_kl(run, 1.0) == 0.5


def test_a_better_judge_and_more_gold() -> None:
    assert pressed.agreement(ROWS, ("good", "bad")) == pytest.approx([1.0] * 5)
    turned = [{**row, "accuracy": 1 - row["accuracy"]} for row in ROWS]
    assert pressed.agreement(turned, ("good", "bad")) == pytest.approx([-1.0] * 5)
    assert pressed.spearman([1, 1, 1], [1, 2, 3]) == 0.0


def test_the_form_is_fitted_to_each_seed() -> None:
    found = pressed.fits(ROWS, "good", "rl")
    assert len(found) == 5 and all(f.alpha == pytest.approx(0.5) and abs(f.beta) < 1e-9 for f in found)


def rows_of_diversity() -> list[dict[str, Any]]:
    made = []
    for seed in SEEDS:
        for arm, temperature, distinct, repeated in (
            ("untouched", 1.0, 0.2, 0.05), ("untouched", 0.5, 0.1, 0.06), ("middle", 1.0, 0.1, 0.1),
            ("middle", 0.5, 0.06, 0.15), ("beta 0.2", 1.0, 0.18, 0.05),
        ):  # fmt: skip
            made.append({"arm": arm, "seed": seed, "temperature": temperature, "distinct_2": distinct,
                         "repeated": repeated})  # fmt: skip
    return made


def test_diversity_is_compared_at_one_temperature() -> None:
    rows = rows_of_diversity()
    assert pressed.share_lost(rows, "middle") == pytest.approx([0.5] * 5)
    assert pressed.share_lost(rows, "beta 0.2") == pytest.approx([0.1] * 5)
    assert pressed.cooled(rows, "middle", 0.5, "repeated") == pytest.approx([0.05] * 5)


def test_the_ugliest_are_chosen_by_the_rule() -> None:
    given = ("x", "all", 1.0), ("x", "all", 5.0), ("y", "all", 3.0), ("z", "all", 9.0), ("x", "grammatical", 7.0)
    rows = [{"arm": arm, "among": among, "gap": gap} for arm, among, gap in given]
    assert [row["gap"] for row in pressed.worst(rows, ("x", "y"), among="all", count=2)] == [5.0, 3.0]


def test_the_widest_gap_is_in_one_unit() -> None:
    gap = over.widest(torch.tensor([2.0, 3.0]), torch.tensor([-0.5, 0.5]), gold_mean=0.1, gold_std=0.2)
    assert gap.tolist() == pytest.approx([5.0, 1.0], abs=1e-6)


def test_curves_carry_means_and_intervals() -> None:
    got = drawn.curve(pressed.runs(ROWS, "bad"), "gained")
    roots = [[step * (1 + 0.01 * seed) for seed in SEEDS] for step in (0, 1, 2, 4)]
    assert got["x"] == pytest.approx([sum(r) / 5 for r in roots])
    assert got["y"] == pytest.approx([-0.25 * sum(r) / 5 for r in roots])
    assert got["half"] == pytest.approx([drawn.half_width([-0.25 * x for x in r]) for r in roots], abs=1e-9)
    assert drawn.curve(pressed.runs(ROWS, "bad"), "proxy")["y"][0] == 0


def test_the_figures_draw_every_arm() -> None:
    best_of = [{**row, "n": row["step"] + 1} for row in ROWS]
    axes = drawn.pairs_figure(ROWS, best_of, {"good": "good judge", "bad": "bad judge"}).axes
    assert len(axes) == 2 and all(len(ax.containers) == 4 for ax in axes)
    names = {"good": "a", "bad": "b"}
    axes = drawn.arms_figure(ROWS, names, names).axes
    assert [len(ax.containers) for ax in axes] == [2, 2, 2]
    axes = drawn.switches_figure(ROWS, "good", {"bad": "bad"}).axes
    before, after = axes[0].get_lines()[-2:]
    assert [*before.get_ydata()] == pressed.ends(ROWS, "good") and [*after.get_ydata()] == pressed.ends(ROWS, "bad")
    arms = {"untouched": "u", "middle": "β 0", "beta 0.2": "β 0.2"}
    left, middle, right = drawn.diversity_figure(rows_of_diversity(), arms, "middle").axes
    assert len(left.containers) == 3 and len(middle.containers) == len(right.containers) == 2


def test_the_signals_are_those_of_the_log() -> None:
    rows = [{"step": i, **{key: i * 0.5 for key in drawn.SIGNALS}} for i in (1, 2, 3)]
    axes = drawn.signals_figure(rows).axes
    assert [[*ax.get_lines()[0].get_ydata()] for ax in axes] == [[0.5, 1.0, 1.5]] * 4


def test_every_claim_is_entered(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [row for arm in hack_claims.CURES for row in made(arm, slope=0.4)]
    hack_claims.claim_switches([*rows, *made("middle", slope=0.2)], hack_claims.CURES)
    said = capsys.readouterr().out
    assert said.count("Held here.") == len(hack_claims.CURES) and "Claim B11.mean-minus-std" in said
    hack_claims.claim_diversity(rows_of_diversity())
    assert "Claim B11.cold" in capsys.readouterr().out


def test_the_table_of_fits_says_where_there_is_no_peak() -> None:
    lines = hacks.gao_lines({"good": (ROWS, "good", "rl"), "bad": (ROWS, "bad", "best-of-n")})
    assert lines[0][0] == "good" and lines[0][1] == "0.50" and lines[0][3] == "1.00"
    assert hacks.counts(ROWS, "bad") == {"seeds": 5, "poor": 5} and hacks.counts(ROWS, "good")["poor"] == 0


# --- the panel -------------------------------------------------------------------------------------------------------


def test_the_panel_is_exact() -> None:
    ref_logp, gold, error = pressure.world()
    p = ref_logp.exp()
    assert float(p @ gold) == pytest.approx(0, abs=1e-9) and float(p @ gold.square()) == pytest.approx(1, abs=1e-9)
    proxy = gold + error["heavy"]
    found = pressure.facts(error=1.0, tail="heavy", n=16, beta=0.5)
    for logp, kl, value in ((best_of_n_logp(ref_logp, proxy, n=16), "n_kl", "n_gold"),
                            (optimal_logp(ref_logp, proxy, beta=0.5), "b_kl", "b_gold")):  # fmt: skip
        assert found[kl] == pytest.approx(float(categorical_kl(logp, ref_logp)), abs=1e-9)
        assert found[value] == pytest.approx(float(logp.exp() @ gold), abs=1e-9)


def test_tails_differ_and_middles_do_not() -> None:
    error = pressure.world().error
    quarter = len(error["light"]) // 4
    light, heavy = (error[tail].sort().values for tail in pressure.TAILS)
    assert float(heavy[quarter]) == pytest.approx(float(light[quarter]), abs=0.01)
    assert float(heavy[-1]) > 5 * float(light[-1])
    assert error["light"].argsort().tolist() == error["heavy"].argsort().tolist()


def test_without_an_error_gold_is_the_proxy_and_never_falls() -> None:
    for way in pressure.curves(0.0, "heavy").values():
        assert all(row["gold"] == pytest.approx(row["proxy"], abs=1e-12) for row in way)
        golds = [row["gold"] for row in way]
        assert golds == sorted(golds)


def test_a_heavy_tail_turns_gold_down_and_a_light_one_less() -> None:
    lost = {tail: pressure.facts(error=0.5, tail=tail, n=1024, beta=0.05) for tail in pressure.TAILS}
    assert lost["heavy"]["lost_n"] > 0.5 and lost["light"]["lost_n"] < 0.1
    assert lost["heavy"]["lost_b"] > 1.5


# --- the real runs, made small ---------------------------------------------------------------------------------------


def test_a_run_gives_a_curve_texts_and_diversity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = ("steps=2", "corpus.size=600", "corpus.held_out=16", "evaluation.prompts=8", "sampling.prompts=8",
             "reward.references=16", "reward_model.held_out_pairs=40", "reward_model.epochs=1", "policy.ema=0.5")
    monkeypatch.setattr(over, "AT", (1, 2))
    monkeypatch.setattr(over, "SAMPLES", 12)
    arm = over.Arm("tiny", pairs=60, settings=small)
    run = over.started(arm, 3, tmp_path)
    rows = [*over.curve(run, arm, 3)]
    assert [(row["arm"], row["step"]) for row in rows] == [
        ("tiny", 0), ("tiny", 1), (over.AVERAGE, 1), ("tiny", 2), (over.AVERAGE, 2)]  # fmt: skip
    assert rows[0]["kl"] == 0 and {*rows[0]} == {*rows[1]}
    answers, seen = over.sampled(run)
    texts = [*over.ugliest(seen, arm, 3, gold_mean=0.0, gold_std=0.5)]
    assert texts[0]["among"] == "all"
    assert texts[0]["gap"] == pytest.approx(texts[0]["proxy"] - texts[0]["gold"] / 0.5, abs=1e-3)
    assert over.diversity_row(answers, seen, "tiny", 3)["arm"] == "tiny"
    row = over.diversity_row(*over.sampled(run, 0.5, untouched=True), "untouched", 3, 0.5)
    assert 0 < row["distinct_2"] <= 1 and row["temperature"] == 0.5
    again = over.started(over.Arm("again", pairs=60, settings=small), 3, tmp_path)  # the judge is taken over
    assert over.judge_accuracy(again) == over.judge_accuracy(run)
    first, second = (r.learner.frozen["reward_0"].state_dict() for r in (run, again))
    assert all(torch.equal(first[name], second[name]) for name in first)
    run.close(), again.close()
