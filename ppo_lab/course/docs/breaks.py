"""When it breaks: from a symptom to the metric that shows it, what it means, the first remedy, and where it is taught.

The sentences are those of the registry (`Metric.reads`): "symptom: meaning; remedy".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ppo_lab.course.docs.markdown import books_of, code, shown_in, span, table
from ppo_lab.metrics import GROUPS, Metric, group

SENTENCE = re.compile(r"(?<=\.) (?=[A-Z0-9])")
NO_SYMPTOM = ("1:", "0:", "The same, apart", "Depends on", "Compare with", "Tokens whose", "Read it as",
              "Usually above", "Up is the aim")  # fmt: skip
NO_REMEDY = ("a clip that binds", "at its bound", "if not,")  # after a semicolon, and yet no advice
FIRST = (  # what people come with -> where to look first, in this order
    ("the very first step already looks wrong", ("first_ratio_error", "sampler_mismatch", "tokens")),
    ("nothing is learned: the score stays flat", ("score_std", "policy_kl_k3", "gradient_norm", "explained_variance")),
    ("the score rises, the samples get worse", ("eval_gold", "eval_objective", "ref_kl_sum", "distinct_2")),
    ("every answer is the same", ("entropy", "distinct_2", "score_std")),
    ("answers turn to noise", ("entropy", "ref_kl_sum", "policy_kl_k3", "gradient_norm_max")),
    ("answers get longer and longer, or never stop", ("stop_rate", "response_length", "ref_kl_token")),
    ("the run jumps, or ends in NaN", ("ratio_max", "gradient_norm_max", "policy_kl_k3", "clip_fraction")),
    ("the KL will not stay where it should", ("ref_kl_sum", "beta", "non_score_reward")),
    ("the critic does not follow", ("explained_variance", "value_loss", "value_clip_fraction", "advantage_mean")),
    ("a step takes too long, or memory grows", ("seconds_rollout", "seconds_score", "peak_memory_mb")),
)


def when_it_breaks(root: Path) -> str:
    """Symptom, light, meaning and remedy, notebook."""
    first = table(("what you see", "look at, in this order"), ((s, ", ".join(map(code, n))) for s, n in FIRST))
    sections = "\n\n".join(f"### {title}\n\n{lights(key)}" for key, title in GROUPS.items() if [*symptoms(key)])
    return f"""\
# When it breaks

`ppo-lab dashboard RUN` draws every metric of a run with its healthy band shaded, and its report lists what left the
band. Start from what you see, look the metric up below. Change one thing at a time, and keep the seed.

{first}

Two lights are never a matter of taste. `first_ratio_error` must be 0 up to rounding: before the first optimizer step
the policy is the old policy. `entropy` lies between 0 and ln V. If one of them is off, the code is wrong, and no
setting helps.

## Every symptom

After the arrow: what to try first.

{sections}
"""


def lights(key: str) -> str:
    """The table of one panel."""
    head = ("symptom", "light", "healthy", "what it means → what to do", "notebook")
    return table(head, (
        (symptom, code(e.name), span(*e.healthy) if e.healthy else "–", meaning, shown_in(books_of(e.rows)) or "–")
        for e, symptom, meaning in symptoms(key)
    ))  # fmt: skip


def symptoms(key: str) -> Iterator[tuple[Metric, str, str]]:
    """(metric, symptom, meaning → remedy) of one panel."""
    for entry in group(key):
        yield from ((entry, *pair) for pair in sentences(entry.reads))


def sentences(reads: str) -> Iterator[tuple[str, str]]:
    """The symptoms among the sentences of an entry.

    >>> [*sentences("Should fall. A jump: the step was too big; lower the rate. Collapse shows here; raise β.")]
    [('A jump', 'the step was too big → lower the rate'), ('Collapse shows here', '→ raise β')]
    """
    for sentence in SENTENCE.split(reads):
        if sentence.startswith(NO_SYMPTOM):
            continue
        symptom, colon, rest = sentence.rstrip(".").partition(": ")
        if not colon:
            symptom, semicolon, rest = symptom.partition("; ")
            rest = f"; {rest}" if semicolon else ""
        if rest:
            advice = not any(f"; {start}" in rest for start in NO_REMEDY)
            yield symptom, (rest.replace("; ", " → ", 1).strip() if advice else rest.removeprefix("; "))
