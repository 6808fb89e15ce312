"""What notebook 08 draws, measures and breaks, as data."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from ppo_lab import faults, rlhf
from ppo_lab.config import load_config
from ppo_lab.core.kl import categorical_kl
from ppo_lab.course.experiments.estimators import against, in_loss, judged, mean_value, tokens_of, true_kl
from ppo_lab.course.experiments.heads import POOLS, forgotten_by_a_new_head, gap_to_the_sampler, moved_by_the_future
from ppo_lab.course.figures.estimators import estimators_figure
from ppo_lab.course.figures.ribbon import (
    GATHER,
    HIDDEN,
    MODELS,
    POSITIONS,
    PROMPT,
    facts,
    review,
    ribbon_panel,
    unmoved,
)

SMALL = ("steps=1", "sampling.prompts=8", "corpus.size=400", "corpus.held_out=16", "evaluation.prompts=8",
         "reward.references=16")  # fmt: skip


# --- estimators ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stop", [False, True])
def test_the_true_gradient_is_that_of_finite_differences(stop: bool) -> None:
    at = tokens_of(3, length=3, stop=stop)
    (gradient,) = torch.autograd.grad(true_kl(at), at.logits)
    language, step = at.language, 1e-6

    def kl(logits: torch.Tensor) -> float:
        return float(categorical_kl(language.logp_of(logits), language.ref_logp))

    for place in ((0, 0), (1, 2), (len(language.child) - 1, 1)):
        shift = torch.zeros_like(at.logits)
        shift[place] = step
        plain = at.logits.detach()
        assert float(gradient[place]) == pytest.approx((kl(plain + shift) - kl(plain - shift)) / (2 * step), abs=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_values_and_pushes(seed: int) -> None:
    """k1 and k3 have the KL as their mean, k2 not; k1 in the reward is right, in the loss nothing; k2 = exact there."""
    at = tokens_of(seed)
    kl = true_kl(at).item()
    assert mean_value(at, "k1") == pytest.approx(kl, abs=1e-9) == mean_value(at, "k3")
    assert abs(mean_value(at, "k2") - kl) > 1e-3
    found = judged(seed)
    assert found["k1 reward"].cosine == pytest.approx(1, abs=1e-9) == found["k1 reward"].length
    assert found["k1 loss"].cosine is None and found["k1 loss"].length < 1e-12
    assert torch.allclose(in_loss(at, "k2"), in_loss(at, "exact"), atol=1e-9)
    assert found["k2 loss"].cosine is not None and found["k2 loss"].cosine < 0.999


def test_one_token_is_special() -> None:
    assert judged(0, length=1)["k2 loss"].cosine == pytest.approx(1, abs=1e-9)


def test_pushes_are_measured_by_angle_and_length() -> None:
    push = against(torch.tensor([0.0, 3.0]), torch.tensor([4.0, 4.0]))
    assert push.cosine == pytest.approx(0.5**0.5, abs=1e-6) and push.length == pytest.approx(3 / 32**0.5, abs=1e-6)
    assert against(-push_of(), push_of()).cosine == pytest.approx(-1, abs=1e-6)


def push_of() -> torch.Tensor:
    return torch.tensor([1.0, 2.0, -1.0])


def test_a_dot_a_language() -> None:
    found = [judged(seed) for seed in range(4)]
    axes = estimators_figure(found).axes[0]
    drawn = [line for line in axes.get_lines() if line.get_marker() == "o"]
    assert [len(line.get_ydata()) for line in drawn] == [4, 4, 4, 0, 4, 4, 4]
    assert [*drawn[2].get_ydata()] == [one["k3 reward"].cosine for one in found]
    assert [text.get_text() for text in axes.texts] == ["no push\nat all"]


# --- heads -----------------------------------------------------------------------------------------------------------


def test_only_a_pooled_head_sees_the_future() -> None:
    moved = [moved_by_the_future(pool) for pool in POOLS]
    assert moved[0] == 0 and min(moved[1:]) > 0.01 and len(moved) == 3


def test_a_learned_temperature_leaves_the_sampler_behind(tmp_path: Path) -> None:
    right, wrong = (gap_to_the_sampler(fault, tmp_path / str(fault)) for fault in (None, "temperature_learned"))
    assert max(right) < 1e-4 and wrong[0] < 1e-4 < 1e-3 < wrong[1]


def test_a_new_head_is_nearly_uniform() -> None:
    new = forgotten_by_a_new_head()
    assert 0.98 * new["most"] < new["entropy"] < new["most"] and new["kl"] > 2


# --- the ribbon ------------------------------------------------------------------------------------------------------

RIGHT = {"side": "left", "pads": 4, "positions": POSITIONS[0], "padding": HIDDEN[0], "gather": GATHER[0],
         "kind": MODELS[1], "token": 1}  # fmt: skip


@pytest.mark.parametrize(("change", "right"), [
    ({}, True), ({"positions": POSITIONS[1]}, False), ({"padding": HIDDEN[1]}, False), ({"gather": GATHER[1]}, False),
    ({"side": "right", "padding": HIDDEN[1], "positions": POSITIONS[1]}, True),
    ({"kind": MODELS[0], "positions": POSITIONS[1]}, True), ({"kind": MODELS[0], "padding": HIDDEN[1]}, False),
])  # fmt: skip
def test_what_moves_a_log_prob(change: dict[str, object], right: bool) -> None:
    assert unmoved(facts(**{**RIGHT, **change})) == right  # type: ignore[arg-type]


def test_the_ribbon_shows_the_row_and_what_it_predicts() -> None:
    panel = ribbon_panel().set(pads=2, token=3, positions=POSITIONS[0])
    words = [word for _, word, _ in panel._artists["boxes"] if word.get_visible()]
    places = [place.get_text() for _, _, place in panel._artists["boxes"] if place.get_visible()]
    assert [w.get_text() for w in words] == ["pad", "pad", *review().words]
    assert places == ["0", "0", *map(str, range(len(review().ids)))]
    assert panel.facts["place"] == 2 + PROMPT + 2 and panel.facts["row"] == panel.facts["place"] - 1
    heights = [bar.get_height() for bar in panel._artists["bars"]]
    assert heights == pytest.approx(panel.facts["logp"].tolist(), abs=1e-12)
    assert panel.facts["here"] == heights[2] and panel._artists["arrow"].get_visible()
    assert not panel.set(gather=GATHER[1])._artists["arrow"].get_visible()


# --- the fault -------------------------------------------------------------------------------------------------------


def test_only_the_sampler_knows_that_the_shift_is_missing(tmp_path: Path) -> None:
    config = load_config("rlhf/start", SMALL)
    (healthy,) = rlhf.Run(config, folder=tmp_path / "healthy")
    with faults.planted("shift_left_out"):
        (sick,) = rlhf.Run(config, folder=tmp_path / "sick")
    assert healthy.update.first_ratio_error == sick.update.first_ratio_error == 0
    assert healthy.sampler_mismatch < 1e-4 and sick.sampler_mismatch > 1
