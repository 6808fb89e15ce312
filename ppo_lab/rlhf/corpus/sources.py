"""One function a kind of corpus. Each reads rows and hands them to `split_by_prompt`."""

from __future__ import annotations

import difflib
import json
import random
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from ppo_lab import seeding
from ppo_lab.config import ConfigError
from ppo_lab.config.language import CorpusConfig

from . import grammar
from .language import from_language
from .split import Corpus, split_by_prompt

Source = Callable[[CorpusConfig, int], Corpus]
Row = dict[str, Any]


def from_grammar(cfg: CorpusConfig, seed: int) -> Corpus:
    """``cfg.size`` different texts of ``cfg.sentences`` sentences each, or of a number drawn from that range."""
    rng = random.Random(seeding.key("corpus", "grammar", seed))
    texts: dict[str, None] = {}
    while len(texts) < cfg.size:
        drawn = cfg.sentences if isinstance(cfg.sentences, int) else rng.randint(*cfg.sentences)
        texts.setdefault(grammar.write(rng, sentences=drawn))
    return split_by_prompt(list(texts), cfg, seed)


def from_text(cfg: CorpusConfig, seed: int) -> Corpus:
    """A text a line; empty lines and repetitions are skipped."""
    lines = (line.strip() for line in _file(cfg).read_text(encoding="utf-8").splitlines())
    return split_by_prompt(_some(dict.fromkeys(filter(None, lines)), cfg), cfg, seed)


def from_jsonl(cfg: CorpusConfig, seed: int) -> Corpus:
    """An object a line; the keys that are neither text nor prompt become columns."""
    path, rows = _file(cfg), []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise ConfigError(f"corpus.path {path}, line {number} must be a JSON object: {error}") from None
        if not isinstance(row, dict):
            raise ConfigError(f"corpus.path {path}, line {number} must be a JSON object, got {type(row).__name__}")
        rows.append(row)
    return from_rows(rows, cfg, seed, where=str(path))


def from_dataset(cfg: CorpusConfig, seed: int) -> Corpus:
    """A Hugging Face dataset, ``owner/name`` or ``owner/name/config``; streamed, so only ``size`` rows travel."""
    name = _path(cfg, "a dataset such as stanfordnlp/imdb")
    try:
        import datasets
    except ImportError:
        raise ConfigError(
            f"corpus.kind dataset needs the package datasets to read {name!r}; pip install datasets, or export the "
            "texts to a file and use corpus.kind: jsonl"
        ) from None
    repository, config = "/".join(name.split("/")[:2]), "/".join(name.split("/")[2:]) or None
    try:
        stream = datasets.load_dataset(repository, config, split=cfg.split, streaming=True)
        rows = [dict(row) for row in islice(stream, cfg.size)]
    except Exception as error:  # the library raises a dozen unrelated types when offline, misspelt or private
        reason = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
        raise ConfigError(
            f"corpus.path {name!r} (split {cfg.split!r}) could not be read from the Hugging Face hub ({reason}); check "
            "the name, the split and the network, or use corpus.kind: jsonl with a local file"
        ) from error
    return from_rows(rows, cfg, seed, where=f"dataset {name}")


def from_rows(rows: Sequence[Row], cfg: CorpusConfig, seed: int, *, where: str) -> Corpus:
    """Rows with a text under ``cfg.field``, and a prompt under ``cfg.prompt_field`` if that is set.

    A row without ``cfg.field`` is allowed where prompts are ready: then there is nothing to imitate.
    """
    kept: dict[tuple[str, str | None], Row] = {}
    for number, row in enumerate(islice(rows, cfg.size)):
        prompt = None if cfg.prompt_field is None else _string(row, cfg.prompt_field, "prompt_field", where, number)
        alone = prompt is not None and cfg.field not in row
        text = "" if alone else _string(row, cfg.field, "field", where, number)
        if text.strip() or prompt is not None:
            kept.setdefault((text, prompt), row)
    if not kept:
        raise ConfigError(f"corpus.path {where} must hold at least one text, got none; check the file")
    names = list(dict.fromkeys(k for row in kept.values() for k in row if k not in (cfg.field, cfg.prompt_field)))
    columns = {name: [row.get(name) for row in kept.values()] for name in names}
    prompts = None if cfg.prompt_field is None else [str(prompt) for _, prompt in kept]
    return split_by_prompt([text for text, _ in kept], cfg, seed, prompts=prompts, columns=columns)


def from_reviews(cfg: CorpusConfig, seed: int) -> Corpus:
    """Human-rated review snippets, split as `ppo_lab.rlhf.reviews` splits them: the same prompts in every run.

    ``cfg.path`` may name another folder with a ``reviews.jsonl``; ``seed`` only mixes prompts of several lengths.
    """
    from ppo_lab.rlhf.reviews import load_reviews, review_prompts, select_split

    reviews = load_reviews(review_folder(cfg))

    def prompts(split: str) -> list[str]:
        fewest, most = cfg.prompt_words
        found = [p for words in range(fewest, most + 1) for p in review_prompts(reviews, words=words, split=split)]
        return found if fewest == most else [found[i] for i in seeding.permutation(len(found), "corpus", split, seed)]

    held = prompts("held_out")
    if not held:
        raise ConfigError(f"corpus.prompt_words {cfg.prompt_words} leaves no held-out prompt; use fewer words")
    held = [held[i % len(held)] for i in range(cfg.held_out)]
    return Corpus(
        train_texts=[review.text for review in select_split(reviews, "train")][: cfg.size],
        train_prompts=prompts("train")[: cfg.size],
        held_out_prompts=held,
        held_out_texts=held,
    )


SOURCES: dict[str, Source] = {
    "grammar": from_grammar,
    "text": from_text,
    "jsonl": from_jsonl,
    "dataset": from_dataset,
    "human-reviews": from_reviews,
    "language": from_language,
}


def review_folder(cfg: CorpusConfig) -> Path:
    """Where the rated reviews are: a folder at ``cfg.path`` if it has them, else what was fetched."""
    from ppo_lab.rlhf.fetch import FetchError, locate

    if cfg.kind == "human-reviews" and cfg.path is not None:
        return Path(cfg.path).expanduser()
    try:
        return locate("human-reviews")
    except FetchError as error:
        raise ConfigError(f"human-rated reviews are not here yet: {error}") from error


def _path(cfg: CorpusConfig, what: str) -> str:
    if cfg.path is None:
        raise ConfigError(f"corpus.path must name {what} for corpus.kind {cfg.kind}, got None; set corpus.path")
    return cfg.path


def _file(cfg: CorpusConfig) -> Path:
    path = Path(_path(cfg, "a file")).expanduser()
    if not path.is_file():
        raise ConfigError(f"corpus.path must name an existing file, got {str(path)!r}; check the path, or use an "
                          "absolute one")  # fmt: skip
    return path


def _some(texts: Iterable[str], cfg: CorpusConfig) -> list[str]:
    found = list(islice(texts, cfg.size))
    if not found:
        raise ConfigError(f"corpus.path {cfg.path!r} must hold at least one text, got none; check the file")
    return found


def _string(row: Row, key: str, field: str, where: str, number: int) -> str:
    if key not in row:
        near = difflib.get_close_matches(key, row, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}?" if near else f"this row has {', '.join(map(str, row)) or 'no keys'}"
        raise ConfigError(f"corpus.{field} {key!r} is not a key of row {number} of {where}; {hint}")
    if not isinstance(row[key], str):
        raise ConfigError(
            f"corpus.{field} {key!r} must hold a string, got {type(row[key]).__name__} in row {number} of {where}"
        )
    return row[key]
