"""The card, the stand-in, and what a learner may do wrong: raise, return nothing, change arguments, click again."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from ppo_lab import course
from ppo_lab.core.masking import masked_mean as the_package_has
from ppo_lab.course.checking import StandIn, card
from ppo_lab.course.exercises import examine, exercise
from ppo_lab.course.exercises.exercise import Case
from ppo_lab.course.exercises.judge import Verdict, common, judge
from ppo_lab.course.exercises.outcome import Outcome, from_plain
from ppo_lab.course.session import SESSION

X, MASK = torch.tensor([1.0, 3.0, 8.0]), torch.tensor([True, True, False])


def named(function: Callable[..., Any], name: str = "masked_mean") -> Callable[..., Any]:
    function.__name__ = name
    return function


def wrong(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return x.mean()


def right(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return x[mask].mean()


def test_pass_gives_the_function_back(capsys: pytest.CaptureFixture[str]) -> None:
    assert course.check(named(right)) is right
    assert capsys.readouterr().out == "✓ PASS masked_mean: right on all toy data\n"
    assert SESSION.done["exercise"] == {"masked_mean": "PASS"}


def test_second_click_cannot_pass(capsys: pytest.CaptureFixture[str]) -> None:
    first = course.check(named(wrong))
    second = course.check(first)
    third = course.check(second)
    out = capsys.readouterr().out.splitlines()
    assert len(out) == 3 and len({*out}) == 1 and out[0].startswith("✗ FAIL masked_mean: two answers: ")
    assert isinstance(third, StandIn) and third.mine is wrong
    assert SESSION.done["exercise"] == {"masked_mean": "FAIL"}


def test_stand_in_is_marked_and_computes_rightly(capsys: pytest.CaptureFixture[str]) -> None:
    stand_in = course.check(named(wrong))
    assert stand_in(X, MASK).item() == 2.0 and stand_in.__name__ == "masked_mean"
    assert "standing in" in repr(stand_in)


def test_recursion_reaches_the_learners_function(capsys: pytest.CaptureFixture[str]) -> None:
    """After a FAIL the name means the stand-in; a function that calls its own name must not borrow the right answer."""
    names: dict[str, Any] = {"course": course}
    exec("def masked_mean(x, mask, deep=False):\n    return x.mean() if deep else masked_mean(x, mask, True)", names)
    for _ in range(3):
        exec("masked_mean = course.check(masked_mean)", names)
    assert capsys.readouterr().out.count("FAIL") == 3


def test_the_packages_own_function_is_not_yours(capsys: pytest.CaptureFixture[str]) -> None:
    assert isinstance(course.check(the_package_has), StandIn)
    assert "This is the package's own. Write yours." in capsys.readouterr().out


def test_later_failure_does_not_lose_a_pass(capsys: pytest.CaptureFixture[str]) -> None:
    course.check(named(right))
    course.check(named(wrong))
    assert SESSION.done["exercise"] == {"masked_mean": "PASS"}


def test_run_all_reveals_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    def stub(x: Any, mask: Any) -> Any:
        raise NotImplementedError

    course.check(named(stub))
    text = capsys.readouterr().out
    assert text == "○ TODO masked_mean: not written yet\n"
    page = card(exercise("masked_mean"), Verdict("TODO", "masked_mean"))._repr_html_()
    assert page.count("<details") == 4 and not re.search(r"<details[^>]*\bopen\b", page)
    visible = re.sub(r"<details.*?</details>", "", page, flags=re.S)
    assert "x[mask]" in page and "x[mask]" not in visible and "hint" not in visible


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (lambda x, mask: None, "returns nothing; is there a return?"),
        (lambda x, mask: [1.0], "returns a list"),
        (lambda x, mask: x.meen(), "AttributeError: 'Tensor' object has no attribute 'meen' in line"),
        (lambda x, mask: x.masked_fill_(~mask, 0).sum() / mask.sum(), "changes its argument x in place"),
        (lambda x: x.mean(), "TypeError"),
        (lambda x, mask: x[mask].mean(keepdim=True, dim=0), "the shape is (1,), expected (). One number is asked for"),
        (lambda x, mask: -x[mask].mean(), "Every number has the wrong sign."),
        (lambda x, mask: x.new_zeros(10**6), "far more than it was given"),
    ],
)
def test_what_goes_wrong_is_said(body: Callable[..., Any], words: str) -> None:
    verdict = examine(exercise("masked_mean"), body)
    assert verdict.verdict == "FAIL" and words in str(verdict)


def test_plain_numbers_are_accepted() -> None:
    assert examine(exercise("masked_mean"), lambda x, mask: float(x[mask].mean())).verdict == "PASS"


def test_a_place_is_named() -> None:
    """An answer that no mutant knows, wrong in the padding only."""
    entry = exercise("token_rewards")
    odd = examine(entry, lambda *a, **k: entry.reference(*a, **k).masked_fill(~a[3], 7.0))
    assert odd.why == "Only what the mask leaves out is wrong; the rest is right." and odd.mutant == ""
    assert odd.step.startswith("row 0, step 4 (logp=") and odd.got == "7" and odd.expected == "0"


def test_half_known_answers_are_recognised_up_to_the_first_wrong_case() -> None:
    """Two faults at once: the second case gives NaN, the first has a known mistake."""
    found = examine(exercise("token_rewards"), lambda s, p, q, m, *, beta: (
        torch.zeros_like(p).masked_scatter(m, s[:, None].expand_as(p)[m]) - beta * (p - q) * m))
    assert found.verdict == "FAIL" and found.mutant == "score on every token"


def test_common_traits() -> None:
    y = torch.tensor([1.0, 2.0, 4.0])
    every = torch.ones(3, dtype=torch.bool)
    assert common(2 * y, y, every, {}) == "Every number is 2 times what it should be."
    assert common(y + torch.tensor([0.0, 1.0, 1.5]), y, y > 1, {}) == "2 of 3 numbers differ."
    assert common(y * torch.nan, y, every, {}).startswith("NaN")


def test_gradients_are_compared() -> None:
    entry = exercise("ppo_loss")
    plain = examine(entry, lambda *a, **k: entry.reference(*a, **k).item())
    assert plain.mutant == "detached" and plain.step.startswith("the gradient for logp at row 0, step ")


def test_unequal_numbers_never_look_equal() -> None:
    verdict = examine(exercise("masked_mean"), lambda x, mask: x[mask].mean() + 1e-5)
    assert verdict.got != verdict.expected


def test_rounding_is_forgiven() -> None:
    assert examine(exercise("masked_mean"), lambda x, mask: x[mask].mean() + 1e-8).verdict == "PASS"


@pytest.mark.parametrize(
    "message",
    [
        [], {}, {"value": 3}, None, "x",
        {"value": {"shape": [2], "values": [1.0]}, "gradient": None, "error": "", "todo": False},
        {"value": {"shape": [1], "values": ["a"]}, "gradient": None, "error": "", "todo": False},
        {"value": None, "gradient": [1], "error": "", "todo": False},
    ],
)
def test_foreign_messages_are_refused(message: Any) -> None:
    with pytest.raises(ValueError):
        from_plain(message)


def test_outcomes_cross_as_plain_numbers() -> None:
    import json

    entry = exercise("ppo_loss")
    from ppo_lab.course.exercises.outcome import call

    found = [call(entry, entry.reference, case) for case in entry.cases(5)]
    again = [from_plain(json.loads(json.dumps(outcome.plain()))) for outcome in found]
    assert judge(entry, again, 5).verdict == "PASS" and judge(entry, again, 6).verdict == "FAIL"


def test_a_transfer_exercise_is_judged_by_laws(capsys: pytest.CaptureFixture[str]) -> None:
    """Its stand-in is the learner's own function, and its card has no solution to open."""
    entry = exercise("stop_bonus")
    mine = named(entry.mutants[1].function, "stop_bonus")
    stand_in = course.check(mine)
    assert "A row sums to score − β·KL" in capsys.readouterr().out and isinstance(stand_in, StandIn)
    (case, _) = entry.cases(0)
    given = case.arguments.values()
    assert torch.equal(stand_in(*given, **case.options), mine(*given, **case.options))
    page = card(entry, Verdict("TODO", "stop_bonus"))._repr_html_()
    assert "solution" not in page and "your instructor has an answer" in page
    assert examine(entry, lambda *a, **k: 3.0).why == "The rewards have one number a token, (B, T)."


def test_no_outcome_is_no_pass() -> None:
    entry = exercise("masked_mean")
    cases: list[Case] = list(entry.cases(0))
    assert judge(entry, [Outcome(error="gone")] * len(cases), 0).verdict == "FAIL"
    with pytest.raises(ValueError):
        judge(entry, [], 0)
