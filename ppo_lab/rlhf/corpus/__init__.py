"""Where texts and prompts come from: the embedded grammar, files, datasets, rated reviews.

`load_corpus` gives one record whatever the source. Training and evaluation never share a prompt: rows are put aside by
their prompt, so a prompt stands on one side only, and so does every text.
"""

from __future__ import annotations

from ppo_lab.config import ConfigError
from ppo_lab.config.language import CorpusConfig

from .prompts import encode_prompts
from .sources import SOURCES, Source
from .split import Corpus, first_words, split_by_prompt

__all__ = ["SOURCES", "Corpus", "encode_prompts", "first_words", "load_corpus", "split_by_prompt"]


def load_corpus(cfg: CorpusConfig, *, seed: int, sources: dict[str, Source] | None = None) -> Corpus:
    """Texts and prompts of ``cfg.kind``, read, split and put in order by ``seed``.

    Args:
        cfg: the ``corpus`` part of a config.
        seed: keys what the grammar writes, how long prompts are and which are held out.
        sources: kinds beyond the shipped `SOURCES`, or in their place: ``{kind: f(cfg, seed) -> Corpus}``.

    Raises:
        ConfigError: a missing file or field, nothing to read, too few rows to hold any out.

    >>> corpus = load_corpus(CorpusConfig(size=400, held_out=32), seed=0)
    >>> corpus.train_texts[0], corpus.train_prompts[0]
    ('the story of that picture is quite wonderful but it is never familiar .', 'the story of that')
    >>> set(corpus.train_prompts) & set(corpus.held_out_prompts)
    set()
    """
    known = SOURCES | (sources or {})
    if cfg.kind not in known:
        raise ConfigError(f"corpus.kind must be one of {', '.join(known)}, got {cfg.kind!r}")
    fewest, most = cfg.prompt_words
    if fewest > most:
        raise ConfigError(f"corpus.prompt_words must be [fewest, most], got {[fewest, most]}; use {[most, fewest]}")
    if not isinstance(cfg.sentences, int) and cfg.sentences[0] > cfg.sentences[1]:
        turned = [*reversed(cfg.sentences)]
        raise ConfigError(f"corpus.sentences must be [fewest, most], got {[*cfg.sentences]}; use {turned}")
    return known[cfg.kind](cfg, seed)
