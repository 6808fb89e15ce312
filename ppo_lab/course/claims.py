"""The claims ledger: what write-ups say, what was measured here, and one of three verdicts.

A verdict needs distance: a mean that is nearer than three standard errors to the claim's limit decides nothing. Claims
travel inside the stored outputs of a notebook, so the documentation's ledger is made from outputs that were compared.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import Any

from ppo_lab.course.catalogue import notebook
from ppo_lab.course.html import Card, show, table
from ppo_lab.course.session import SESSION

VERDICTS = ("held here", "did not hold here", "cannot tell here")
MIME = "application/vnd.ppo-lab.claim+json"
ERRORS_AWAY = 3.0  # standard errors between a mean and the limit of a claim
FEWEST = {"concept": 10}  # paired runs: toys are cheap
FEWEST_RUNS = 5  # of training


@dataclass(frozen=True, slots=True)
class Measured:
    """Mean of paired runs with its standard error and 95 % interval, against the limits of a claim."""

    mean: float
    error: float
    low: float
    high: float
    count: int
    verdict: str


@dataclass(frozen=True, slots=True)
class Claim:
    """One line of the ledger. ``id`` starts with its row of the course map, as ``A3.tail``."""

    id: str
    text: str
    measured: str
    verdict: str
    interval: str = ""  # 95 %, as it is shown

    def cells(self) -> tuple[str, str, str, str]:
        """Claim, measured, interval, verdict."""
        return self.text, self.measured, self.interval, self.verdict

    def _ipython_display_(self) -> None:
        """Nothing: `claim` has shown it, also where it stands last in a cell."""


def measure(
    values: Sequence[float], *, least: float = -math.inf, most: float = math.inf, training: bool = False
) -> Measured:
    """Does the mean lie between ``least`` and ``most``? The values are paired differences, or one number a seed.

    At least five of them, ten in a concept notebook, where a run is cheap; ``training``: there too each was a whole
    training run, and five will do.

    Held: three standard errors inside both limits. Did not hold: three outside of one. Else: cannot tell. The interval
    is Student's, 95 %.

    >>> measure([1.0, 1.1, 0.9, 1.0, 1.05], least=0.5).verdict
    'held here'
    >>> measure([1.0, -1.1, 0.9, 1.0, -1.05], least=0.5).verdict
    'cannot tell here'
    """
    import numpy as np
    from scipy.special import stdtrit

    x = np.asarray(values, dtype=np.float64)
    kind = notebook(SESSION.name).kind if SESSION.name and not training else ""
    fewest = FEWEST.get(kind, FEWEST_RUNS)
    if x.ndim != 1 or len(x) < fewest:
        raise ValueError(f"values must be at least {fewest} paired runs, got shape {x.shape}; run more seeds")
    if not least < most or (math.isinf(least) and math.isinf(most)):
        raise ValueError(f"a claim needs a limit, least < most, got {least} and {most}; say what would refute it")
    mean, error = float(x.mean()), float(x.std(ddof=1) / math.sqrt(len(x)))
    half = float(stdtrit(len(x) - 1, 0.975)) * error
    margin = ERRORS_AWAY * error
    if least + margin < mean < most - margin:
        verdict = VERDICTS[0]
    elif mean < least - margin or mean > most + margin:
        verdict = VERDICTS[1]
    else:
        verdict = VERDICTS[2]
    return Measured(mean, error, mean - half, mean + half, len(x), verdict)


_CLAIMS: dict[str, Claim] = {}


class _Entry(Card):
    """A claim's card that carries the claim as data."""

    def __init__(self, entry: Claim) -> None:
        edge = {VERDICTS[0]: "good", VERDICTS[1]: "bad", VERDICTS[2]: "open"}[entry.verdict]
        said, measured, interval, verdict = entry.cells()
        span = f" ({interval})" if interval else ""
        text = f"Claim {entry.id}: {said} Measured: {measured}{span}. {verdict.capitalize()}."
        body = (
            f"<div>Claim <code>{escape(entry.id)}</code>: <i>{escape(said)}</i></div><div>Measured: "
            f"{escape(measured + span)}. <b>{escape(verdict.capitalize())}.</b></div>"
        )
        super().__init__(text, body, edge=edge)
        self._entry = entry

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        return {"text/plain": self.text, "text/html": self._repr_html_(), MIME: asdict(self._entry)}


def claim(
    id: str,
    text: str,
    measured: Measured | str,
    verdict: str | None = None,
    interval: tuple[float, float] | None = None,
    *,
    form: str = "{:.3g}",
) -> Claim:
    """Enter a claim with what was measured, and show it.

    Args:
        id: row of the course map, a point, a word: ``A3.tail``.
        text: what is claimed, as a sentence.
        measured: what `measure` gave, which brings verdict and interval; or words, with a verdict of `VERDICTS`.
        interval: low and high of a recorded measurement.
        form: how mean and interval are written.
    """
    if isinstance(measured, Measured):
        verdict, interval = measured.verdict, (measured.low, measured.high)
        measured = f"{form.format(measured.mean)}, {measured.count} runs"
    if verdict not in VERDICTS:
        raise ValueError(f"verdict must be one of {', '.join(VERDICTS)}, got {verdict!r}; let measure() decide")
    span = "" if interval is None else " to ".join(map(form.format, interval))
    entry = Claim(id, text, measured, verdict, span)
    _CLAIMS[id] = entry
    show(_Entry(entry))
    return entry


def ledger() -> None:
    """Show every claim of this notebook in one table."""
    if not _CLAIMS:
        raise ValueError("no claim has been entered yet; use course.claim above this cell")
    rows = [(entry.id, *entry.cells()) for entry in _CLAIMS.values()]
    text = "\n".join(f"{id}: {verdict}" for id, *_, verdict in rows)
    head = ("", "what is said", "measured here", "95 % interval", "verdict")
    show(Card(f"Claims\n{text}", table(rows, head=head)))


def claims_in(content: Mapping[str, Any]) -> Iterator[Claim]:
    """The claims that a notebook's stored outputs carry, in order."""
    for cell in content["cells"]:
        for output in cell.get("outputs", ()):
            if (found := output.get("data", {}).get(MIME)) is not None:
                yield Claim(**found)
