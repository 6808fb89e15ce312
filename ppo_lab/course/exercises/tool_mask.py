"""Transfer exercise of notebook 08: what a tool wrote into an answer was chosen by nobody."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ppo_lab.course.exercises.exercise import Case, Exercise, Law, Wrong
from ppo_lab.course.exercises.language import response_mask
from ppo_lab.course.exercises.toys import Toys

wrong = Wrong()
STOP, CALL, BACK = 2, 3, 4


def _states(case: Case) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(answer as it would count without tools, strictly inside of a tool's output, call tokens, closing tokens)."""
    response, ids = case.arguments["response"], case.options
    counts = response_mask(response, stop=ids["stop"])
    inside = torch.zeros_like(counts)
    for row in range(len(response)):
        within = False
        for t in range(response.shape[1]):
            token = int(response[row, t])
            if within and token == ids["back"]:
                within = False
                inside[row, t] = True  # the closing token is the tool's
            elif within:
                inside[row, t] = True
            elif token == ids["call"]:
                within = True
    return counts, inside, response == ids["call"], response == ids["back"]


def _law(holds: Callable[[Case, Tensor], object]) -> Callable[[Sequence[Case], Sequence[Tensor]], bool]:
    return lambda cases, values: all(
        x.shape == case.arguments["response"].shape and bool(holds(case, x.bool()))
        for case, x in zip(cases, values, strict=True)
    )


def _outside(case: Case, x: Tensor) -> bool:
    counts, inside, call, _ = _states(case)
    return bool((x == counts)[~inside & ~call].all())


def _words_inside(case: Case, x: Tensor) -> bool:
    _, inside, _, back = _states(case)
    return not bool(x[inside & ~back].any())


def _closing(case: Case, x: Tensor) -> bool:
    _, inside, _, back = _states(case)
    return not bool(x[inside & back].any())


def _calls(case: Case, x: Tensor) -> bool:
    counts, inside, call, _ = _states(case)
    return bool((x == counts)[call & ~inside].all())


def _after(case: Case, x: Tensor) -> bool:
    counts, *_ = _states(case)
    return not bool(x[~counts].any())


LAWS = (
    Law("One entry a token, (B, T).",
        lambda cases, values: all(
            x.shape == c.arguments["response"].shape for c, x in zip(cases, values, strict=True))),
    Law("What a tool wrote does not count.", _law(_words_inside)),
    Law("The token that ends a tool's output is the tool's as well.", _law(_closing)),
    Law("The token that calls a tool was chosen by the policy: it counts.", _law(_calls)),
    Law("Nothing counts after the first stop token.", _law(_after)),
    Law("Everything else counts as before, also after a tool has answered.", _law(_outside)),
)  # fmt: skip


def right(response: Tensor, *, stop: int, call: int, back: int) -> Tensor:
    """Depth by counting; used to derive wrong answers only."""
    opened, closed = (response == call).cumsum(-1), (response == back).cumsum(-1)
    inside = (opened > closed) | ((response == back) & (opened >= closed))
    return response_mask(response, stop=stop) & ~(inside & (response != call))


@wrong("the tool's words count")
def tools_count(response: Tensor, *, stop: int, call: int, back: int) -> Tensor:
    """Plain mask."""
    return response_mask(response, stop=stop)


@wrong("the call does not count")
def call_left_out(response: Tensor, *, stop: int, call: int, back: int) -> Tensor:
    """From the call on."""
    return right(response, stop=stop, call=call, back=back) & (response != call)


@wrong("the closing token counts")
def closing_counts(response: Tensor, *, stop: int, call: int, back: int) -> Tensor:
    """Up to, not including."""
    return right(response, stop=stop, call=call, back=back) | ((response == back) & response_mask(response, stop=stop))


@wrong("nothing counts after the first call")
def ends_at_the_call(response: Tensor, *, stop: int, call: int, back: int) -> Tensor:
    """The rest is thrown away."""
    earlier = (response == call).cumsum(-1) - (response == call).int()
    return right(response, stop=stop, call=call, back=back) & (earlier == 0)


@wrong("the end is forgotten")
def beyond_the_end(response: Tensor, *, stop: int, call: int, back: int) -> Tensor:
    """No stop."""
    return right(response, stop=-1, call=call, back=back)


@wrong("one entry a row")
def one_a_row(response: Tensor, *, stop: int, call: int, back: int) -> Tensor:
    """Number of tokens that count."""
    return right(response, stop=stop, call=call, back=back).sum(-1)


def cases(seed: int) -> Sequence[Case]:
    """A call in the middle, two calls, none, a call at the end; text after the stop."""
    words = 5 + (Toys("tool_mask", seed).away(4, 9).abs() * 1000).long() % 7
    words[0, 2], words[0, 5] = CALL, BACK
    words[1, 0], words[1, 2], words[1, 4], words[1, 6] = CALL, BACK, CALL, BACK
    words[0, 7] = words[2, 6] = words[3, 8] = STOP
    words[3, 5], words[3, 7] = CALL, BACK
    options = {"stop": STOP, "call": CALL, "back": BACK}
    return Case("tools in the middle", {"response": words}, options), Case("rows turned", {"response": words.flip(0)},
                                                                           options)  # fmt: skip


TOOL_MASK = Exercise(
    name="tool_mask",
    notebook="08_language_as_mdp",
    minutes=10,
    lines=4,
    heading="tool_mask(response, *, stop, call, back)",
    task="An answer may call a tool: the policy writes the token call, the tool's output follows, and the token back "
    "ends it. Return the mask of what the policy chose, (B, T): as response_mask, but False for the tool's output and "
    "its back. Calls are closed before the next one and before the end.",
    laws=LAWS,
    cases=cases,
    hints=(
        "Inside of a tool's output, more calls than backs have been seen.",
        "cumsum of (response == call) and of (response == back), as for the stop token.",
        "Mind both ends: call was chosen by the policy, back was not.",
    ),
    mutants=tuple(wrong),
)
