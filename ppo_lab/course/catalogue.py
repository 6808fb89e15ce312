"""The map of the course: which notebooks there are, of what kind, what each must show, and the paths through them.

`NOTEBOOKS` is the one place that knows; the map in the first notebook, the documentation, the lint of kinds and the
coverage of the course's rows all read it.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches

KINDS: dict[str, tuple[str, ...]] = {  # the parts a notebook of that kind has, in the usual order
    "start": ("map", "check", "exercise", "run", "next"),
    "concept": ("bet", "panel", "by-hand", "exercise", "experiment", "bug", "recap"),
    "lab": ("run", "dashboard", "take-apart", "exercise", "experiment", "recap"),
    "case": ("curve", "diagnose", "reveal"),
    "system": ("estimate", "measure", "explain"),
}


@dataclass(frozen=True, slots=True)
class Notebook:
    """One notebook. ``minutes`` is reading and doing, not computing; ``rows`` are rows of the course map."""

    name: str
    title: str
    kind: str
    minutes: int
    goal: str  # continues "you will be able to"
    rows: tuple[str, ...] = ()
    written: bool = False  # False: planned, shown as plain text and never linked

    @property
    def number(self) -> str:
        """The two digits it starts with."""
        return self.name[:2]

    @property
    def parts(self) -> tuple[str, ...]:
        """What a notebook of this kind contains."""
        return KINDS[self.kind]


def rows_of(*spans: str) -> tuple[str, ...]:
    """Row ids, ranges written out.

    >>> rows_of("A1", "B5-B7", "F")
    ('A1', 'B5', 'B6', 'B7', 'F')
    """
    found: list[str] = []
    for span in spans:
        first, _, last = span.partition("-")
        letter, digits = first[0], first[1:]
        numbers = range(int(digits), int(last[1:] if last else digits) + 1) if digits else ()
        found += [f"{letter}{number}" for number in numbers] or [letter]
    return tuple(found)


def _notebook(name: str, kind: str, minutes: int, title: str, goal: str, *spans: str) -> Notebook:
    return Notebook(name, title, kind, minutes, goal, rows_of(*spans), name in WRITTEN)


# names of the notebooks that exist; a test compares it with the folder
WRITTEN: frozenset[str] = frozenset({
    "00_start_here",
    "01_reinforce",
    "02_baselines",
    "03_importance_sampling",
    "04_clipping",
    "05_gae",
    "06_ppo",
    "07_what_matters",
    "08_language_as_mdp",
    "09_sft_and_reward_model",
    "10_four_model_rlhf",
    "11_kl_and_length",
    "12_reward_hacking",
    "16_memory_and_parallelism",
    "17_zero3_multi_gpu",
})

NOTEBOOKS: dict[str, Notebook] = {
    book.name: book
    for book in (
        _notebook("00_start_here", "start", 15, "Start here",
                  "find your way, check the machine, solve an exercise and train a language model once"),
        _notebook("01_reinforce", "concept", 40, "REINFORCE",
                  "derive the policy gradient and compare its estimate with the exact one", "A1"),
        _notebook("02_baselines", "concept", 35, "Baselines",
                  "cut the variance of a gradient without biasing it", "A2"),
        _notebook("03_importance_sampling", "concept", 35, "Importance sampling",
                  "use old samples for a new policy, and say when that stops working", "A3", "A7"),
        _notebook("04_clipping", "concept", 45, "Clipping",
                  "write PPO's objective and say which samples still push", "A4-A7", "A13", "A15"),
        _notebook("05_gae", "concept", 45, "Generalised advantages",
                  "trade bias for variance with λ, and treat the end of an episode correctly", "A8", "A9"),
        _notebook("06_ppo", "lab", 50, "PPO, assembled",
                  "put the algorithm together and prove it on probe environments", "A10", "A11", "A14"),
        _notebook("07_what_matters", "lab", 50, "What matters",
                  "tell the details that matter from those that do not, by ablation", "C1-C14", "A12"),
        _notebook("08_language_as_mdp", "concept", 45, "Language as a decision process",
                  "take log-probabilities of tokens without an off-by-one", "B1", "B3", "B4", "B10"),
        _notebook("09_sft_and_reward_model", "concept", 45, "SFT and the reward model",
                  "train a reward model from preferences and judge it", "B9", "E8"),
        _notebook("10_four_model_rlhf", "lab", 60, "RLHF with four models",
                  "explain every sentence of the RLHF loop on a run of your own", "B2", "B5-B7", "B14"),
        _notebook("11_kl_and_length", "lab", 45, "KL and length",
                  "explain why answers shorten, and what helps", "B8", "C16"),
        _notebook("12_reward_hacking", "lab", 45, "Reward hacking",
                  "see a proxy being gamed, and measure it", "B11", "H1-H3", "H5", "H6"),
        _notebook("13_reading_training_logs", "case", 50, "Reading training logs",
                  "name what ails a run from its log alone", "D1-D20", "F"),
        _notebook("14_bug_clinic", "case", 50, "The bug clinic",
                  "find a dozen real bugs by the invariant each one breaks"),
        _notebook("15_beyond_ppo", "lab", 50, "Beyond PPO",
                  "place RLOO, GRPO, REINFORCE++ and DPO next to PPO at equal budgets", "B13"),
        _notebook("16_memory_and_parallelism", "system", 45, "Memory and parallelism",
                  "say where the bytes go before you rent the machine", "B12", "E2-E7", "E11-E13"),
        _notebook("17_zero3_multi_gpu", "system", 45, "ZeRO-3 on many devices",
                  "run the same recipe on several processes with the same numbers", "E1", "E9", "E10", "C14", "C15"),
        _notebook("18_dashboards_and_reports", "lab", 60, "Dashboards and reports",
                  "compare runs with honest statistics, and ship your own", "F", "G", "H4", "I"),
    )
}  # fmt: skip

PATHS: dict[str, tuple[str, ...]] = {
    "full": tuple(book.number for book in NOTEBOOKS.values()),
    "language first": ("00", "01", "04", "05", "08", "10", "11", "15"),
    "my run is broken": ("00", "08", "13", "14"),
    "scale": ("10", "16", "17", "18"),
}


def notebook(name: str) -> Notebook:
    """The notebook of that name; `ValueError` with the nearest name otherwise.

    >>> notebook("05_gae").kind
    'concept'
    """
    if name in NOTEBOOKS:
        return NOTEBOOKS[name]
    near = get_close_matches(name, NOTEBOOKS, n=1) or ["one of ppo_lab.course.catalogue.NOTEBOOKS"]
    raise ValueError(f"{name!r} is not a notebook of the course; did you mean {near[0]}?")


def neighbours(name: str) -> tuple[Notebook | None, Notebook | None]:
    """The notebooks before and after this one in the full path.

    >>> [book and book.name for book in neighbours("00_start_here")]
    [None, '01_reinforce']
    """
    order = list(NOTEBOOKS.values())
    here = order.index(notebook(name))
    return order[here - 1] if here else None, order[here + 1] if here + 1 < len(order) else None
