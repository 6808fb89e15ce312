"""The corpus as a record, and how prompts are put aside for evaluation."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ppo_lab import seeding
from ppo_lab.config import ConfigError
from ppo_lab.config.language import CorpusConfig

Columns = Mapping[str, Sequence[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """Texts to imitate and prompts to answer. ``columns`` hold one value a prompt and go to reward callables."""

    train_texts: list[str]
    train_prompts: list[str]
    held_out_prompts: list[str]
    held_out_texts: list[str]
    columns: dict[str, list[Any]] = field(default_factory=dict)
    held_out_columns: dict[str, list[Any]] = field(default_factory=dict)


def first_words(text: str, n: int) -> str | None:
    """``text`` up to the end of its ``n``-th word, or None where nothing would follow.

    >>> first_words("the  cast is great .", 2)
    'the  cast'
    >>> first_words("the cast ", 2) is None
    True
    """
    match = re.match(rf"\s*\S+(?:\s+\S+){{{n - 1}}}(?=\s+\S)", text)
    return match and match.group()


def split_by_prompt(
    texts: Sequence[str],
    cfg: CorpusConfig,
    seed: int,
    *,
    prompts: Sequence[str] | None = None,
    columns: Columns | None = None,
) -> Corpus:
    """Put aside ``cfg.held_out`` rows so that no prompt and no text stands on both sides.

    Different prompts are taken in an order keyed by ``seed`` until they hold enough rows, and a fifth of all different
    prompts if there are so many: where prompts are few and frequent, evaluation still sees many of them. What is left
    over of their rows is not trained on either. Where rows run out before, held-out prompts repeat.

    Args:
        texts: each once; an empty one has a prompt of its own and is not imitated.
        prompts: one a text; None: its first words, as many as ``cfg.prompt_words`` allows, drawn by ``seed``. Texts too
            short for a prompt are imitated but not asked for.
        columns: ``{name: one value a text}``.

    Raises:
        ConfigError: fewer than two different prompts.
    """
    rng = random.Random(seeding.key("corpus", "prompts", seed))
    asked = list(prompts) if prompts is not None else [_cut(text, cfg, rng) for text in texts]
    rows_of: dict[str, list[int]] = {}
    for row, prompt in enumerate(asked):
        if prompt is not None:
            rows_of.setdefault(prompt, []).append(row)
    if len(rows_of) < 2:
        raise ConfigError(
            f"corpus.held_out needs at least two different prompts to put one aside, got {len(rows_of)} in "
            f"{len(texts)} texts; give more texts, or fewer words in corpus.prompt_words {cfg.prompt_words}"
        )
    kinds = rng.sample(list(rows_of), len(rows_of))
    aside, held = _put_aside(kinds, rows_of, cfg.held_out), []
    for prompt in aside:
        held += rows_of[prompt]
    chosen = sorted(rng.sample(held, min(cfg.held_out, len(held))))
    chosen = [chosen[i % len(chosen)] for i in range(cfg.held_out)]
    banned = set(held)
    train = [row for row in range(len(texts)) if row not in banned]
    ask = [row for row in train if asked[row] is not None]
    return Corpus(
        train_texts=[texts[row] for row in train if texts[row]],
        train_prompts=[str(asked[row]) for row in ask],
        held_out_prompts=[str(asked[row]) for row in chosen],
        held_out_texts=[texts[row] for row in chosen],
        columns={name: [values[row] for row in ask] for name, values in (columns or {}).items()},
        held_out_columns={name: [values[row] for row in chosen] for name, values in (columns or {}).items()},
    )


def _put_aside(kinds: list[str], rows_of: dict[str, list[int]], wanted: int) -> list[str]:
    """The first prompts that hold enough rows and are various enough; at most half of all prompts."""
    rows, various = 0, min(wanted, len(kinds) // 5)
    for taken, prompt in enumerate(kinds[: len(kinds) // 2], start=1):
        rows += len(rows_of[prompt])
        if rows >= wanted and taken >= various:
            return kinds[:taken]
    return kinds[: len(kinds) // 2]


def _cut(text: str, cfg: CorpusConfig, rng: random.Random) -> str | None:
    fewest, most = cfg.prompt_words
    wanted = rng.randint(fewest, most)
    return next((p for n in range(wanted, fewest - 1, -1) if (p := first_words(text, n)) is not None), None)
