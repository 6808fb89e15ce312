"""What a notebook shows besides panels and exercises: bets, quiz, captions, symbols, metric names, claims, progress."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from ppo_lab import course
from ppo_lab.course.captions import Drawn, caption
from ppo_lab.course.catalogue import KINDS, NOTEBOOKS, PATHS, neighbours, notebook, rows_of
from ppo_lab.course.claims import MIME, VERDICTS, _Entry, claims_in
from ppo_lab.course.session import MARKER, SESSION
from ppo_lab.course.terms import SYMBOLS, symbol
from ppo_lab.metrics import REGISTRY

# --- bets ------------------------------------------------------------------------------------------------------------


def test_a_bet_is_placed_and_revealed(capsys: pytest.CaptureFixture[str]) -> None:
    bet = course.bet("Does it push?", "yes", "no")
    assert capsys.readouterr().out == "Bet: Does it push? yes / no\n" and bet.choice is None
    bet.reveal("no", "It is clipped.")
    assert capsys.readouterr().out == "You placed no bet. Measured: no. It is clipped.\n"
    bet.place("yes").reveal("no", "It is clipped.")
    assert capsys.readouterr().out.startswith("You bet on “yes”: not this time. Measured: no.")
    bet.place("no").reveal("no", "It is clipped.")
    assert capsys.readouterr().out.startswith("You bet on “no”: right.")
    assert SESSION.done["bet"] == {"Does it push?": "no"}


def test_clicking_a_bet_leaves_its_stored_text_alone() -> None:
    bet = course.bet("Which?", "a", "b")
    before = {k: v for k, v in bet._repr_mimebundle_().items() if k.startswith("text/")}
    bet.place("b")
    assert {k: v for k, v in bet._repr_mimebundle_().items() if k.startswith("text/")} == before
    assert "application/vnd.jupyter.widget-view+json" in bet._repr_mimebundle_()
    assert "<li>a</li>" in before["text/html"]


@pytest.mark.parametrize("options", [(), ("a",), ("a", "a")])
def test_bad_bets(options: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="two different options"):
        course.bet("Which?", *options)


def test_bets_are_on_the_options() -> None:
    bet = course.bet("Which?", "a", "b")
    for call in (lambda: bet.place("c"), lambda: bet.reveal("c", "")):
        with pytest.raises(ValueError, match="one of a, b"):
            call()


# --- quiz ------------------------------------------------------------------------------------------------------------


def test_quiz_hides_its_answers(capsys: pytest.CaptureFixture[str]) -> None:
    course.quiz(("One?", "first answer"), ("Two?", "second"), ("Three?", "third"))
    assert capsys.readouterr().out == "Quiz\n1. One?\n2. Two?\n3. Three?\n"
    with pytest.raises(ValueError, match="3 questions, got 1"):
        course.quiz(("One?", "first"))


# --- captions --------------------------------------------------------------------------------------------------------


def test_caption_is_made_of_facts(capsys: pytest.CaptureFixture[str]) -> None:
    course.see(None, "{off:.0%} of {n} steps at λ = 1", {"off": 0.345, "n": 40})
    assert capsys.readouterr().out == "What to see: 34% of 40 steps at λ = 1\n"


def test_figure_and_caption_are_two_outputs(capsys: pytest.CaptureFixture[str]) -> None:
    figure = Figure(figsize=(2, 1))
    course.see(figure, "{n} bars", {"n": 3})
    assert capsys.readouterr().out == "Figure: 3 bars\nWhat to see: 3 bars\n"
    assert {*Drawn(figure, "x")._repr_mimebundle_()} == {"text/plain", "image/png"}


def test_a_panel_brings_its_own_facts(capsys: pytest.CaptureFixture[str]) -> None:
    from course.probe_panel import panel

    course.see(panel(), "The end is at {end:.2f}, {word}.", {"word": "still"})
    assert capsys.readouterr().out == "What to see: The end is at 0.50, still.\n"


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("A third is silent", "must contain a measured fact"),
        ("35 % of {n}", "'5 %' typed"),
        ("35% of {n}", "typed into it"),
        ("0.35 of {n}", "'0.35' typed"),
        ("{m} of them", "names 'm', which is not among the facts (n)"),
        ("{n:.2q}", "cannot be filled in"),
        ("{n.x.y}", "cannot be filled in"),
    ],
)
def test_captions_cannot_lie(template: str, words: str) -> None:
    with pytest.raises(ValueError) as error:
        caption(template, {"n": 3})
    assert words in str(error.value)


# --- symbols ---------------------------------------------------------------------------------------------------------


def test_symbols_are_shown_closed(capsys: pytest.CaptureFixture[str]) -> None:
    course.symbols("r", "A", "ε")
    assert capsys.readouterr().out == "r probability ratio; A advantage; ε clip range\n"


def test_unknown_symbols_are_explained() -> None:
    with pytest.raises(ValueError, match="did you mean 'A'"):
        symbol("advantag")
    with pytest.raises(ValueError, match="at least one"):
        course.symbols()


def resolve(path: str) -> Any:
    """The object below ppo_lab that a dotted path names; a field of a record or config is named by its class."""
    parts = path.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(["ppo_lab", *parts[:cut]]))
        except ModuleNotFoundError:
            continue
        for name in parts[cut:]:
            fields = {**getattr(found, "__dataclass_fields__", {}), **getattr(found, "model_fields", {})}
            found = fields[name] if name in fields else getattr(found, name)
        return found
    raise AssertionError(path)


def test_every_symbol_leads_to_the_package() -> None:
    for entry in SYMBOLS.values():
        assert entry.name and entry.chinese and entry.meaning, entry
        assert any("\u4e00" <= c <= "\u9fff" for c in entry.chinese), entry
        if entry.code:
            assert resolve(entry.code) is not None, entry
    with pytest.raises(AttributeError):
        resolve("core.kl.k4")


def test_symbols_are_written_once() -> None:
    from ppo_lab.course.glossary import CONTROL, LANGUAGE, PROBABILITY, SCALE

    assert len(SYMBOLS) == len(CONTROL + LANGUAGE + PROBABILITY + SCALE) > 45
    assert len({entry.chinese for entry in SYMBOLS.values()}) == len(SYMBOLS)


# --- names in logs ---------------------------------------------------------------------------------------------------


def test_metric_line_comes_from_the_registry(capsys: pytest.CaptureFixture[str]) -> None:
    course.metric("ref_kl_sum")
    line = capsys.readouterr().out
    entry = REGISTRY["ref_kl_sum"]
    assert line.startswith(f"In a log {entry.title} is ref_kl_sum (here), {entry.aliases['trl']} (TRL)")
    assert f"unit: {entry.unit}" in line
    with pytest.raises(ValueError, match="at least one"):
        course.metric()
    with pytest.raises(ValueError, match="not a metric"):
        course.metric("reward_kl")


# --- claims ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "limits", "verdict"),
    [
        ([1.0, 1.1, 0.9, 1.0, 1.05], {"least": 0.5}, VERDICTS[0]),
        ([1.0, 1.1, 0.9, 1.0, 1.05], {"most": 0.5}, VERDICTS[1]),
        ([1.0, 1.1, 0.9, 1.0, 1.05], {"least": 0.95}, VERDICTS[2]),
        ([1.0, 1.1, 0.9, 1.0, 1.05], {"least": 0.5, "most": 1.5}, VERDICTS[0]),
        ([1.0, 1.1, 0.9, 1.0, 1.05], {"least": 2.0, "most": 3.0}, VERDICTS[1]),
        ([1.0, 1.0, 1.0, 1.0, 1.0], {"least": 1.0}, VERDICTS[2]),
        ([1.0, 1.0, 1.0, 1.0, 1.0], {"least": 0.999}, VERDICTS[0]),
    ],
)
def test_verdicts_keep_their_distance(values: list[float], limits: dict[str, float], verdict: str) -> None:
    found = course.measure(values, **limits)
    assert found.verdict == verdict and found.low <= found.mean <= found.high


def test_interval_is_students() -> None:
    """Five values 1 … 5: mean 3, s² 2.5, t(4) = 2.776."""
    found = course.measure([1.0, 2.0, 3.0, 4.0, 5.0], least=0.0)
    assert found.high - found.mean == pytest.approx(2.7764451051977934 * 0.5**0.5, abs=1e-9)


@pytest.mark.parametrize(
    ("values", "limits", "words"),
    [([1.0] * 4, {"least": 0.0}, "at least 5 paired runs"), ([1.0] * 5, {}, "needs a limit"),
     ([1.0] * 5, {"least": 1.0, "most": 0.0}, "needs a limit")],
)  # fmt: skip
def test_measure_refuses(values: list[float], limits: dict[str, float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        course.measure(values, **limits)


def test_toys_are_run_ten_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SESSION, "name", "04_clipping")
    assert course.measure([1.0, 1.1] * 5, least=0.0).count == 10
    with pytest.raises(ValueError, match="at least 10 paired runs"):
        course.measure([1.0, 1.1, 1.2] * 3, least=0.0)
    monkeypatch.setattr(SESSION, "name", "10_four_model_rlhf")
    assert course.measure([1.0, 1.1, 1.2, 1.0, 1.1], least=0.0).count == 5


def test_claims_reach_ledger_and_documentation(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="no claim"):
        course.ledger()
    measured = course.measure([0.010, 0.011, 0.012, 0.010, 0.009], least=0.03, most=0.07)
    first = course.claim("A3.tail", "About 5 % are far off.", measured, form="{:.1%}")
    second = course.claim("A1.rate", "It costs a third.", "a tenth", "cannot tell here", (0.05, 0.15))
    course.ledger()
    out = capsys.readouterr().out
    assert "Claim A3.tail: About 5 % are far off. Measured: 1.0%, 5 runs (0.9% to 1.2%). Did not hold here.\n" in out
    assert out.endswith("Claims\nA3.tail: did not hold here\nA1.rate: cannot tell here\n")
    outputs = [{"data": json.loads(json.dumps(_Entry(entry)._repr_mimebundle_()))} for entry in (first, second)]
    assert MIME in outputs[0]["data"]
    assert [*claims_in({"cells": [{"outputs": outputs}, {"cell_type": "markdown"}]})] == [first, second]


def test_a_verdict_is_one_of_three() -> None:
    with pytest.raises(ValueError, match="let measure"):
        course.claim("A1.x", "…", "…", "confirmed")


# --- progress --------------------------------------------------------------------------------------------------------


def test_progress_is_kept_in_a_working_copy_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    SESSION.note("exercise", "masked_mean", "PASS")
    assert [*tmp_path.iterdir()] == []
    course.progress()
    assert "nobody has checked it" in (text := capsys.readouterr().out) and "1 exercises passed" in text
    (tmp_path / MARKER).write_text("{}", encoding="utf-8")
    (tmp_path / "deep").mkdir()
    monkeypatch.chdir(tmp_path / "deep")
    SESSION.note("bet", "Which?", "a")
    SESSION.note("exercise", "ppo_loss", "FAIL")
    monkeypatch.setattr(SESSION, "done", {})
    course.progress()
    assert "0 exercises passed, 0 missions met, 1 bets placed" in capsys.readouterr().out
    assert json.loads((tmp_path / "progress.json").read_text()) == {
        "bet": {"Which?": "a"}, "exercise": {"ppo_loss": "FAIL"}}  # fmt: skip


def test_torn_progress_is_no_accident(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / MARKER).write_text("{}", encoding="utf-8")
    (tmp_path / "progress.json").write_text('{"exercise": {"a', encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    SESSION.note("exercise", "gae", "PASS")
    assert json.loads((tmp_path / "progress.json").read_text()) == {"exercise": {"gae": "PASS"}}


# --- the map ---------------------------------------------------------------------------------------------------------


def test_catalogue_is_whole() -> None:
    assert [book.number for book in NOTEBOOKS.values()] == [f"{i:02}" for i in range(19)]
    assert {book.kind for book in NOTEBOOKS.values()} == {*KINDS}
    assert all({*path} <= {*PATHS["full"]} for path in PATHS.values())
    assert neighbours("18_dashboards_and_reports")[1] is None
    assert rows_of("B5-B7", "I") == ("B5", "B6", "B7", "I")
    with pytest.raises(ValueError, match="did you mean 05_gae"):
        notebook("05_gea")
